"""Look-up of passwords and tokens to which the configuration refers (management.md 2.9).

These are `saslPassword` and `proxyPassword` of a connector, `metricsToken` of a listener, and `password` of an
sslProfile.
"""

import errno
import os
import stat
from collections.abc import Container
from typing import Final, NamedTuple

from sluice.router.config.inherited import INHERITED, MOST_OCTETS, SecretError, first_line

MOST_OF_LINE: Final = 199  # octets read of the first line of a password file, as in Dispatch
CREDENTIALS: Final = "CREDENTIALS_DIRECTORY"  # variable set by systemd (systemd.exec(5))
NOT_IN_ENVIRONMENT: Final = "Failed to find a password in the environment variable"
PLAIN_TEXT: Final = "It is unsafe to provide plain text passwords in the config file"
_ELSEWHERE: Final = ("env", "file", "credential", "fd")


class Password(NamedTuple):
    """Password, and a log line about it, if any: (module, level, text)."""

    text: str
    remark: tuple[str, str, str] | None


def file_of(written: str) -> str | None:
    """Return the path of the file that contains the password; None if it is in no file. Reading it may block."""
    form, colon, rest = written.partition(":")
    if colon and form == "file":
        return rest
    if colon and form == "credential" and (directory := os.environ.get(CREDENTIALS)):
        return os.path.join(directory, rest)
    return None


def in_file(written: str) -> bool:
    """Return whether the password is in a file."""
    return file_of(written) is not None


def is_missing(written: str) -> bool:
    """Return whether the password refers to an environment variable that is not set."""
    return written.startswith("env:") and _in_environment(written) is None


def is_password_reference(written: str) -> bool:
    """Return whether this is a reference, and not the password itself."""
    return ":" in written and written.partition(":")[0] in _ELSEWHERE


def fault(written: str) -> str | None:
    """Return the reason why a password makes the configuration invalid, or None.

    As in Dispatch, missing files and variables are reported only when the password is used. A descriptor is read by
    this call.
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
    """Return the password that `written` refers to; if it cannot be read, `written` itself with an error to log.

    `forms` are the prefixes that precede the password itself, such as `pass` in `pass:TEXT`. security.md S-13.
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
    except (OSError, ValueError) as error:  # ValueError: invalid UTF-8, or a NUL in the path
        return Password(written, not_read(path, getattr(error, "strerror", None) or str(error)))


def _credential(name: str) -> str:
    """Return the first line of a credential passed by systemd. Raises SecretError."""
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise SecretError(f"'{name}' is not a valid name of a credential")
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
    """Return the first line read from the inherited descriptor with this number. Raises SecretError."""
    if not (number.isascii() and number.isdecimal()):
        raise SecretError(f"'{number}' is not the number of a descriptor")
    return INHERITED.descriptor(int(number))


def not_read(path: str, reason: str) -> tuple[str, str, str]:
    """Return the log line about a file that cannot be read."""
    return ("CONN_MGR", "error", f"Unable to open password file {path}, error: {reason}")


def open_regular(path: str, flags: int) -> int:
    """Open a file if it is a regular one; others could block. Raises OSError."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a regular file")
    return descriptor
