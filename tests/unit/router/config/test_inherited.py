"""Secrets from environment variables and descriptors inherited at the start."""

import os

import pytest

from sluice.router.config import inherited
from sluice.router.config.inherited import MOST_OCTETS, InheritedSecrets, SecretError


def inherited_descriptor(octets, *, close=True):
    """Return an inheritable descriptor with these octets, as a service manager passes it on."""
    reading, writing = os.pipe()
    os.write(writing, octets)
    if close:
        os.close(writing)
    os.set_inheritable(reading, True)
    return reading


def test_descriptor_is_read_once_and_closed():
    secrets = InheritedSecrets()
    number = inherited_descriptor(b"secret\r\nmore")
    assert secrets.descriptor(number) == "secret"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
    other = inherited_descriptor(b"another")  # usually the same number
    secrets.seal()
    assert secrets.descriptor(number) == "secret"
    os.close(other)


def test_descriptor_after_the_start_is_left_alone():
    secrets = InheritedSecrets()
    secrets.seal()
    number = inherited_descriptor(b"secret")
    with pytest.raises(SecretError, match=f"descriptor {number} was not read when the router started"):
        secrets.descriptor(number)
    assert os.read(number, 10) == b"secret"
    os.close(number)


def test_descriptor_that_is_not_open_is_refused():
    number = inherited_descriptor(b"")
    os.close(number)
    for each in (number, 2**40):
        with pytest.raises(SecretError, match=f"descriptor {each}: Bad file descriptor"):
            InheritedSecrets().descriptor(each)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_standard_streams_are_refused(number):
    with pytest.raises(SecretError, match=f"descriptor {number} is a standard stream"):
        InheritedSecrets().descriptor(number)


def test_descriptor_of_the_router_itself_is_refused():
    reading, writing = os.pipe()  # not inheritable, like every descriptor opened by Python
    with pytest.raises(SecretError, match=f"descriptor {reading} was not inherited by the router at its start"):
        InheritedSecrets().descriptor(reading)
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(("size", "fits"), [(MOST_OCTETS, True), (MOST_OCTETS + 1, False)])
def test_descriptor_is_bounded(size, fits):
    number = inherited_descriptor(b"x" * size)
    if fits:
        assert InheritedSecrets().descriptor(number) == "x" * size
    else:
        with pytest.raises(SecretError, match=f"it has more than {MOST_OCTETS} octets"):
            InheritedSecrets().descriptor(number)


def test_descriptor_without_an_end_is_refused(monkeypatch):
    monkeypatch.setattr(inherited, "END_SECONDS", 0.01)
    reading, writing = os.pipe()
    os.set_inheritable(reading, True)
    with pytest.raises(SecretError, match=f"descriptor {reading} was not closed by its writer within"):
        InheritedSecrets().descriptor(reading)
    os.close(writing)


def test_descriptor_without_text_is_refused_without_showing_it():
    number = inherited_descriptor(b"se\xffcret")
    with pytest.raises(SecretError, match="^it is not UTF-8 text$"):
        InheritedSecrets().descriptor(number)


def test_variable_leaves_the_environment_once_sealed(monkeypatch):
    monkeypatch.setenv("SLUICE_TEST_SECRET", "secret")
    secrets = InheritedSecrets()
    assert secrets.variable("SLUICE_TEST_SECRET") == "secret"
    assert os.environ["SLUICE_TEST_SECRET"] == "secret"
    secrets.seal()
    assert "SLUICE_TEST_SECRET" not in os.environ
    assert secrets.variable("SLUICE_TEST_SECRET") == "secret"
    secrets.forget()
    assert secrets.variable("SLUICE_TEST_SECRET") is None


def test_variable_named_after_the_start_leaves_the_environment(monkeypatch):
    monkeypatch.setenv("SLUICE_TEST_SECRET", "secret")
    secrets = InheritedSecrets()
    secrets.seal()
    assert os.environ["SLUICE_TEST_SECRET"] == "secret"
    assert secrets.variable("SLUICE_TEST_SECRET") == "secret"
    assert "SLUICE_TEST_SECRET" not in os.environ


def test_variable_that_libraries_need_stays(monkeypatch):
    secrets = InheritedSecrets()
    secrets.seal()
    assert secrets.variable("PATH") == os.environ["PATH"]
