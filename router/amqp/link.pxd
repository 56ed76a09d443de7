"""A link (AMQP 1.0 part 2, 2.6), whatever its deliveries are: base of all links."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from router.amqp.endpoint cimport Endpoint
from router.amqp.frames cimport Transfer
from router.amqp.meter cimport Meter
from router.amqp.session cimport Session

cdef enum:
    # Octets of streams of one link above which it gets no credit for more.
    CREDIT_OCTETS = 1048576

# Owner: its session.
cdef class Link(Endpoint):
    cdef readonly Session session
    cdef public object context             # what its maker keeps for it
    cdef uint64_t size                     # octets of the message under way that have come
    cdef uint32_t sized                    # its delivery-id
    cdef bint sized_settled                # … and whether the peer has settled it
    cdef bint oversized                    # it is longer: what still comes of it is dropped
    cdef bint credit_withheld              # it is in the connection's list of links that get credit later
    cdef bint credit_held                  # it gets none while it holds CREDIT_OCTETS of streams
    cdef uint32_t passed                   # times that some of it was passed on
    cdef Meter* streams_meter(self) except NULL
    cdef Meter* whole_meter(self) except NULL
    cdef void content_freed(self) noexcept
    # It holds what its consumers do not take, and others wait for that: end it, or what it holds. Text for the log.
    cdef str give_up(self)
    cdef int oversized_rest(self, const Transfer* t) except -1
    # While `logged`: show the handler a message that came (or is about to leave) here.
    cdef public bint logged
    cdef int show_message(self, const uint8_t* data, size_t size) except -1
    cdef int mark_ready(self) except -1    # it may be able to write queued deliveries
    cdef int leave(self, bint closed) except -1
