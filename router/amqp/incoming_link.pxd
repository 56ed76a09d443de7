"""The link on which a client sends (part 2, 2.6): grants credit, collects deliveries, hands them to a handler."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from router.amqp.codec cimport Slice
from router.amqp.delivery cimport InDelivery
from router.amqp.frames cimport Transfer
from router.amqp.message cimport Content
from router.amqp.session cimport Link

# What an incoming link does with deliveries. One object per link. Owner: the worker.
cdef class DeliveryHandler:
    # Find copies for d (whose content is c) and offer it to them; or refuse it (IncomingLink.refuse, unreachable …).
    # Exactly one of these has happened on return, except for content that is not whole and of which more is needed:
    # WANTS_MORE.
    cdef int route(self, IncomingLink link, InDelivery* d, Content* c) except -1
    # The message is not complete and smaller than what is streamed: should it be routed now nevertheless?
    cdef bint streams(self, IncomingLink link, const Content* c) noexcept

cdef enum:
    ROUTED = 0
    WANTS_MORE = 1

cdef enum:
    # Octets of a message for the router itself, which is collected whole before it is routed.
    COLLECT_MOST = 1048576
    # Octets of such messages, incomplete, of all links of this process together; what comes beyond is released.
    COLLECTING_MOST = 33554432

# What is stored of d, as content to be routed.
cdef void stored_content(InDelivery* d, Content* c) noexcept nogil
# How many incoming links this process has made: the number of the last one.
cdef uint64_t producers_made() noexcept

cdef class IncomingLink(Link):
    cdef DeliveryHandler deliveries
    cdef readonly uint32_t delivery_count
    cdef readonly uint32_t credit          # what the producer may still send
    cdef readonly uint32_t occupied        # of the capacity: deliveries unsettled, held back, or withheld
    cdef uint32_t withheld                 # … arrived while the address was unreachable
    cdef readonly bint flowing             # credit is granted
    cdef bint draining                     # drain was asked for, credit is not granted until reachable again
    cdef bint drain_due
    cdef bint called                       # the router attached it (an auto link), the peer answered
    cdef InDelivery* current               # incomplete delivery
    cdef readonly uint64_t number          # of the incoming links of this process, in the order of their making
    cdef bint between                      # another router's: totals count deliveries where they enter the network
    cdef bint eager                        # credit for unsettled deliveries is given back when they are forwarded
    cdef int first_frame(self, const Transfer* t) except -1
    cdef int next_frame(self, const Transfer* t) except -1
    cdef int store_and_route(self, InDelivery* d, const Transfer* t) except -1
    cdef int keep_state(self, InDelivery* d, const Transfer* t) except -1
    cdef int collect_frame(self, InDelivery* d, const Transfer* t) except -1
    cdef int complete_stored(self, InDelivery* d) except -1
    cdef int complete_discarded(self, InDelivery* d) except -1
    cdef int abort(self, InDelivery* d) except -1
    cdef int route(self, InDelivery* d, Content* c) except -1
    cdef int route_logged(self, InDelivery* d, Content* c) except -1
    # The handler wants all of d, which is not complete. False: too much is being collected already.
    cdef bint collect(self, InDelivery* d) except *
    cdef int route_stored(self, InDelivery* d, Content* c) except -1
    cdef int finish(self, InDelivery* d, uint8_t kind, const Slice* state) except -1
    cdef void free_credit(self, InDelivery* d) noexcept
    cdef void forwarded(self, InDelivery* d) noexcept
    cdef void note_credit(self) noexcept
    cdef bint holds_back(self) noexcept
    cdef int give_up_delivery(self, InDelivery* d) except -1
    cdef void count_unheard(self, InDelivery* d) noexcept
    cdef void count_end(self, uint8_t kind) noexcept
    cdef void count_presettled(self) noexcept
    cdef int refuse(self, InDelivery* d, uint8_t kind, bytes state, bint counted) except -1
    cdef int unreachable(self, InDelivery* d) except -1
    cdef void take_back(self) noexcept
    cpdef set_flowing(self, bint flowing)
