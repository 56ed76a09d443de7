"""Passwords: the places where they are looked up, and the remarks about them. management.md 2.9."""

import os

import pytest

from sluice.router.config.password import PLAIN_TEXT, fault, file_of, find, is_missing, is_password_reference

UNSAFE = ("CONN_MGR", "warning", PLAIN_TEXT)


@pytest.mark.parametrize(
    ("written", "text"),
    [("secret", "secret"), ("pass:secret", "secret"), ("pass:", ""), ("literal:x", "literal:x"), ("env", "env")],
)
def test_password_in_file_is_unsafe(written, text):
    assert find(written) == (text, UNSAFE)


# security.md S-13.
def test_password_forms_with_prefix_are_parsed():
    assert find("literal:a:b", ("pass", "literal")) == ("a:b", UNSAFE)


def test_password_is_read_from_variable(monkeypatch):
    monkeypatch.setenv("SLUICE_TEST_PASSWORD", "secret")
    assert find("env:  SLUICE_TEST_PASSWORD") == ("secret", None)


def test_password_variable_that_is_unset_is_reported(monkeypatch):
    monkeypatch.delenv("SLUICE_TEST_PASSWORD", raising=False)
    remark = ("ERROR", "error", "Failed to find a password in the environment variable")
    assert find("env:SLUICE_TEST_PASSWORD") == ("env:SLUICE_TEST_PASSWORD", remark)
    assert is_missing("env: SLUICE_TEST_PASSWORD")
    assert not is_missing("SLUICE_TEST_PASSWORD")


@pytest.mark.parametrize("octets", [b"secret", b"secret\n", b"secret\r\nnot this\n"])
def test_password_is_first_line_of_file(tmp_path, octets):
    path = tmp_path / "password"
    path.write_bytes(octets)
    assert find(f"file:{path}") == ("secret", None)


def test_password_line_too_long_is_cut(tmp_path):
    path = tmp_path / "password"
    path.write_bytes(b"x" * 500)
    assert find(f"file:{path}").text == "x" * 199


def test_password_file_that_is_missing_is_reported(tmp_path):
    path = tmp_path / "none"
    text = f"Unable to open password file {path}, error: No such file or directory"
    assert find(f"file:{path}") == (f"file:{path}", ("CONN_MGR", "error", text))


def test_password_file_must_be_regular(tmp_path):
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


@pytest.fixture
def credentials(tmp_path, monkeypatch):
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    return tmp_path


def test_password_is_read_from_credential(credentials):
    (credentials / "broker").write_bytes(b"secret\nmore")
    assert find("credential:broker") == ("secret", None)
    assert fault("credential:broker") is None
    assert file_of("credential:broker") == f"{credentials}/broker"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/shadow", "a\0b"])
def test_credential_name_that_is_invalid_is_refused(credentials, name):
    assert fault(f"credential:{name}") == f"'{name}' is not a valid name of a credential"


def test_missing_credential_is_reported_with_path(credentials):
    text = f"there is no credential 'broker': {credentials}/broker: No such file or directory"
    assert fault("credential:broker") == text
    remark = ("CONN_MGR", "error", f"Unable to find a password: {text}")
    assert find("credential:broker") == ("credential:broker", remark)


def test_missing_credentials_directory_is_reported(monkeypatch):
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    told = fault("credential:broker")
    assert told is not None
    assert told.startswith("there are no credentials: CREDENTIALS_DIRECTORY is not set")
    assert file_of("credential:broker") is None


def test_credential_too_long_is_refused(credentials):
    (credentials / "broker").write_bytes(b"x" * 5000)
    assert fault("credential:broker") == "credential 'broker': it has more than 4096 octets"


def test_password_is_read_from_descriptor():
    reading, writing = os.pipe()
    os.write(writing, b"secret\n")
    os.close(writing)
    os.set_inheritable(reading, True)
    assert fault(f"fd:{reading}") is None
    assert find(f"fd:{reading}") == ("secret", None)


@pytest.mark.parametrize("written", ["fd:", "fd:x", "fd:-3", "fd: 3", "fd:٣"])
def test_invalid_descriptor_number_is_refused(written):
    assert fault(written) == f"'{written[3:]}' is not the number of a descriptor"


@pytest.mark.parametrize("written", ["secret", "pass:fd:3", "file:/nowhere", "env:SLUICE_TEST_NOTHING"])
def test_password_forms_without_check_are_accepted(written):
    assert fault(written) is None


@pytest.mark.parametrize(("written", "elsewhere"), [("fd:3", True), ("env:X", True), ("fd", False), ("pass:x", False)])
def test_password_reference_is_distinguished_from_password(written, elsewhere):
    assert is_password_reference(written) is elsewhere
