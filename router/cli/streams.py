"""Standard streams of commands: descriptors that were closed at the start, and output that cannot be written."""

import os
import sys
from collections.abc import Callable
from typing import Final

# What a closed descriptor becomes: reading standard input and writing standard output fail, so that a command whose
# output is lost does not claim success. Diagnostics vanish.
_MODES: Final = {0: os.O_WRONLY, 1: os.O_RDONLY, 2: os.O_RDWR}
_closed: Final[list[int]] = []  # descriptors that were closed


def open_missing() -> None:
    """Open /dev/null on each of the descriptors 0, 1 and 2 that is closed: no socket or file may get their numbers."""
    for descriptor, mode in _MODES.items():
        try:
            os.fstat(descriptor)
        except OSError:
            _open_null(descriptor, mode)
            _closed.append(descriptor)
    # Python leaves the streams of closed descriptors out.
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for the life of the process
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115


def discard_missing() -> None:
    """Let output to descriptors that were closed at the start vanish: a router writes its log elsewhere."""
    for descriptor in _closed:
        _open_null(descriptor, os.O_RDWR)


def checked(command: Callable[[], int]) -> int:
    """Run a command; return its exit code, or 1 if its output cannot be written. Then stderr names the reason."""
    try:
        try:
            return command()
        finally:  # also where the command exits, as for --help
            sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
    except OSError as error:
        if _can_write():
            raise
        drop_output()
        print(f"standard output: {error.strerror}", file=sys.stderr)
    return 1


def drop_output() -> None:
    """Discard what is written to standard output from now on, and what is buffered: it would fail again at the exit."""
    _open_null(sys.stdout.fileno(), os.O_WRONLY)


def _can_write() -> bool:
    try:
        sys.stdout.flush()
        os.write(sys.stdout.fileno(), b"")
    except OSError:
        return False
    return True


def _open_null(descriptor: int, mode: int) -> None:
    null = os.open(os.devnull, mode)
    if null != descriptor:
        os.dup2(null, descriptor)
        os.close(null)
    os.set_inheritable(descriptor, True)
