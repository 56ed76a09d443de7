"""Fault injection for allocations and system calls of this project's compiled modules; see faults.h.

A pattern has one letter for each call of a function. At its end it is repeated.

    .  unchanged      a  EAGAIN      i  EINTR      x  ECONNRESET
    1  at most one octet, or one event             f  few octets: one to seven
"""
from libc.stdint cimport uint64_t

import sys

cdef extern from "faults.h" nogil:
    enum:
        CALL_RECV
        CALL_SEND
        CALL_WAIT
        CALL_WRITE
        CALL_KINDS
    struct Calls:
        const char* pattern
        size_t size
        size_t at
        uint64_t changed
    Calls[4] faults_calls
    uint64_t faults_allocations
    uint64_t faults_first
    uint64_t faults_count
    uint64_t faults_failed
    int faults_install(const char* path)

KINDS = {"recv": CALL_RECV, "send": CALL_SEND, "epoll_wait": CALL_WAIT, "write": CALL_WRITE}
PATTERNS = {}                  # by kind; keeps the octets alive that C code reads


def install():
    """Replace the C library functions in all loaded compiled modules. Return the number of replaced imports."""
    found = 0
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None) or ""
        if name.startswith(("sluice.router.", "sluice.workers.")) and path.endswith(".so") and name != __name__:
            count = faults_install(path.encode())
            if count < 0:
                raise RuntimeError(f"{path} is not among the loaded modules")
            found += count
    return found


def script(**patterns):
    """Set the patterns of recv, send, epoll_wait and write (to an eventfd). Functions not named are unchanged."""
    for name, kind in KINDS.items():
        pattern = patterns.pop(name, "").encode()
        PATTERNS[kind] = pattern
        faults_calls[<int>kind].pattern = <const char*>pattern if pattern else NULL
        faults_calls[<int>kind].size = len(pattern)
        faults_calls[<int>kind].at = faults_calls[<int>kind].changed = 0
    if patterns:
        raise ValueError(f"no such calls: {sorted(patterns)}")


def changed():
    """Return the number of changed calls since `script` by function name."""
    return {name: faults_calls[<int>kind].changed for name, kind in KINDS.items()}


def fail_allocations(uint64_t first, uint64_t count=1):
    """Make `count` allocations fail, from number `first` on. The next allocation is number 1; 0: no failures."""
    global faults_allocations, faults_first, faults_count, faults_failed
    faults_allocations = faults_failed = 0
    faults_first = first
    faults_count = count


def allocations():
    """Return the number of allocations since `fail_allocations`, and the number of failed ones."""
    return faults_allocations, faults_failed
