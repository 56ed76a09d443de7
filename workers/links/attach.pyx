"""Fields of an attach (AMQP 1.0 part 2, 2.7.3): their positions, the values that decide about a link, and the answer.

Values that nearly all clients write, such as null or a small number, are read in place.
"""
from libc.stdint cimport uint32_t, uint64_t

from sluice.router.amqp.performatives cimport value_of

from sluice.router.amqp.codec import encode_ubyte, encode_uint, encode_ulong
from sluice.router.amqp.errors import INVALID_FIELD, RemoteError
from sluice.workers.links.encoded import NULL as ENCODED_NULL

cdef enum:
    C_NAME = 0
    C_SND_MODE = 3
    C_RCV_MODE = 4
    C_INITIAL_COUNT = 9
    C_MAX_SIZE = 10
    C_FIELDS = 14
    C_SND_MIXED = 2
    C_RCV_FIRST = 0

(
    NAME, HANDLE, ROLE, SND_MODE, RCV_MODE, SOURCE_FIELD, TARGET_FIELD, UNSETTLED, INCOMPLETE, INITIAL_COUNT,
    MAX_SIZE, OFFERED, DESIRED, PROPERTIES,
) = range(C_FIELDS)
SENDER = b"\x42"    # role false
RECEIVER = b"\x41"
SND_SETTLED = 1
SND_MIXED = C_SND_MIXED
RCV_FIRST = C_RCV_FIRST
RCV_SECOND = 1

_MODES = [encode_ubyte(mode) for mode in range(C_SND_MIXED + 1)]
_NO_COUNT = encode_uint(0)


cpdef list padded(list items):
    """Pad the items of an attach to all fields."""
    return items + [ENCODED_NULL] * (C_FIELDS - len(items))


cpdef int check_attach(list items) except -1:
    """Check the fields that the engine does not read. Raises RemoteError."""
    cdef int index
    for index in (C_SND_MODE, C_RCV_MODE):
        value = value_of(items[index]) if index < len(items) else None
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value > C_SND_MIXED):
            name = "snd-settle-mode" if index == C_SND_MODE else "rcv-settle-mode"
            raise RemoteError("link", INVALID_FIELD, f"attach: {name} is not valid")
    return 0


cpdef int settle_mode(list items, int index) except -1:
    """Return the settle mode at a position of padded items, or its default."""
    value = value_of(items[index])
    if isinstance(value, int) and 0 <= value <= C_SND_MIXED:
        return value
    return C_RCV_FIRST if index == C_RCV_MODE else C_SND_MIXED


cpdef uint32_t initial_count(list items) except? 0xFFFFFFFF:
    """Return the initial delivery-count in padded items; 0 if there is no valid one.

    The first flow counts from it (routing-semantics.md A-5).
    """
    count = value_of(items[C_INITIAL_COUNT])
    valid = isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= 0xFFFFFFFF
    return count if valid else 0


cpdef uint64_t message_limit(list items) except? 0xFFFFFFFFFFFFFFFF:
    """Return the largest message in octets that the peer of an attach accepts, from padded items; 0: any size."""
    value = value_of(items[C_MAX_SIZE])
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 64 else 0


def attach_reply(list items not None, uint32_t handle, bint outgoing, bytes source not None, bytes target not None,
                 uint64_t limit):
    """Return the fields of the answer to an attach (routing-semantics.md A-1, A-4, A-6; brokers-and-edge.md W-4).

    items: padded, of the peer. handle: the router's. outgoing: the router sends on the link. source, target: encoded.
    limit: largest message in octets that the router accepts; 0: any size.
    """
    return [
        items[C_NAME], encode_uint(handle), SENDER if outgoing else RECEIVER, _MODES[settle_mode(items, C_SND_MODE)],
        _MODES[settle_mode(items, C_RCV_MODE)], source, target, ENCODED_NULL, ENCODED_NULL, _NO_COUNT,
        encode_ulong(limit), ENCODED_NULL, ENCODED_NULL, ENCODED_NULL,
    ]
