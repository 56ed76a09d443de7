"""A file of audit lines, replaced by a new one when it has its size."""

import errno
import os
import stat
import time
from collections.abc import Callable, Sequence
from typing import Final

from supervisor.audit.output import Written

MODE: Final = 0o640  # of a new file, less the umask: owner and group, as collectors need it
RETRY_SECONDS: Final = 10.0  # between two attempts to replace a file that cannot be replaced
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class AuditFile:
    """A file to append to. `most` octets, then it is renamed to PATH.1, and PATH.1 to PATH.2 … up to `keep` of them.

    A line is written whole or not at all: what a full disk took of it is taken back.
    """

    def __init__(self, path: str, most: int, keep: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Open the file. Raises OSError."""
        self.path: Final = path
        self.most = most
        self.keep = keep
        self._clock: Final = clock
        self._descriptor, self._size = _open(path)
        self._cut = False  # the last line is there in part: of a pipe or device nothing can be taken back
        self._moved = False  # the file has its other name, and there is none of this one yet
        self._retry = 0.0  # when replacing it is tried again

    def write(self, lines: Sequence[bytes]) -> Written:
        """See AuditOutput."""
        octets = b"".join(lines)
        warning = self._rotate() if self._full(len(octets)) else None
        text = b"\n" + octets if self._cut else octets
        done, fault = _write(self._descriptor, text)
        if done:
            self._cut = False
        taken = done - (len(text) - len(octets))  # of the lines
        count, whole = _whole(lines, taken)
        if taken > whole:
            self._take_back(whole)
        if self._size is not None:
            self._size += whole
        return Written(count, fault, warning)

    def _take_back(self, whole: int) -> None:
        try:
            if self._size is None:
                self._cut = True
            else:
                os.ftruncate(self._descriptor, self._size + whole)
        except OSError:
            self._cut = True

    def reopen(self) -> str | None:
        """See AuditOutput."""
        try:
            self._become(_open(self.path))
        except OSError as error:
            return f"it stays in its present file: {error.strerror}"
        return None

    def _full(self, octets: int) -> bool:
        """Return whether the file has to be replaced before so many octets are written."""
        size = self._size or 0
        return size > 0 and size + octets > self.most and self._clock() >= self._retry

    def _rotate(self) -> str | None:
        """Begin a new file. Return why that fails; then the lines stay in the present one."""
        try:
            if not self._moved:
                for number in range(self.keep - 1, 0, -1):
                    _rename(f"{self.path}.{number}", f"{self.path}.{number + 1}")
                _rename(self.path, f"{self.path}.1")
                self._moved = True
            self._become(_open(self.path))
        except OSError as error:
            self._retry = self._clock() + RETRY_SECONDS
            return f"it has its size and cannot be replaced: {error.strerror}"
        return None

    def _become(self, opened: tuple[int, int | None]) -> None:
        os.close(self._descriptor)
        self._descriptor, self._size = opened
        self._cut = self._moved = False

    def close(self) -> None:
        """See AuditOutput."""
        os.close(self._descriptor)


def _write(descriptor: int, octets: bytes) -> tuple[int, str | None]:
    """Write as much as possible; return how much that is, and why no more."""
    done = 0
    try:
        while done < len(octets):
            done += os.write(descriptor, octets[done:])
    except OSError as error:
        return done, error.strerror or "error"
    return done, None


def _whole(lines: Sequence[bytes], octets: int) -> tuple[int, int]:
    """Return how many of the lines so many octets are, and how long these are together."""
    count = size = 0
    for line in lines:
        if size + len(line) > octets:
            break
        count += 1
        size += len(line)
    return count, size


def _open(path: str) -> tuple[int, int | None]:
    """Return a descriptor and the size of the file, None of a pipe or device. Raises OSError."""
    descriptor = os.open(path, _FLAGS, MODE)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        return descriptor, None
    if found.st_mode & stat.S_IWOTH:
        os.close(descriptor)
        raise OSError(errno.EPERM, "everybody may write to it")
    return descriptor, found.st_size


def _rename(old: str, new: str) -> None:
    """Rename a file, if it is there. Raises OSError."""
    try:
        os.rename(old, new)
    except FileNotFoundError:
        return
