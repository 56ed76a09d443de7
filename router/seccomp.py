"""System call filter for processes that talk to clients: calls that no worker needs fail with EPERM.

The filter denies calls that help an attacker who controls the process: running programs, access to other processes, and
rarely used kernel interfaces. Everything else is allowed, so a new version of a library breaks nothing. The filter
costs each system call about 8 ns.
"""

import ctypes
import errno
import os
import struct
from typing import Final, NamedTuple

from sluice.router.process import set_no_new_privileges

PR_SET_SECCOMP: Final = 22  # prctl(2)
SECCOMP_MODE_FILTER: Final = 2

# Instructions of classic BPF (linux/bpf_common.h), and results of a filter (linux/seccomp.h).
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_KILL, _FAIL, _ALLOW = 0x80000000, 0x00050000 | errno.EPERM, 0x7FFF0000
_NUMBER_AT, _MACHINE_AT = 0, 4  # octets of struct seccomp_data
_OTHER_NUMBERS: Final = 0x40000000  # first number of the x32 calls on x86_64


class _Machine(NamedTuple):
    """Machine type. `audit` is its number in struct seccomp_data; `calls` are the numbers of the denied calls."""

    audit: int
    calls: tuple[int, ...]


# execve execveat ptrace process_vm_readv process_vm_writev pidfd_getfd bpf perf_event_open userfaultfd io_uring_setup
# io_uring_enter io_uring_register keyctl add_key request_key mount umount2 pivot_root chroot unshare setns
# open_by_handle_at init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff acct
# move_mount open_tree fsopen fsconfig fsmount
_MACHINES: Final = {
    "x86_64": _Machine(0xC000003E, (
        59, 322, 101, 310, 311, 438, 321, 298, 323, 425, 426, 427, 250, 248, 249, 165, 166, 155, 161, 272, 308, 304,
        175, 313, 176, 246, 320, 169, 167, 168, 163, 429, 428, 430, 431, 432,
    )),
    "aarch64": _Machine(0xC00000B7, (
        221, 281, 117, 270, 271, 438, 280, 241, 282, 425, 426, 427, 219, 217, 218, 40, 39, 41, 51, 97, 268, 265,
        105, 273, 106, 104, 294, 142, 224, 225, 89, 429, 428, 430, 431, 432,
    )),
}  # fmt: skip


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def deny_system_calls() -> bool:
    """Install the filter permanently for this thread and its future children.

    Return False if the kernel or the machine type has no filters. Raises OSError.
    """
    machine = _MACHINES.get(os.uname().machine)
    if machine is None:
        return False
    set_no_new_privileges()  # the kernel requires this before a filter is installed
    instructions = _instructions(machine)
    octets = ctypes.create_string_buffer(instructions, len(instructions))
    program = _Program(len(instructions) // 8, ctypes.addressof(octets))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) == 0:
        return True
    if ctypes.get_errno() in (errno.EINVAL, errno.ENOSYS):
        return False
    raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")


def _instructions(machine: _Machine) -> bytes:
    """Return the BPF program. An instruction is (code, skip if true, skip if false, operand)."""
    count = len(machine.calls)
    program = [
        (_LOAD, 0, 0, _MACHINE_AT),
        (_IF_EQUAL, 1, 0, machine.audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_IF_AT_LEAST, count + 1, 0, _OTHER_NUMBERS),
        *((_IF_EQUAL, count - at, 0, call) for at, call in enumerate(machine.calls)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _FAIL),
    ]
    return b"".join(struct.pack("=HBBI", *each) for each in program)
