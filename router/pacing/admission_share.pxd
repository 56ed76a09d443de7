"""Share of a process's time for connecting clients while established clients are active."""
from libc.stdint cimport uint64_t

cpdef enum:
    # The share is one part in SMALL_SHARE_DIVISOR. If clients have waited for LONG_WAIT_MS, it is one part in
    # LARGE_SHARE_DIVISOR, and after twice that time it is unlimited, so that no client gives up.
    SMALL_SHARE_DIVISOR = 16
    LARGE_SHARE_DIVISOR = 4
    LONG_WAIT_MS = 2000
    ACTIVE_MS = 100             # a client counts as active for this time after its last read

# Return the divisor of the time for connecting clients that have waited for `waited` ms.
cpdef int share_divisor(uint64_t waited) noexcept
