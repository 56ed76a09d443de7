"""Delivery state with which the router settles a consumer's outcome (AMQP 1.0 part 2, 2.7.6)."""
from libc.stdint cimport uint8_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.states cimport is_plain_outcome, plain_state


cdef inline Slice settled_state(uint8_t kind, const Slice* state) noexcept nogil:
    """Return accepted and released unchanged, and no state for other outcomes.

    The consumer knows its own outcome. Otherwise one frame with a long error for many deliveries would be echoed once
    for each delivery.
    """
    return state[0] if is_plain_outcome(kind, state) else plain_state(0)
