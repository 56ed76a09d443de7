"""The environment of this process: what a process of the router needs of it, and how a variable is made to vanish.

The kernel shows the environment that a program was started with (proc(5), /proc/PID/environ) from where it lies in the
memory of the process, for processes that were forked from it, too. So a variable is erased there.
"""

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ENVIRONMENT_BEGIN: Final = 50  # fields of /proc/PID/stat, counted from 1
ENVIRONMENT_END: Final = 51
BEHIND_NAME: Final = 3  # the first field behind the name of the process, which may contain anything

# Names that the interpreter, the loader, OpenSSL, libsasl2 and the C library look at, and beginnings of such names.
NEEDED: Final = frozenset(("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR"))
NEEDED_BEGINNINGS: Final = (
    "PYTHON", "LC_", "LD_", "MALLOC_", "GLIBC_", "ASAN_", "UBSAN_", "LSAN_", "OPENSSL_", "SSL_CERT_", "SASL_", "KRB5",
)  # fmt: skip
OWN: Final = "SLUICE_"


class Area:
    """Memory that the kernel shows as the environment of this process. begin: its address; size: in octets."""

    def __init__(self, begin: int, size: int) -> None:
        self._begin: Final = begin
        self._size: Final = size

    def erase(self, names: Iterable[str]) -> None:
        """Overwrite the values of variables with zeros."""
        wanted = {os.fsencode(name) for name in names}
        at = self._begin
        for entry in ctypes.string_at(self._begin, self._size).split(b"\0"):
            name, equals, value = entry.partition(b"=")
            if equals and name in wanted:
                ctypes.memset(at + len(name) + 1, 0, len(value))
            at += len(entry) + 1


def find_area() -> Area | None:
    """Find the area, before anything is erased. None: there is no /proc, or it shows something else."""
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
    return Area(begin, size)


def is_needed(name: str) -> bool:
    """Whether libraries look at a variable, so that it is no secret."""
    return name in NEEDED or name.startswith(NEEDED_BEGINNINGS)


def child_environment() -> dict[str, str]:
    """Return the environment for a program that this one starts: what libraries need, and variables of the router.

    Modules are found where this one is, without the current folder.
    """
    found = {name: value for name, value in os.environ.items() if is_needed(name) or name.startswith(OWN)}
    here = str(Path(__file__).resolve().parent.parent)
    found["PYTHONPATH"] = os.pathsep.join(filter(None, [here, found.get("PYTHONPATH")]))
    return found


def reduce(area: Area | None) -> None:
    """Leave nothing in the environment of this process but that of its children."""
    kept = child_environment()
    names = [name for name in os.environ if name not in kept]
    for name in names:
        del os.environ[name]
    if area is not None:
        area.erase(names)
