"""Share of a process's time for connecting clients while established clients are active.

Workers limit admission steps and messages of the supervisor to this share, the supervisor limits accepts to it. Workers
measure the share by the clock, so they admit fewer clients where cores are scarce.
"""


cpdef int share_divisor(uint64_t waited) noexcept:
    """Return the divisor of the time for connecting clients that have waited for `waited` ms; 1: no limit."""
    if waited <= LONG_WAIT_MS:
        return SMALL_SHARE_DIVISOR
    return LARGE_SHARE_DIVISOR if waited <= 2 * LONG_WAIT_MS else 1
