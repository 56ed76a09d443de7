"""`sluice context`, and the router that a command without -b asks."""

import argparse
from pathlib import Path

import pytest

from sluice.router import json_codec
from sluice.router.cli import context
from sluice.router.cli.contexts import ContextError, contexts_file
from sluice.router.cli.options import QueryTarget, add_connection_options, add_target_options, target


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("SLUICE_URL", raising=False)
    monkeypatch.delenv("SLUICE_CONTEXT", raising=False)
    return tmp_path


def asked(*words: str, program: str = "sluice stat") -> QueryTarget:
    """Return the router that a command line names."""
    made = argparse.ArgumentParser(prog=program)
    add_target_options(made)
    add_connection_options(made)
    return target(made.parse_args(words))


def add(name: str, *words: str) -> int:
    return context.main(["add", name, *words])


def test_file_is_private_and_first_context_is_in_use(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert add("prod", "--url", "amqps://p:1", "--ssl-trustfile", "/ca", "--timeout", "9") == 0
    assert add("test", "--url", "t") == 0
    assert contexts_file() == folder / "sluice" / "contexts.toml"
    assert contexts_file().stat().st_mode & 0o777 == 0o600
    assert asked().url.text == "amqps://p:1"
    assert asked().timeout == 9
    assert context.main(["list"]) == 0
    assert capsys.readouterr().out == "* prod  amqps://p:1\n  test  t\n"
    assert context.main(["use", "test"]) == 0
    assert asked().url.text == "amqp://t:5672"
    assert context.main(["remove", "test"]) == 0
    assert asked().url.text == "amqp://0.0.0.0:5672"
    assert context.main(["list", "--json"]) == 0
    (only,) = json_codec.decode(capsys.readouterr().out)
    assert (only["name"], only["current"], only["ssl-trustfile"]) == ("prod", False, "/ca")


def test_command_line_comes_before_environment_and_context(monkeypatch: pytest.MonkeyPatch) -> None:
    add("prod", "--url", "p", "--sasl-username", "alice")
    add("test", "--url", "t")
    monkeypatch.setenv("SLUICE_CONTEXT", "test")
    assert asked().url.host == "t"
    monkeypatch.setenv("SLUICE_URL", "u")
    assert asked().url.host == "u"
    found = asked("--context", "prod")
    assert (found.url.host, found.sasl and found.sasl.user) == ("p", "alice")
    assert asked("-b", "x").url.host == "x"
    assert asked("-b", "x").sasl is None
    found = asked("-b", "x", "--context", "prod", "--sasl-username", "bob")
    assert (found.url.host, found.sasl and found.sasl.user) == ("x", "bob")


def test_old_tools_have_no_context(monkeypatch: pytest.MonkeyPatch) -> None:
    add("prod", "--url", "p")
    monkeypatch.setenv("SLUICE_URL", "u")
    assert asked(program="qdstat").url.host == "0.0.0.0"
    with pytest.raises(SystemExit):
        asked("--context", "prod", program="qdstat")


def test_password_is_kept_as_reference_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add("a", "--url", "u", "--sasl-username", "x", "--sasl-password", "secret") == 1
    assert "must be file:PATH or env:NAME" in capsys.readouterr().err
    assert add("a", "--url", "x:secret@u") == 1
    assert "the URL has a password" in capsys.readouterr().err
    assert not contexts_file().exists()
    (folder / "pw").write_text("from file\n")
    add("file", "--url", "u", "--sasl-username", "x", "--sasl-password", f"file:{folder / 'pw'}")
    add("env", "--url", "u", "--sasl-username", "x", "--sasl-password", "env:PW")
    found = asked()
    assert found.sasl is not None
    assert found.sasl.password == "from file"
    with pytest.raises(ContextError, match="variable PW"):
        asked("--context", "env")
    monkeypatch.setenv("PW", "from variable")
    found = asked("--context", "env")
    assert found.sasl is not None
    assert found.sasl.password == "from variable"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["add", "b", "--url", "http://x"], "neither amqp nor amqps"),
        (["use", "none"], "there is no context 'none' (known: a)"),
        (["remove", "none"], "there is no context 'none'"),
        (["add", "a", "--url", "y"], "context 'a' exists: replace it with --force"),
    ],
)
def test_wrong_context_is_reported(words: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    add("a", "--url", "x")
    assert context.main(words) == 1
    assert reason in capsys.readouterr().err
    assert asked().url.host == "x"


def test_strange_name_survives_and_wrong_file_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    add('a "\n]\x7f', "--url", "x")
    assert asked("--context", 'a "\n]\x7f').url.host == "x"
    contexts_file().write_text('[contexts.a]\nsasl-password = "secret"\n')
    assert context.main(["list"]) == 1
    assert "contexts contain no passwords" in capsys.readouterr().err
    contexts_file().write_text("nonsense")
    assert context.main(["list"]) == 1
    assert f"{contexts_file()}: " in capsys.readouterr().err
