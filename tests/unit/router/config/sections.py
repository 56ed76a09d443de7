"""Sections of a configuration file as text, and the errors and warnings about them."""

import pytest

from sluice.router.config.errors import ConfigError
from sluice.router.config.load import load_text

LONG = "org.apache.qpid.dispatch."


def section(name, *lines):
    return "\n".join([f"{name} {{", *lines, "}", ""])


def errors(text, path="x.conf"):
    """Return (line, message) of each error of a configuration that must be refused."""
    with pytest.raises(ConfigError) as caught:
        load_text(path, text)
    return [(error.line, error.message) for error in caught.value.errors]


def warnings(text):
    """Return the warnings of a configuration that must be accepted."""
    return load_text("x.conf", text).warnings


def listener(*lines):
    return load_text("x.conf", section("listener", *lines)).listeners[0]


def address(*lines):
    return load_text("x.conf", section("address", *lines)).addresses[0]
