"""Passwords of connectors: where `saslPassword` says that they are (management specification 2.9)."""
import errno
import os
import stat
from typing import Final, NamedTuple

MAX_OCTETS: Final = 199  # of the first line of a password file, as in Dispatch
PLAIN_TEXT: Final = "It is unsafe to provide plain text passwords in the config file"


class Password(NamedTuple):
    """A password, and what is to be said about it: (log module, level, text), if anything."""

    text: str
    remark: tuple[str, str, str] | None


def in_file(written: str) -> bool:
    """Whether a file has to be read, which may take long."""
    return written.startswith("file:")


def find(written: str) -> Password:
    """The password that `written` stands for; where it cannot be found, what is written itself."""
    form, colon, rest = written.partition(":")
    if colon and form == "env":
        value = os.environ.get(rest.lstrip())
        if value is None:
            return Password(written, ("ERROR", "error", "Failed to find a password in the environment variable"))
        return Password(value, None)
    if colon and form == "file":
        return _in_file(written, rest)
    return Password(rest if colon and form == "pass" else written, ("CONN_MGR", "warning", PLAIN_TEXT))


def _in_file(written: str, path: str) -> Password:
    try:
        with open(path, "rb", opener=_open) as file:
            line = file.readline(MAX_OCTETS)
        return Password(line.rstrip(b"\r\n").decode(), None)
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or a NUL in the path
        return Password(written, not_read(path, getattr(error, "strerror", None) or str(error)))


def not_read(path: str, reason: str) -> tuple[str, str, str]:
    """What is to be said of a file that cannot be read."""
    return ("CONN_MGR", "error", f"Unable to open password file {path}, error: {reason}")


def _open(path: str, flags: int) -> int:
    """Open a regular file, and nothing that waits for somebody else. Raises OSError."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a regular file")
    return descriptor
