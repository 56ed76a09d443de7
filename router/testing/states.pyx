"""Access of tests to encoded delivery states."""
from libc.stdint cimport uint8_t

from sluice.router.amqp cimport states
from sluice.router.amqp.codec cimport Slice


cdef Slice _slice(bytes octets) noexcept:
    cdef Slice found
    found.data = octets
    found.size = len(octets)
    return found


def state_kind(bytes octets):
    cdef Slice state = _slice(octets)
    return states.state_kind(&state)


def has_field(bytes octets):
    cdef Slice state = _slice(octets)
    return bool(states.has_field(&state))


def plain_state(uint8_t kind):
    """Return the encoding of an outcome; empty if there is none."""
    cdef Slice found = states.plain_state(kind)
    return found.data[:found.size] if found.size else b""
