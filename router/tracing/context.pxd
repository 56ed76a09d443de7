"""Trace context of a message (W3C Trace Context, AMQP binding): found in its sections, written to its annotations.

The fields `traceparent` and `tracestate` are in the application-properties if the producer has set them, and in the
message-annotations if a router has. The annotations take precedence. A router never changes the bare message.
"""
from libc.stdint cimport uint8_t, uint64_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.spec cimport S_APPLICATION_PROPERTIES, T_LIST8, T_SMALLULONG
from sluice.router.message.sections cimport Sections

cdef enum:
    TRACE_ID_OCTETS = 16
    SPAN_ID_OCTETS = 8
    TRACEPARENT_SIZE = 55      # characters of a traceparent of version 00
    # Octets of a tracestate that is copied from the application-properties. The specification asks for at least 512.
    TRACESTATE_MOST = 512
    # Pairs of a map that are compared with the names of the fields. Further ones are not read, so that a message with a
    # large map costs no more than others.
    PAIRS_MOST = 64

# Trace context found in a message.
cdef struct TraceContext:
    bint found                 # False: the fields below are not set
    bint sampled               # flag of the traceparent: its sender records the trace
    uint8_t[16] trace_id
    uint8_t[8] parent_id
    # Of a message from another worker, in MARK: number of the producer's connection, and the time of the arrival there
    # in ns, CLOCK_MONOTONIC. 0: there is none.
    uint64_t connection
    uint64_t arrived
    # Encoded value of a tracestate in the application-properties, to be copied. data NULL: there is none, or the
    # annotations have their own context.
    Slice state
    # The sections before the bare message are complete and in order, and the annotations neither have a traceparent nor
    # a mark. So `append_context` may write them. They are, or would be, at offsets `at` to `end` of the message.
    bint appendable
    size_t at
    size_t end

cdef inline bint may_have_context(const uint8_t* p, size_t size) noexcept nogil:
    """Return False for a message that has no section with a context, in the usual encodings of sections: without
    annotations and application-properties."""
    cdef const uint8_t* end = p + size
    if size > 2 and p[2] > S_APPLICATION_PROPERTIES:
        return False                       # the body comes first, or the message is malformed
    while end - p >= 5 and p[0] == 0 and p[1] == T_SMALLULONG:
        if p[2] > S_APPLICATION_PROPERTIES:
            return False
        if p[3] != T_LIST8:
            return True                    # the others are maps
        p += 5 + p[4]
    return True


# Find the context of a message. Malformed or incomplete sections, and invalid fields, count as absent.
cdef void find_context(const uint8_t* data, size_t size, TraceContext* out) noexcept nogil
# Return the most octets that `append_context` may write.
cdef size_t append_room(const Slice* section, const TraceContext* context) noexcept nogil
# Write a message-annotations section: the pairs of `section`, an encoded one without a traceparent or an empty slice,
# and the traceparent of this trace and span, sampled. Returns the octets written; 0: `section` cannot be read.
cdef size_t append_context(uint8_t* w, const Slice* section, const TraceContext* context, const uint8_t* trace_id,
                           const uint8_t* span_id) noexcept nogil
# Return the most octets that `write_context` may write.
cdef size_t context_room(size_t size, const TraceContext* context) noexcept nogil
# Write a message with a traceparent of this trace and span, sampled, in place of its own. sections: of a scan of the
# message that was complete. Returns the octets written.
#
# The annotations also get the router annotation MARK. It lasts only within this router: copies for consumers and other
# routers are composed without it, as without any unknown router annotation. It makes each copy take the slow path,
# where traced copies are recorded, and its value tells another worker of this router the producer's connection and the
# time of arrival. A mark that the message came with is removed.
cdef size_t write_context(uint8_t* w, const uint8_t* data, size_t size, const Sections* sections,
                          const TraceContext* context, const uint8_t* trace_id, const uint8_t* span_id,
                          uint64_t connection, uint64_t arrived) noexcept nogil
