"""Copies that taps make of messages which are routed before they are complete."""
from libc.stdint cimport uint8_t, uint64_t

from sluice.router.amqp.link cimport Link
from sluice.router.amqp.meter cimport Meter
from sluice.router.delivery.delivery cimport InDelivery, OutDelivery
from sluice.router.message.annotation_filter cimport AnnotationFilter
from sluice.router.message.content cimport Content, Message
from sluice.router.table.tap cimport Tap, UnfinishedCopy

# Copy of a message that still arrives. Owners: the handler of the producer's link, and the tap.
cdef class ArrivingCopy(UnfinishedCopy):
    cdef Tap tap
    cdef Link link                         # of the producer
    cdef uint64_t producer                 # number of that link
    cdef bytes source                      # address that the message was sent to, as an encoded string
    cdef bint required                     # a delivery waits for the copy, or did until its producer settled it
    cdef Meter* meter                      # counts the stored octets (a reference)
    cdef AnnotationFilter filter           # of the octets to come
    cdef Message* message                  # octets of the copy (a reference); NULL: the copy has ended
    cdef InDelivery* copy                  # delivery of the tap, once forwarded; NULL before
    cdef uint64_t copies                   # number of its copies that count in `Tap.copies`
    cdef OutDelivery* leg                  # leg of the delivery that waits for the copy (owned), or NULL
    cdef uint64_t grown                    # ms: time at which the message grew
    # Add octets of the message. last: these are the last.
    cdef int append(self, const uint8_t* data, size_t size, bint last) except -1
    # End the copy: the message stays incomplete.
    cdef int abort(self) except -1
    cdef int add(self, const uint8_t* data, size_t size, bint last) except -1
    cdef bint make_room(self, size_t size) except *
    cdef ArrivingCopy largest(self, size_t size)
    cdef int forward(self, bint last) except -1
    cdef int finish(self, uint64_t octets) except -1
    cdef int miss(self, uint64_t* reason) except -1
    cdef int end_copy(self) except -1
    cdef int drop(self) except -1

# Begin the copy of a message that still arrives, and the leg of its delivery d, if that waits for the copy. Return
# None if the tap makes no copy, which it has counted. link: of the producer, with its number. source: address that the
# message was sent to, as an encoded string.
cdef ArrivingCopy begin_arriving_copy(Tap tap, Link link, uint64_t producer, InDelivery* d, bytes source,
                                      const Content* c)
