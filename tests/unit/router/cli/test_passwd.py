"""`sluice passwd`: the written file, and refused input."""

import io
import os
import stat
import sys

import pytest

from sluice.router.cli import passwd
from sluice.router.sasl import users
from sluice.router.sasl.mechanism import Success
from sluice.router.sasl.simple import PlainServer

FEW = ["--iterations", "4096"]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    def call(*words, password="secret", file=None):
        monkeypatch.setattr(sys, "stdin", io.StringIO(password + "\n"))
        status = passwd.main([str(file or tmp_path / "users"), *words])
        return status, capsys.readouterr().err

    return call


def log_in(path, user, password):
    answer = PlainServer(users.read(str(path))).step(b"\0" + user.encode() + b"\0" + password.encode())
    return isinstance(answer, Success)


def test_user_is_created_changed_and_deleted(run, tmp_path):
    path = tmp_path / "users"
    assert run("guest", *FEW) == (0, "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert log_in(path, "guest", "secret")
    assert users.read(str(path)).mechanisms == ["SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1"]
    key = users.read(str(path)).key
    assert run("guest", *FEW, "--mechanisms", "SCRAM-SHA-256", password="other")[0] == 0
    assert users.read(str(path)).mechanisms == ["SCRAM-SHA-256"]
    assert not log_in(path, "guest", "secret")
    assert log_in(path, "guest", "other")
    assert "other" not in path.read_text()
    assert run("a b", *FEW)[0] == 0
    assert sorted(users.read(str(path)).users) == ["a b", "guest"]
    assert run("guest", "--delete")[0] == 0
    assert list(users.read(str(path)).users) == ["a b"]
    assert users.read(str(path)).key == key
    assert os.listdir(tmp_path) == ["users"]


def test_file_mode_and_symbolic_link_are_kept(run, tmp_path):
    path, link = tmp_path / "users", tmp_path / "link"
    run("guest", *FEW)
    path.chmod(0o640)
    link.symlink_to(path)
    assert run("other", *FEW, file=link)[0] == 0
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(users.read(str(path)).users) == ["guest", "other"]


@pytest.mark.parametrize(
    ("words", "password", "text"),
    [
        (["guest"], "", "the password is empty"),
        (["guest"], "p" * 2000, "more than 1024 octets"),
        (["guest"], "p\x07", "the password cannot be used"),
        (["\x07"], "secret", "the name cannot be used"),
        ([""], "secret", "the name is empty"),
        (["guest", "--mechanisms", "PLAIN"], "secret", "mechanisms must be among"),
        (["guest", "--delete"], "secret", "No such file"),
    ],
)
def test_invalid_input_is_refused(run, tmp_path, words, password, text):
    status, error = run(*words, password=password)
    assert status == 1
    assert text in error
    assert os.listdir(tmp_path) == []


def test_unreadable_file_is_left_unchanged(run, tmp_path):
    path = tmp_path / "users"
    path.write_text("guest secret\n")
    status, error = run("other", *FEW)
    assert (status, path.read_text()) == (1, "guest secret\n")
    assert "line 1: unknown mechanism" in error


def test_deletion_of_unknown_user_is_refused(run, tmp_path):
    run("guest", *FEW)
    before = (tmp_path / "users").read_text()
    status, error = run("other", "--delete")
    assert status == 1
    assert "there is no user 'other'" in error
    assert (tmp_path / "users").read_text() == before


def test_iterations_below_minimum_are_refused(run):
    with pytest.raises(SystemExit):
        run("guest", "--iterations", "1")
