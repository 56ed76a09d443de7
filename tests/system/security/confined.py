"""Program that runs a command under a systemd unit's filters of system calls: `confined.py UNIT COMMAND...`.

Without a running systemd, a unit's options cannot be tested as they are. The program applies the options that can break
a router, in the way of systemd.exec(5): SystemCallFilter, MemoryDenyWriteExecute, RestrictAddressFamilies.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

LIBRARY = "libseccomp.so.2"
ALLOW, REFUSE = 0x7FFF0000, 0x00050000  # SCMP_ACT_ALLOW, SCMP_ACT_ERRNO
EQUAL, MASKED_EQUAL = 4, 7  # SCMP_CMP_EQ, SCMP_CMP_MASKED_EQ
FAMILIES = range(64)
SHM_EXEC = 0o100000


class Comparison(ctypes.Structure):
    """struct scmp_arg_cmp."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    )


class Filter:
    """Filter of system calls, in force for this process and its children after `load`."""

    def __init__(self, default: int) -> None:
        self._library = ctypes.CDLL(LIBRARY)
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(self._library.seccomp_init(ctypes.c_uint32(default)))

    def add(self, action: int, name: str, *comparisons: Comparison) -> None:
        """Add a rule; a call that this machine does not have is left out."""
        number = self._library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            array = (Comparison * len(comparisons))(*comparisons)
            action = ctypes.c_uint32(action).value
            check(self._library.seccomp_rule_add_array(self._context, action, number, len(comparisons), array))

    def load(self) -> None:
        check(self._library.seccomp_load(self._context))


def check(result: int) -> None:
    if result < 0:
        raise OSError(-result, os.strerror(-result))


def values(unit: str, option: str) -> list[str]:
    """Return the values of an option in a unit."""
    return re.findall(rf"^{option}=(.*)$", unit, re.MULTILINE)


def groups() -> dict[str, set[str]]:
    """Return the names of each group of system calls."""
    listed = subprocess.run(
        ["systemd-analyze", "syscall-filter", "--no-pager"], capture_output=True, text=True, check=True
    )
    found: dict[str, set[str]] = {}
    members: set[str] = set()
    for line in listed.stdout.splitlines():
        if line.startswith("@"):
            members = found.setdefault(line.strip(), set())
        elif line.strip() and not line.strip().startswith("#"):
            members.add(line.strip())
    return found


def expand(known: dict[str, set[str]], names: set[str]) -> set[str]:
    """Return the system calls of these names and groups."""
    own = {name for name in names if not name.startswith("@")}
    return own.union(*(expand(known, known[name]) for name in names - own))


def allowed_calls(unit: str) -> set[str]:
    """Return the system calls that a unit allows."""
    known = groups()
    allowed = expand(known, {"@default"})
    for value in values(unit, "SystemCallFilter"):
        names = expand(known, set(value.lstrip("~").split()))
        allowed = allowed - names if value.startswith("~") else allowed | names
    return allowed


def confine(unit: str) -> None:
    """Put the filters of a unit into force."""
    restricted = Filter(ALLOW)
    if values(unit, "MemoryDenyWriteExecute") == ["yes"]:
        both = mmap.PROT_WRITE | mmap.PROT_EXEC
        refused = REFUSE | errno.EPERM
        restricted.add(refused, "mmap", Comparison(2, MASKED_EQUAL, both, both))
        restricted.add(refused, "mprotect", Comparison(2, MASKED_EQUAL, mmap.PROT_EXEC, mmap.PROT_EXEC))
        restricted.add(refused, "pkey_mprotect", Comparison(2, MASKED_EQUAL, mmap.PROT_EXEC, mmap.PROT_EXEC))
        restricted.add(refused, "shmat", Comparison(2, MASKED_EQUAL, SHM_EXEC, SHM_EXEC))
    (families,) = values(unit, "RestrictAddressFamilies")
    allowed = {getattr(socket, name).value for name in families.split()}
    for family in set(FAMILIES) - allowed:
        restricted.add(REFUSE | errno.EAFNOSUPPORT, "socket", Comparison(0, EQUAL, family, 0))
    calls = Filter(REFUSE | errno.EPERM)
    for name in allowed_calls(unit) | {"seccomp", "prctl"}:  # systemd, too, needs these two after the filter
        calls.add(ALLOW, name)
    restricted.load()
    calls.load()


if __name__ == "__main__":
    confine(Path(sys.argv[1]).read_text("utf-8"))
    os.execv(sys.argv[2], sys.argv[2:])
