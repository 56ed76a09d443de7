"""Removal of message-annotations from the sections of a message that arrives in pieces."""
from libc.stdint cimport uint8_t, uint64_t

cdef enum:
    STEPS_A_UNIT = 16          # steps of a filter for one cost unit
    # Octets of the longest beginning by which a section is recognised: 00, and the name of message-annotations as a
    # value with a size of four octets.
    LONGEST_BEGINNING = 34

# Filter of one message. Zero before the first octets, which begin a section.
cdef struct AnnotationFilter:
    uint64_t left              # octets of the value under way, as far as its size is known
    uint64_t values            # values of the section that have not begun
    uint64_t steps             # of the work: octets that were examined, and runs of octets that were kept or removed
    uint8_t size_left          # octets of the size of the value under way that are still to come
    uint8_t held               # octets in `beginning`
    bint removes               # the section is removed
    bint invalid               # octets have come that begin no section: they and all others are kept
    uint8_t[LONGEST_BEGINNING] beginning   # octets of a section that is not recognised yet

# Write the octets that are to be kept to `out`, which has room for `size` and those held, and may be `data` if none are
# held. Return their number.
cdef size_t filter_octets(AnnotationFilter* f, const uint8_t* data, size_t size, uint8_t* out) noexcept nogil
# Write the octets held, at the end of the message; return their number.
cdef size_t finish_filter(AnnotationFilter* f, uint8_t* out) noexcept nogil

cdef inline bint keeps_all(const AnnotationFilter* f, size_t size) noexcept nogil:
    """True if the next octets, as many as `size`, belong to one value that is kept."""
    return f.invalid or (f.left >= size and f.size_left == 0 and not f.removes)


cdef inline void pass_octets(AnnotationFilter* f, size_t size) noexcept nogil:
    """Count octets for which `keeps_all` is true."""
    f.steps += 1
    if not f.invalid:
        f.left -= size
