"""Passwords, where `saslPassword` of a connector or `password` of an sslProfile says they are (management.md 2.9)."""

import errno
import os
import stat
from collections.abc import Container
from typing import Final, NamedTuple

MAX_OCTETS: Final = 199  # of the first line of a password file, as in Dispatch
NOT_IN_ENVIRONMENT: Final = "Failed to find a password in the environment variable"
PLAIN_TEXT: Final = "It is unsafe to provide plain text passwords in the config file"


class Password(NamedTuple):
    """A password, and a log line about it, if any: (module, level, text)."""

    text: str
    remark: tuple[str, str, str] | None


def in_file(written: str) -> bool:
    """Whether a file has to be read, which may take a while."""
    return written.startswith("file:")


def is_missing(written: str) -> bool:
    """Whether it is to be in the environment, and is not."""
    return written.startswith("env:") and _in_environment(written) is None


def find(written: str, forms: Container[str] = ("pass",)) -> Password:
    """The password that `written` stands for; where it cannot be found, what is written itself.

    forms: those that have the text itself behind a colon.
    """
    form, colon, rest = written.partition(":")
    if colon and form == "env":
        value = _in_environment(written)
        return Password(written, ("ERROR", "error", NOT_IN_ENVIRONMENT)) if value is None else Password(value, None)
    if colon and form == "file":
        return _in_file(written, rest)
    return Password(rest if colon and form in forms else written, ("CONN_MGR", "warning", PLAIN_TEXT))


def _in_environment(written: str) -> str | None:
    return os.environ.get(written.partition(":")[2].lstrip())


def _in_file(written: str, path: str) -> Password:
    try:
        with open(path, "rb", opener=open_regular) as file:
            line = file.readline(MAX_OCTETS)
        return Password(line.rstrip(b"\r\n").decode(), None)
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or a NUL in the path
        return Password(written, not_read(path, getattr(error, "strerror", None) or str(error)))


def not_read(path: str, reason: str) -> tuple[str, str, str]:
    """The log line about a file that cannot be read."""
    return ("CONN_MGR", "error", f"Unable to open password file {path}, error: {reason}")


def open_regular(path: str, flags: int) -> int:
    """Open a regular file, anything else could block. Raises OSError."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a regular file")
    return descriptor
