"""Where a password is found, and what is said about that."""

import os

import pytest

from router.config.password import PLAIN_TEXT, find, is_missing

UNSAFE = ("CONN_MGR", "warning", PLAIN_TEXT)


@pytest.mark.parametrize(
    ("written", "text"),
    [("secret", "secret"), ("pass:secret", "secret"), ("pass:", ""), ("literal:x", "literal:x"), ("env", "env")],
)
def test_a_password_in_the_file_is_unsafe(written, text):
    assert find(written) == (text, UNSAFE)


def test_forms_that_have_the_text_behind_a_colon():
    assert find("literal:a:b", ("pass", "literal")) == ("a:b", UNSAFE)


def test_a_variable(monkeypatch):
    monkeypatch.setenv("SLUICE_TEST_PASSWORD", "secret")
    assert find("env:  SLUICE_TEST_PASSWORD") == ("secret", None)


def test_a_variable_that_is_not_set(monkeypatch):
    monkeypatch.delenv("SLUICE_TEST_PASSWORD", raising=False)
    remark = ("ERROR", "error", "Failed to find a password in the environment variable")
    assert find("env:SLUICE_TEST_PASSWORD") == ("env:SLUICE_TEST_PASSWORD", remark)
    assert is_missing("env: SLUICE_TEST_PASSWORD")
    assert not is_missing("SLUICE_TEST_PASSWORD")


@pytest.mark.parametrize("octets", [b"secret", b"secret\n", b"secret\r\nnot this\n"])
def test_the_first_line_of_a_file(tmp_path, octets):
    path = tmp_path / "password"
    path.write_bytes(octets)
    assert find(f"file:{path}") == ("secret", None)


def test_a_line_that_is_too_long_is_cut(tmp_path):
    path = tmp_path / "password"
    path.write_bytes(b"x" * 500)
    assert find(f"file:{path}").text == "x" * 199


def test_a_file_that_cannot_be_read(tmp_path):
    path = tmp_path / "none"
    text = f"Unable to open password file {path}, error: No such file or directory"
    assert find(f"file:{path}") == (f"file:{path}", ("CONN_MGR", "error", text))


def test_only_regular_files_are_read(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader, writer = os.pipe()
    for path in (fifo, tmp_path, f"/dev/fd/{reader}", "/dev/zero"):
        found = find(f"file:{path}")
        assert found.text == f"file:{path}"
        assert found.remark is not None
        assert found.remark[2].startswith(f"Unable to open password file {path}, error: ")
    os.close(reader)
    os.close(writer)
