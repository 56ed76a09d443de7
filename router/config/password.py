"""Passwords and tokens, where the configuration says they are (management.md 2.9).

`saslPassword` and `proxyPassword` of a connector, `metricsToken` of a listener, and `password` of an sslProfile.
"""

import errno
import os
import stat
from collections.abc import Container
from typing import Final, NamedTuple

from router.config.inherited import INHERITED, MOST_OCTETS, SecretError, first_line

MOST_OF_LINE: Final = 199  # octets of the first line of a password file, as in Dispatch
CREDENTIALS: Final = "CREDENTIALS_DIRECTORY"  # of systemd (systemd.exec(5))
NOT_IN_ENVIRONMENT: Final = "Failed to find a password in the environment variable"
PLAIN_TEXT: Final = "It is unsafe to provide plain text passwords in the config file"
_ELSEWHERE: Final = ("env", "file", "credential", "fd")


class Password(NamedTuple):
    """A password, and a log line about it, if any: (module, level, text)."""

    text: str
    remark: tuple[str, str, str] | None


def file_of(written: str) -> str | None:
    """The path of the file that has to be read, which may take a while; None: it is in no file."""
    form, colon, rest = written.partition(":")
    if colon and form == "file":
        return rest
    if colon and form == "credential" and (directory := os.environ.get(CREDENTIALS)):
        return os.path.join(directory, rest)
    return None


def in_file(written: str) -> bool:
    """Whether a file has to be read."""
    return file_of(written) is not None


def is_missing(written: str) -> bool:
    """Whether it is to be in the environment, and is not."""
    return written.startswith("env:") and _in_environment(written) is None


def is_elsewhere(written: str) -> bool:
    """Whether this is a place, and not the password itself."""
    return ":" in written and written.partition(":")[0] in _ELSEWHERE


def fault(written: str) -> str | None:
    """Return why the configuration cannot be used with this; None if it can.

    Files and variables that are missing are told of when the password is used, as in Dispatch. A descriptor is read.
    """
    form, colon, rest = written.partition(":")
    if not colon:
        return None
    if form == "env":
        _in_environment(written)
        return None
    try:
        if form == "credential":
            _credential(rest)
        elif form == "fd":
            _descriptor(rest)
    except SecretError as error:
        return str(error)
    return None


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
    if colon and form in ("credential", "fd"):
        try:
            return Password(_credential(rest) if form == "credential" else _descriptor(rest), None)
        except SecretError as error:
            return Password(written, ("CONN_MGR", "error", f"Unable to find a password: {error}"))
    return Password(rest if colon and form in forms else written, ("CONN_MGR", "warning", PLAIN_TEXT))


def _in_environment(written: str) -> str | None:
    return INHERITED.variable(written.partition(":")[2].lstrip())


def _in_file(written: str, path: str) -> Password:
    try:
        with open(path, "rb", opener=open_regular) as file:
            line = file.readline(MOST_OF_LINE)
        return Password(line.rstrip(b"\r\n").decode(), None)
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or a NUL in the path
        return Password(written, not_read(path, getattr(error, "strerror", None) or str(error)))


def _credential(name: str) -> str:
    """The first line of a credential that systemd has handed over. Raises SecretError."""
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise SecretError(f"'{name}' is no name of a credential")
    directory = os.environ.get(CREDENTIALS)
    if not directory:
        text = f"there are no credentials: {CREDENTIALS} is not set"
        raise SecretError(f"{text} (LoadCredential={name}:PATH in the unit)")
    path = os.path.join(directory, name)
    try:
        with open(path, "rb", opener=open_regular) as file:
            return first_line(file.read(MOST_OCTETS + 1))
    except OSError as error:
        raise SecretError(f"there is no credential '{name}': {path}: {error.strerror}") from error
    except SecretError as error:
        raise SecretError(f"credential '{name}': {error}") from None


def _descriptor(number: str) -> str:
    """Raises SecretError."""
    if not (number.isascii() and number.isdecimal()):
        raise SecretError(f"'{number}' is no number of a descriptor")
    return INHERITED.descriptor(int(number))


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
