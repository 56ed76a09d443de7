"""Standard streams of commands: handling of descriptors closed at the start, and of output errors."""

import io
import os
import sys
from collections.abc import Callable
from typing import Final

# Modes of /dev/null in place of closed descriptors. Reading standard input and writing standard output fail, so a
# command whose output is lost does not report success. Diagnostics are discarded.
_MODES: Final = {0: os.O_WRONLY, 1: os.O_RDONLY, 2: os.O_RDWR}
_closed: Final[list[int]] = []  # descriptors that were closed


def open_missing() -> None:
    """Open /dev/null on closed descriptors among 0, 1 and 2, so that no socket or file gets their numbers."""
    for descriptor, mode in _MODES.items():
        try:
            os.fstat(descriptor)
        except OSError:
            _open_null(descriptor, mode)
            _closed.append(descriptor)
    # Python sets the streams of closed descriptors to None.
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for the life of the process
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115


def discard_missing() -> None:
    """Discard output to descriptors that were closed at the start. A router uses this, as it has its log."""
    for descriptor in _closed:
        _open_null(descriptor, os.O_RDWR)


def run_command(command: Callable[[], int]) -> int:
    """Run a command and return its exit code. If its output cannot be written, print the reason and return 1."""
    try:
        try:
            return command()
        finally:  # also if the command exits, as for --help
            sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
    except OSError as error:
        if can_write():
            raise
        drop_output()
        print(f"standard output: {error.strerror}", file=sys.stderr)
    return 1


def drop_output() -> None:
    """Discard all further and all buffered standard output, since writing it would fail again at exit."""
    _open_null(sys.stdout.fileno(), os.O_WRONLY)


def can_write() -> bool:
    """Return whether standard output accepts output."""
    try:
        sys.stdout.flush()
        os.write(sys.stdout.fileno(), b"")
    except io.UnsupportedOperation:
        return True  # output is kept in memory
    except OSError:
        return False
    return True


def _open_null(descriptor: int, mode: int) -> None:
    null = os.open(os.devnull, mode)
    if null != descriptor:
        os.dup2(null, descriptor)
        os.close(null)
    os.set_inheritable(descriptor, True)
