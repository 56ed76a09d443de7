"""A routed link: one end of a pair that is end to end (brokers-and-edge.md 5)."""
from libc.stdint cimport uint8_t, uint32_t

from router.amqp.codec cimport Slice
from router.delivery.delivery cimport InDelivery, OutDelivery
from router.amqp.frames cimport Flow, Transfer
from router.amqp.link_life cimport (
    ANSWERED_STATES, LEFT_STATES, LIFE_ROUTE_MADE_DUE, LIFE_ROUTED_LEFT_DUE,
)
from router.amqp.meter cimport Meter
from router.interworker.records cimport LinkRecord
from router.interworker.reports cimport ReportingNode
from router.linkroute.pending_flow cimport PendingFlow
from router.links.delivery_link cimport DeliveryLink

cdef enum:
    # Deliveries of one routed link that may be in this router or unsettled beyond it; credit for more is given later.
    ROUTED_MOST = 10000
    # Octets of a delivery state, or of the properties of a flow, that pass to another worker.
    STATE_MOST = 16384
    TAG_MOST = 32
    # Unsent octets of a connection above which attaches of routed links to it, and answers to them, are refused.
    ROUTED_UNSENT_MOST = 16777216

# Events between the ends of a pair, in order with the frames of the hot path.
cpdef enum LinkEvent:
    EVENT_ATTACH = 1            # the client's attach, for the container
    EVENT_ANSWER = 2            # the container's
    EVENT_DETACH = 3            # the peer's detach: one octet `closed`, its error
    EVENT_LOST = 4              # the link, or what it was on, is gone

# The fields of the first transfer of a queued delivery, besides its state, which its message keeps. Owner: the
# OutDelivery, as its `prefix`.
cdef struct RoutedHead:
    uint8_t options
    uint8_t tag_size
    uint8_t[TAG_MOST] tag


cdef inline void routed_head(const OutDelivery* o, bint first, const Slice* state, Transfer* t) noexcept:
    """What the next transfer of a queued delivery says of it."""
    cdef const RoutedHead* head = <const RoutedHead*>o.prefix
    t.options = 0
    t.tag.size = 0
    t.message_format = o.message.format
    t.state = state[0]
    if first and head is not NULL:
        t.options = head.options
        t.tag.data = &head.tag[0]
        t.tag.size = head.tag_size


# Store a frame of a delivery to a party that cannot pass it on now. `m`: what meters its octets.
cdef int store_frame(OutDelivery* o, const Transfer* t, bint first, Meter* m) except -1
# The sender's disposition for a delivery of which nobody has seen anything.
cdef int update_queued(OutDelivery* o, const Slice* state, bint settled) except -1

# The other end of a routed link, on another worker. Owner: the link.
cdef class OtherEnd(ReportingNode):
    cdef RoutedLink link                   # ours
    # As RoutedLink.deliver.
    cdef int deliver(self, InDelivery* d, const Transfer* t, bint first, Meter* m) except -1
    cdef int flow(self, const Flow* f) except -1
    cdef int send_event(self, int what, bytes body) except -1
    # One of the two links is gone: nothing is sent any more.
    cdef int cut(self) except -1
    # The worker's port: a record for our link has come; this wake ends; the other worker is gone.
    cdef int on_record(self, const LinkRecord* r) except -1
    cdef int flush(self) except -1
    cdef int port_lost(self) except -1
    cdef bint through(self, object port) noexcept

# One link of a pair. Owner: its session. The other one is `local_end` (on this worker) or behind `remote_end` (on
# another one); both are None when it is gone.
cdef class RoutedLink(DeliveryLink):
    cdef RoutedLink local_end
    cdef OtherEnd remote_end
    cdef readonly bint survives            # its terminus outlives the loss of its connection
    cdef readonly bint remote_survives        # the same of the other end
    cdef bint other_gone                   # the other end is gone
    # The detach that is to be written in the DUE states, when the queue is empty and the write buffer has room.
    cdef bint due_closed
    cdef bytes due_error
    cdef PendingFlow pending_flow          # from the other end
    cdef Flow written                      # the last flow that was written here …
    cdef bint any_written                  # … if there was one
    # To the one on which the peer receives: a frame of a delivery d. `m` meters what is stored of it.
    cdef int deliver(self, InDelivery* d, const Transfer* t, bint first, Meter* m) except -1
    cdef int pass_flow(self, const Flow* f) except -1
    cdef int on_event(self, int what, bytes body) except -1
    cdef int end_by(self, object error) except -1
    cdef int send_event(self, int what, bytes body) except -1
    cdef int remote_detached(self, bint closed, bytes error) except -1
    cdef int remote_lost(self) except -1
    cdef int write_detach(self, bint closed, bytes error) except -1
    cdef int part(self) except -1
    cdef int end(self) except -1
    cdef int lose_deliveries(self) except -1
    cdef int break_off(self) except -1
    cdef bint holds(self) noexcept
    cdef void note_credit(self, uint32_t credit) noexcept
    cdef int write_pending(self, Flow* f) except -1
    cdef int write_if_new(self, Flow* f) except -1
    cdef bint leaves_deliveries(self) noexcept
    cdef int defer_detach(self) except -1
    cdef bint output_full(self) noexcept   # what others cause is not written to the connection now


cdef inline bint is_answered(RoutedLink link) noexcept:
    """True if our attach is written and the link is not detached: frames may follow."""
    return (<uint32_t>ANSWERED_STATES >> link.life) & 1


cdef inline bint has_left(RoutedLink link) noexcept:
    """True if the peer's detach has come, and ours is not written."""
    return (<uint32_t>LEFT_STATES >> link.life) & 1


cdef inline bint detach_is_due(RoutedLink link) noexcept:
    """True if the other end has detached and our detach waits to be written."""
    return link.life >= LIFE_ROUTE_MADE_DUE and link.life <= LIFE_ROUTED_LEFT_DUE
