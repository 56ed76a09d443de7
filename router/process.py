"""What a process asks of the kernel for itself: its name, who may look into it, its rights, its share of the cores."""

import ctypes
import errno
import os
from typing import Any, Final

PR_SET_PDEATHSIG: Final = 1  # prctl(2)
PR_SET_DUMPABLE: Final = 4
PR_SET_NAME: Final = 15
PR_SET_NO_NEW_PRIVS: Final = 38

BEHIND: Final = 5  # added to the nice value of a process that makes way for others

CAP_DAC_OVERRIDE: Final = 1  # capabilities(7): as root, files and log files of other users can be opened
KEPT: Final = 1 << CAP_DAC_OVERRIDE
_CAPABILITIES_VERSION: Final = 0x20080522  # capget(2): two words for each set


SHORT_SLICE_NS: Final = 100_000  # the shortest that Linux has; 0.7 to 3 ms are usual
_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274}  # sched_setattr(2), which not every libc has
_NOT_HERE: Final = (errno.ENOSYS, errno.EPERM)  # a kernel without it, or a container that forbids it


class _Scheduling(ctypes.Structure):
    """struct sched_attr."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),  # of a normal thread: its slice
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    """32 capabilities each."""

    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def prctl(option: int, argument: Any) -> None:
    """Raises OSError."""
    zero = ctypes.c_ulong(0)
    _check(_libc().prctl(option, argument, zero, zero, zero), f"prctl option {option}")


def hide_memory() -> None:
    """No other process of the same user may look into this one, and it leaves no core dump. Raises OSError."""
    prctl(PR_SET_DUMPABLE, ctypes.c_ulong(0))


def forbid_new_rights() -> None:
    """Neither this process nor those that it starts gain rights by running a program. Raises OSError."""
    prctl(PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1))


def give_up_rights() -> None:
    """Keep no capability but KEPT, for good, here and in what this process forks. Raises OSError."""
    forbid_new_rights()
    libc = _libc()
    header, sets = _Header(_CAPABILITIES_VERSION, 0), (_Sets * 2)()
    _check(libc.capget(ctypes.byref(header), sets), "capget")
    for word, each in enumerate(sets):
        each.permitted &= KEPT >> 32 * word
        each.effective &= KEPT >> 32 * word
        each.inheritable = 0
    _check(libc.capset(ctypes.byref(header), sets), "capset")


def make_way() -> None:
    """Where cores are scarce, this thread and those that it starts leave more of them to other processes."""
    os.nice(BEHIND)


def come_soon() -> None:
    """Where this thread wakes up, it comes before others that have longer slices of a core; its share stays what it is.

    Linux 6.12 and later; elsewhere it changes nothing.
    """
    number = _SCHED_SETATTR.get(os.uname().machine)
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    wanted = _Scheduling(ctypes.sizeof(_Scheduling), os.SCHED_OTHER, 0, nice, 0, SHORT_SLICE_NS, 0, 0)
    if _libc().syscall(number, 0, ctypes.byref(wanted), 0) != 0 and ctypes.get_errno() not in _NOT_HERE:
        _check(-1, "sched_setattr")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
