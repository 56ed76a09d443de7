"""Allocations and system calls of this project's compiled modules that fail when a test says so, see faults.h.

A pattern has one letter for each call of a function, and begins again at its end:

    .  as it is       a  EAGAIN      i  EINTR      x  ECONNRESET
    1  one octet, or one event, at most            f  few octets: one to seven
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
PATTERNS = {}                  # by kind: keeps the octets that C reads


def install():
    """Stand between the compiled modules that are loaded and the C library; how many of their imports are met."""
    found = 0
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None) or ""
        if name.partition(".")[0] in ("router", "workers") and path.endswith(".so") and name != __name__:
            count = faults_install(path.encode())
            if count < 0:
                raise RuntimeError(f"{path} is not among the loaded modules")
            found += count
    return found


def script(**patterns):
    """From now on calls do as their patterns say: recv, send, epoll_wait, write (to an eventfd); others as ever."""
    for name, kind in KINDS.items():
        pattern = patterns.pop(name, "").encode()
        PATTERNS[kind] = pattern
        faults_calls[<int>kind].pattern = <const char*>pattern if pattern else NULL
        faults_calls[<int>kind].size = len(pattern)
        faults_calls[<int>kind].at = faults_calls[<int>kind].changed = 0
    if patterns:
        raise ValueError(f"no such calls: {sorted(patterns)}")


def changed():
    """How many calls did not simply do what they do, by their names, since `script`."""
    return {name: faults_calls[<int>kind].changed for name, kind in KINDS.items()}


def fail_allocations(uint64_t first, uint64_t count=1):
    """So many allocations from the `first` one on (the next is 1) find no memory; 0: none does from now on."""
    global faults_allocations, faults_first, faults_count, faults_failed
    faults_allocations = faults_failed = 0
    faults_first = first
    faults_count = count


def allocations():
    """(allocations, how many of them failed) since fail_allocations."""
    return faults_allocations, faults_failed
