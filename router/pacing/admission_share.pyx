"""Share of a process's time for connecting clients while established clients are active.

Workers apply it to admission steps and messages of the supervisor, the supervisor to accepts. The share is measured by
the clock: where cores are scarce, fewer clients are admitted.
"""


cpdef int share_divisor(uint64_t waited) noexcept:
    """Return the divisor of the time for connecting clients that have waited for `waited` ms; 1: no limit."""
    if waited <= LONG_WAIT_MS:
        return SMALL_SHARE_DIVISOR
    return LARGE_SHARE_DIVISOR if waited <= 2 * LONG_WAIT_MS else 1
