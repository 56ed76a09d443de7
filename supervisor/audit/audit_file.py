"""Audit output to a file with rotation by size."""

import errno
import os
import stat
import time
from collections.abc import Callable, Sequence
from typing import Final

from sluice.supervisor.audit.output import WriteResult

MODE: Final = 0o640  # mode of a new file, less the umask; the group may read it, as log collectors need
RETRY_SECONDS: Final = 10.0  # delay before rotation is tried again after it has failed
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class AuditFile:
    """Audit file opened for appending.

    At `most` octets PATH is renamed to PATH.1, PATH.1 to PATH.2, and so on; `keep` old files are kept.

    Each line is written completely or not at all: if a full disk takes only part of a line, the file is truncated to
    the end of the line before.
    """

    def __init__(self, path: str, most: int, keep: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Open the file. Raises OSError. most: maximum size in octets. keep: number of old files."""
        self.path: Final = path
        self.most = most
        self.keep = keep
        self._clock: Final = clock
        self._descriptor, self._size = _open(path)
        self._cut = False  # True: part of a line was written and cannot be truncated (a pipe or device, or an error)
        self._moved = False  # True: the file was renamed to PATH.1, and no new file has been opened yet
        self._retry = 0.0  # time by `clock` before which rotation is not tried again

    def write(self, lines: Sequence[bytes]) -> WriteResult:
        """See AuditOutput."""
        octets = b"".join(lines)
        warning = self._rotate() if self._full(len(octets)) else None
        text = b"\n" + octets if self._cut else octets
        done, fault = _write(self._descriptor, text)
        if done:
            self._cut = False
        taken = done - (len(text) - len(octets))  # written octets, without the end of line after a cut line
        count, whole = _complete_lines(lines, taken)
        if taken > whole:
            self._truncate_partial_line(whole)
        if self._size is not None:
            self._size += whole
        return WriteResult(count, fault, warning)

    def _truncate_partial_line(self, whole: int) -> None:
        """Truncate the file after the `whole` octets of complete lines that were written last."""
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
            return f"its file cannot be reopened, so its lines still go to the old file: {error.strerror}"
        return None

    def _full(self, octets: int) -> bool:
        """True if the file has to be rotated before `octets` more octets are written."""
        size = self._size or 0
        return size > 0 and size + octets > self.most and self._clock() >= self._retry

    def _rotate(self) -> str | None:
        """Rename the file and open a new one. On failure return the reason; the present file stays in use."""
        try:
            if not self._moved:
                for number in range(self.keep - 1, 0, -1):
                    _rename(f"{self.path}.{number}", f"{self.path}.{number + 1}")
                _rename(self.path, f"{self.path}.1")
                self._moved = True
            self._become(_open(self.path))
        except OSError as error:
            self._retry = self._clock() + RETRY_SECONDS
            return f"its file has reached maxSize and cannot be rotated, so it grows on: {error.strerror}"
        return None

    def _become(self, opened: tuple[int, int | None]) -> None:
        """Replace the descriptor and the size."""
        os.close(self._descriptor)
        self._descriptor, self._size = opened
        self._cut = self._moved = False

    def close(self) -> None:
        """See AuditOutput."""
        os.close(self._descriptor)


def _write(descriptor: int, octets: bytes) -> tuple[int, str | None]:
    """Write as many octets as possible. Returns their number, and the reason for writing no more (None: all)."""
    done = 0
    try:
        while done < len(octets):
            done += os.write(descriptor, octets[done:])
    except OSError as error:
        return done, error.strerror or "error"
    return done, None


def _complete_lines(lines: Sequence[bytes], octets: int) -> tuple[int, int]:
    """Return the number of lines that are complete within the first `octets` octets, and their size in octets."""
    count = size = 0
    for line in lines:
        if size + len(line) > octets:
            break
        count += 1
        size += len(line)
    return count, size


def _open(path: str) -> tuple[int, int | None]:
    """Open a file for appending. Returns its descriptor and size; size None: a pipe or device. Raises OSError.

    A file that everybody may write to is refused.
    """
    descriptor = os.open(path, _FLAGS, MODE)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        return descriptor, None
    if found.st_mode & stat.S_IWOTH:
        os.close(descriptor)
        raise OSError(errno.EPERM, "the file is writable for everybody")
    return descriptor, found.st_size


def _rename(old: str, new: str) -> None:
    """Rename a file if it exists. Raises OSError."""
    try:
        os.rename(old, new)
    except FileNotFoundError:
        return
