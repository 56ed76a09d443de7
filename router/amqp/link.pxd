"""AMQP link (AMQP 1.0 part 2, 2.6): base class for links with any kind of deliveries."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.amqp.endpoint cimport Endpoint
from sluice.router.amqp.frames cimport Transfer
from sluice.router.amqp.meter cimport Meter
from sluice.router.amqp.session cimport Session

cdef enum:
    # Octets of streams of one link above which it gets no more credit.
    CREDIT_OCTETS = 1048576

# AMQP link. Owner: its session.
cdef class Link(Endpoint):
    cdef readonly Session session
    cdef public object context             # the creator's object for the link
    cdef uint64_t size                     # octets received of the message in progress
    cdef uint32_t sized_delivery_id                    # delivery-id of that message
    cdef bint sized_settled                # the peer has settled that message
    cdef bint oversized                    # too large a message: the rest of it is dropped
    cdef bint credit_withheld              # in the connection's list of links that get credit later
    cdef bint credit_held                  # no credit while CREDIT_OCTETS of streams are held
    cdef uint32_t passed                   # counter of times that stored octets were passed on
    cdef Meter* streams_meter(self) except NULL
    cdef Meter* whole_meter(self) except NULL
    cdef void content_freed(self) noexcept
    # End the link, or what it holds, because its consumers do not take it while others wait. Return the text for the
    # log.
    cdef str give_up(self)
    cdef int oversized_rest(self, const Transfer* t) except -1
    # Show the handler each message that arrives or leaves.
    cdef public bint logged
    cdef int trace_message(self, const uint8_t* data, size_t size) except -1
    cdef int mark_ready(self) except -1    # list the link for a turn to write, if it may have queued deliveries
    cdef int leave(self, bint closed) except -1
