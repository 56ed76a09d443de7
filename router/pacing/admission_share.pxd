"""Share of a process's time for connecting clients while established clients are active."""
from libc.stdint cimport uint64_t

cpdef enum:
    # The share is 1/SMALL_SHARE_DIVISOR. After clients have waited for LONG_WAIT_MS, the share is
    # 1/LARGE_SHARE_DIVISOR. After twice that wait there is no limit, so that no client aborts its connection.
    SMALL_SHARE_DIVISOR = 16
    LARGE_SHARE_DIVISOR = 4
    LONG_WAIT_MS = 2000
    # Time for which a client is active after its last deliveries, outcomes or credit arrived.
    ACTIVE_MS = 100

# Return the divisor of the time for connecting clients that have waited for `waited` ms.
cpdef int share_divisor(uint64_t waited) noexcept
