"""Check whether another user can run this program, before the process permanently becomes that user.

Afterwards the interpreter starts other processes and imports further modules. Both fail if the user may not enter the
interpreter's folder, for example a Python in /root. The check forks a process, which becomes the user and tries.
"""

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NoReturn

from sluice.router.environment import child_environment

SECONDS: Final = 60.0  # time limit of the whole check; a file system may hang
MOST_OUTPUT: Final = 65536  # octets kept of the tested program's output
#: Modules that no router has loaded when it changes its user. Given as names, since this package must not import them.
TRIED_MODULES: Final = (
    *("encodings.ascii", "encodings.idna", "sluice.supervisor.auth.process"),
    "sluice.supervisor.telemetry.process",
)
_EXIT_FAILED: Final = 1


def find_obstacle(become: Callable[[], None]) -> str | None:
    """Return the reason why another user cannot run this program, or None.

    `become` turns the calling process into that user; it is called in a forked process. Raises OSError if the process
    cannot fork.
    """
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
    """Print the obstacle, or execute the interpreter, which imports TRIED_MODULES. Runs in the forked process."""
    try:
        become()
        blocked = next(_blocked(), None)
        if blocked is None:
            os.dup2(output, 1)
            os.dup2(output, 2)
            words = [sys.executable, "-P", "-c", f"import {', '.join(TRIED_MODULES)}"]
            os.execve(sys.executable, words, child_environment())
        os.write(output, blocked.encode("utf-8", "backslashreplace"))
    except OSError as error:
        os.write(output, f"{error.filename or sys.executable}: {error.strerror}".encode("utf-8", "backslashreplace"))
    finally:
        os._exit(_EXIT_FAILED)


def _blocked() -> Iterator[str]:
    """Yield a text for each program or folder that this process may not enter, read or run.

    For a path that cannot be reached, the text names the first folder that may not be entered.
    """
    programs = [os.path.realpath(sys.executable), sys.executable]
    folders = [str(Path(os.__file__).parent), *(path for path in sys.path if path), str(Path(__file__).parent)]
    for path in [*programs, *folders]:
        for folder in reversed(Path(path).absolute().parents):
            if os.path.lexists(folder) and not os.access(folder, os.X_OK):
                yield f"the user may not enter {folder}, on the way to {path}"
        if path in programs and not os.access(path, os.X_OK | os.R_OK):
            yield f"the user may not run {path}"
        elif os.path.exists(path) and not os.access(path, os.R_OK | (os.X_OK if os.path.isdir(path) else 0)):
            yield f"the user may not read {path}"


def _read(reading: int) -> bytes | None:
    """Read to the end of the pipe. Return None if the time limit passes first."""
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
