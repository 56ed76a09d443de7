"""Process attributes set through system calls: dumpability, capabilities, nice value, scheduling slice."""

import ctypes
import errno
import os
from typing import Any, Final

PR_SET_PDEATHSIG: Final = 1  # prctl(2)
PR_SET_DUMPABLE: Final = 4
PR_SET_NAME: Final = 15
PR_SET_NO_NEW_PRIVS: Final = 38
_OPTIONS: Final = {
    PR_SET_PDEATHSIG: "PR_SET_PDEATHSIG",
    PR_SET_DUMPABLE: "PR_SET_DUMPABLE",
    PR_SET_NAME: "PR_SET_NAME",
    PR_SET_NO_NEW_PRIVS: "PR_SET_NO_NEW_PRIVS",
}

BACKGROUND_NICE: Final = 5  # increment of the nice value of background processes

CAP_DAC_OVERRIDE: Final = 1  # capabilities(7): lets root open files and log files of other users
KEPT_CAPABILITIES: Final = 1 << CAP_DAC_OVERRIDE
_CAPABILITIES_VERSION: Final = 0x20080522  # capget(2): two words for each set


SHORT_SLICE_NS: Final = 100_000  # shortest scheduling slice that Linux allows; 0.7 to 3 ms are usual
_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274}  # number of sched_setattr(2), which not every libc wraps
_NOT_HERE: Final = (errno.ENOSYS, errno.EPERM)  # the kernel lacks the call, or the container forbids it


class _Scheduling(ctypes.Structure):
    """struct sched_attr."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),  # scheduling slice of a SCHED_OTHER thread, ns
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    """struct __user_cap_data_struct: three sets of 32 capabilities each."""

    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def prctl(option: int, argument: Any) -> None:
    """Call prctl(2). Raises OSError."""
    zero = ctypes.c_ulong(0)
    _check(_libc().prctl(option, argument, zero, zero, zero), f"prctl({_OPTIONS.get(option, option)})")


def forbid_memory_access() -> None:
    """Forbid core dumps, and access to this process's memory by other processes of the same user. Raises OSError."""
    prctl(PR_SET_DUMPABLE, ctypes.c_ulong(0))


def set_no_new_privileges() -> None:
    """Prevent this process and its children from gaining privileges by running a program. Raises OSError."""
    prctl(PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1))


def drop_capabilities() -> None:
    """Drop all capabilities but KEPT_CAPABILITIES for good, in this process and its future children. Raises OSError."""
    set_no_new_privileges()
    libc = _libc()
    header, sets = _Header(_CAPABILITIES_VERSION, 0), (_Sets * 2)()
    _check(libc.capget(ctypes.byref(header), sets), "capget")
    for word, each in enumerate(sets):
        each.permitted &= KEPT_CAPABILITIES >> 32 * word
        each.effective &= KEPT_CAPABILITIES >> 32 * word
        each.inheritable = 0
    _check(libc.capset(ctypes.byref(header), sets), "capset")


def raise_nice_value() -> None:
    """Raise the nice value of this thread and its future children, so that other processes get scarce cores first."""
    os.nice(BACKGROUND_NICE)


def shorten_scheduling_slice() -> None:
    """Give this thread the shortest scheduling slice: when it wakes up, it runs before threads with longer slices.

    The thread's share of a core stays the same. Effective on Linux 6.12 and later; without effect elsewhere.
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
