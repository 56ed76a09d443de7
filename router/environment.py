"""Environment variables of this process: reduction to those that processes of the router need, and erasure.

The kernel shows the environment that a program was started with in /proc/PID/environ (proc(5)). It reads it from the
memory of the process, also for forked processes. Secrets in variables are therefore overwritten in that memory.
"""

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

# Fields of /proc/PID/stat, counted from 1. BEHIND_NAME is the first field after the process name, which may contain
# any character.
ENVIRONMENT_BEGIN: Final = 50
ENVIRONMENT_END: Final = 51
BEHIND_NAME: Final = 3

# Variables read by the interpreter, the loader, OpenSSL, libsasl2, the C library and the log: names, and prefixes of
# names.
NEEDED: Final = frozenset(("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "JOURNAL_STREAM"))
NEEDED_BEGINNINGS: Final = (
    "PYTHON", "LC_", "LD_", "MALLOC_", "GLIBC_", "ASAN_", "UBSAN_", "LSAN_", "OPENSSL_", "SSL_CERT_", "SASL_", "KRB5",
)  # fmt: skip
OWN_PREFIX: Final = "SLUICE_"


class EnvironmentMemory:
    """Memory that the kernel shows as the environment of this process. `begin` is its address, `size` in octets."""

    def __init__(self, begin: int, size: int) -> None:
        self._begin: Final = begin
        self._size: Final = size

    def erase(self, names: Iterable[str]) -> None:
        """Overwrite the values of these variables with zeros."""
        wanted = {os.fsencode(name) for name in names}
        at = self._begin
        for entry in ctypes.string_at(self._begin, self._size).split(b"\0"):
            name, equals, value = entry.partition(b"=")
            if equals and name in wanted:
                ctypes.memset(at + len(name) + 1, 0, len(value))
            at += len(entry) + 1


def find_environment_memory() -> EnvironmentMemory | None:
    """Find the environment's memory, before anything is erased. Return None if /proc is missing or differs from it."""
    try:
        with open("/proc/self/stat", "rb") as stat, open("/proc/self/environ", "rb") as environ:
            fields = stat.read().rpartition(b")")[2].split()
            shown = environ.read()
    except OSError:
        return None
    begin = int(fields[ENVIRONMENT_BEGIN - BEHIND_NAME])
    size = int(fields[ENVIRONMENT_END - BEHIND_NAME]) - begin
    if begin == 0 or size <= 0 or ctypes.string_at(begin, min(len(shown), size)) != shown[:size]:
        return None
    return EnvironmentMemory(begin, size)


def is_needed(name: str) -> bool:
    """Return whether libraries read a variable. Such variables hold no secrets."""
    return name in NEEDED or name.startswith(NEEDED_BEGINNINGS)


def child_environment() -> dict[str, str]:
    """Return the environment for child processes: variables that libraries need, and variables of the router.

    `PYTHONPATH` contains the folder of this package, so modules are found without the current folder.
    """
    found = {name: value for name, value in os.environ.items() if is_needed(name) or name.startswith(OWN_PREFIX)}
    here = str(Path(__file__).resolve().parent.parent)
    found["PYTHONPATH"] = os.pathsep.join(filter(None, [here, found.get("PYTHONPATH")]))
    return found


def reduce_environment(area: EnvironmentMemory | None) -> None:
    """Remove all variables that child processes do not need from the environment, and erase their values in `area`."""
    kept = child_environment()
    names = [name for name in os.environ if name not in kept]
    for name in names:
        del os.environ[name]
    if area is not None:
        area.erase(names)
