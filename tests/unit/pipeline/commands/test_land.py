"""Arguments of the lander: limits, secrets from files, and the id."""

import argparse
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from sluice.pipeline.cli import main
from sluice.pipeline.commands.land import add_arguments, client_options, default_id, first_line
from sluice.pipeline.errors import PipelineError
from sluice.pipeline.segments import LANDER

WORDS = ("--address", "a", "--path", "/landing")


def parsed(*words: object) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args([*WORDS, *map(str, words)])


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("first\nsecond\n")
    return path


@pytest.mark.parametrize("words", [("--land-bytes", "0"), ("--max-message", "0"), ("--max-message", "1025m")])
def test_sizes_out_of_range_are_refused_before_the_folder_exists(words, tmp_path, capsys):
    path = tmp_path / "landing"
    assert main(["land", "--address", "a", "--path", str(path), *words], "p") == 1
    assert capsys.readouterr().err == "p land: --land-bytes must be 1 or more, --max-message 1 to 1g\n"
    assert not path.exists()


def test_merge_rows_of_zero_switches_merging_off(capsys):
    assert (parsed().merge_rows, parsed("--merge-rows", "0").merge_rows) == (20_000, 0)
    with pytest.raises(SystemExit):
        parsed("--merge-rows", "-1")
    assert "'-1' is not a number of 0 or more" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--user", "u"), ("--password-file", "f")])
def test_user_and_password_must_come_together(words):
    with pytest.raises(PipelineError, match="--user and --password-file must be given together"):
        client_options(parsed(*words))


def test_password_is_the_first_line_of_its_file(secret):
    assert client_options(parsed("--user", "u", "--password-file", secret)) == {"login": ("u", "first")}


def test_token_is_read_again_for_each_connection(secret):
    token = client_options(parsed("--token-file", secret))["token"]
    assert token() == "first"
    secret.write_text("renewed")
    assert token() == "renewed"


def test_missing_secret_is_reported_at_the_start(tmp_path):
    for option in ("--token-file", "--key-password-file"):
        words = (option, tmp_path / "nothing", "--certificate", "c")
        with pytest.raises(PipelineError, match="nothing: "):
            client_options(parsed(*words))


def test_secret_that_is_no_text_is_an_error(secret):
    secret.write_bytes(b"\xff")
    with pytest.raises(PipelineError, match=f"{secret}: "):
        first_line(secret)
    secret.write_bytes(b"")
    assert first_line(secret) == ""


def test_tls_files_are_passed_on(secret):
    tls = client_options(parsed("--ca-file", "ca", "--certificate", "c", "--key", "k", "--key-password-file", secret))[
        "tls"
    ]
    assert (tls.ca_file, tls.certificate, tls.key, tls.password) == ("ca", "c", "k", "first")
    assert client_options(parsed()) == {}


@pytest.mark.parametrize("name", ["host.example", "_host", "-.", "höst", "x" * 200])
def test_default_id_is_valid_for_any_host_name(name, monkeypatch):
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename=name))
    assert LANDER.fullmatch(default_id())
