"""What was found in the first sections of the last message, for one that begins with the same octets.

Between routers messages have annotations with their address, where they entered, and the way that they came: those of
one producer are the same in each.
"""
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from router.amqp.codec cimport Slice
from router.amqp.spec cimport S_PROPERTIES, T_SMALLULONG
from router.message.sections cimport Sections

cdef enum:
    LAST_OCTETS = 256          # of the sections that are kept; longer ones are read each time

# Plain struct: embedded by value in its user.
cdef struct LastSections:
    size_t size                # of `octets`, 0: there is none
    Sections sections          # its slices point into `octets`
    uint8_t[LAST_OCTETS] octets  # up to and with the message-annotations


cdef inline bint ends_at(const uint8_t* data, size_t size, size_t at) noexcept nogil:
    """The octets from `at` are the message's properties or what comes behind them: nothing that `scan` reads."""
    return size >= at + 3 and data[at] == 0 and data[at + 1] == T_SMALLULONG and data[at + 2] >= S_PROPERTIES


cdef inline bint is_last(const LastSections* last, const uint8_t* data, size_t size) noexcept nogil:
    """Whether a message is like the last one; then `last.sections` is what `scan` without properties would find."""
    return last.size != 0 and ends_at(data, size, last.size) and memcmp(data, &last.octets[0], last.size) == 0


cdef inline void move_slice(Slice* slice, const uint8_t* data, const LastSections* last) noexcept nogil:
    if slice.data is not NULL:
        slice.data = &last.octets[0] + (slice.data - data)


cdef inline bint last_keep(LastSections* last, const uint8_t* data, size_t size, const Sections* found) noexcept nogil:
    """The message, in which `scan` without properties has found this, takes the place of the last one. False: it is not
    such that others can be compared with it."""
    if found.end == 0 or found.end > LAST_OCTETS or not ends_at(data, size, found.end):
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
