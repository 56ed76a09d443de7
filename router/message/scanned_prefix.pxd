"""Cached prefix of a message: its sections up to the message-annotations, and what a scan has found in them.

Between routers, messages have annotations with their address, their ingress and their trace. Those of one producer are
the same in each message.
"""
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.spec cimport S_PROPERTIES, T_SMALLULONG
from sluice.router.message.sections cimport Sections

cdef enum:
    PREFIX_OCTETS = 256          # octets of the longest prefix that is kept; longer ones are scanned each time

# Plain struct: embedded by value in its user.
cdef struct ScannedPrefix:
    size_t size                # octets of the prefix; 0: none is kept
    Sections sections          # its slices point into `octets`
    uint8_t[PREFIX_OCTETS] octets  # sections up to and including the message-annotations


cdef inline bint ends_at(const uint8_t* data, size_t size, size_t at) noexcept nogil:
    """Return True if the message's properties or body start at `at`: sections that `scan` without properties skips."""
    return size >= at + 3 and data[at] == 0 and data[at + 1] == T_SMALLULONG and data[at + 2] >= S_PROPERTIES


cdef inline bint has_prefix(const ScannedPrefix* last, const uint8_t* data, size_t size) noexcept nogil:
    """Return True if the message has this prefix.

    Then `last.sections` is what `scan` without properties would find.
    """
    return last.size != 0 and ends_at(data, size, last.size) and memcmp(data, &last.octets[0], last.size) == 0


cdef inline void move_slice(Slice* slice, const uint8_t* data, const ScannedPrefix* last) noexcept nogil:
    if slice.data is not NULL:
        slice.data = &last.octets[0] + (slice.data - data)


cdef inline bint prefix_keep(ScannedPrefix* last, const uint8_t* data, size_t size,
                             const Sections* found) noexcept nogil:
    """Keep the prefix of a message, in which `scan` without properties has found `found`.

    False: it is not kept, since other messages cannot be compared with it.
    """
    if found.end == 0 or found.end > PREFIX_OCTETS or not ends_at(data, size, found.end):
        return False
    last.size = found.end
    memcpy(&last.octets[0], data, found.end)
    last.sections = found[0]
    move_slice(&last.sections.map, data, last)
    move_slice(&last.sections.ingress, data, last)
    move_slice(&last.sections.trace, data, last)
    move_slice(&last.sections.to_override, data, last)
    move_slice(&last.sections.served, data, last)
    return True
