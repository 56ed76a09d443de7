"""Check whether another user can run this program, before the process becomes that user for good.

Afterwards the interpreter starts other processes, and loads modules when they are needed first: both fail in a folder
that the user may not enter, such as a Python in /root. A forked process becomes the user and tries.
"""

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NoReturn

from router.environment import child_environment

SECONDS: Final = 60.0  # for all of it: a file system may hang
MOST_OUTPUT: Final = 65536  # octets of what the program prints
#: Modules that no router has loaded when it changes its user; names, since this package imports none of them.
TRIED: Final = ("encodings.ascii", "encodings.idna", "supervisor.auth.process", "supervisor.telemetry.process")
_EXIT_FAILED: Final = 1


def find_obstacle(become: Callable[[], None]) -> str | None:
    """Find out why another user cannot run this program; None: that user can. become: turn this process into the user;
    called in a forked process. Raises OSError if there cannot be another process."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _try(become, writing)
    os.close(writing)
    try:
        printed = _read(reading)
        if printed is None:
            os.kill(pid, 9)
            printed = f"{sys.executable} does not start within {SECONDS:g} seconds".encode()
    finally:
        os.close(reading)
        _, status = os.waitpid(pid, 0)
    if status == 0:
        return None
    lines = printed.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"{sys.executable} ends with status {os.waitstatus_to_exitcode(status)}"


def _try(become: Callable[[], None], output: int) -> NoReturn:
    """In the forked process: print the obstacle, or become the interpreter, which imports what it may have to later."""
    try:
        become()
        blocked = next(_blocked(), None)
        if blocked is None:
            os.dup2(output, 1)
            os.dup2(output, 2)
            words = [sys.executable, "-P", "-c", f"import {', '.join(TRIED)}"]
            os.execve(sys.executable, words, child_environment())
        os.write(output, blocked.encode("utf-8", "backslashreplace"))
    except OSError as error:
        os.write(output, f"{error.filename or sys.executable}: {error.strerror}".encode("utf-8", "backslashreplace"))
    finally:
        os._exit(_EXIT_FAILED)


def _blocked() -> Iterator[str]:
    """Yield what this process may not enter, read or run, with the path of the first folder on the way."""
    programs = [os.path.realpath(sys.executable), sys.executable]
    folders = [str(Path(os.__file__).parent), *(path for path in sys.path if path), str(Path(__file__).parent)]
    for path in [*programs, *folders]:
        for folder in reversed(Path(path).absolute().parents):
            if os.path.lexists(folder) and not os.access(folder, os.X_OK):
                yield f"{folder} may not be entered, on the way to {path}"
        if path in programs and not os.access(path, os.X_OK | os.R_OK):
            yield f"{path} may not be run"
        elif os.path.exists(path) and not os.access(path, os.R_OK | (os.X_OK if os.path.isdir(path) else 0)):
            yield f"{path} may not be read"


def _read(reading: int) -> bytes | None:
    """Read to the end; None: there is no end in time."""
    found = b""
    poller = select.poll()
    poller.register(reading, select.POLLIN)
    until = time.monotonic() + SECONDS
    while poller.poll(max(0.0, until - time.monotonic()) * 1000):
        octets = os.read(reading, MOST_OUTPUT)
        if not octets:
            return found
        found = (found + octets)[-MOST_OUTPUT:]
    return None
