"""Routed links: pairs of links, one to each peer, that relay everything (brokers-and-edge.md 5)."""
from libc.stdint cimport uint8_t, uint32_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.delivery.delivery cimport InDelivery, OutDelivery
from sluice.router.amqp.frames cimport Flow, Transfer
from sluice.router.amqp.link_life cimport (
    ANSWERED_STATES, LEFT_STATES, LIFE_ROUTE_MADE_DUE, LIFE_ROUTED_LEFT_DUE,
)
from sluice.router.amqp.meter cimport Meter
from sluice.router.ring.records cimport LinkRecord
from sluice.router.ring.reports cimport ReportingNode
from sluice.router.routed.pending_flow cimport PendingFlow
from sluice.router.links.delivery_link cimport DeliveryLink

cdef enum:
    # Deliveries of one routed link that may be in this router or unsettled beyond it; further credit is held back.
    ROUTED_MOST = 10000
    # Octets of a delivery state, or of the properties of a flow, that pass to another worker.
    STATE_MOST = 16384
    TAG_MOST = 32
    # Unsent octets of a connection above which attaches of routed links to it, and answers to attaches, are refused.
    ROUTED_UNSENT_MOST = 16777216

# Events between the ends of a pair, in order with the frames of deliveries.
cdef enum:
    EVENT_ATTACH = 1            # the client's attach, for the container
    EVENT_ANSWER = 2            # the container's answer
    EVENT_DETACH = 3            # the peer's detach: one octet `closed`, then its error
    EVENT_LOST = 4              # the link, its session or its connection is lost

# Fields of the first transfer of a queued delivery, except its state, which its message keeps. Owner: the OutDelivery,
# as its `prefix`.
cdef struct RoutedHead:
    uint8_t options
    uint8_t tag_size
    uint8_t[TAG_MOST] tag


cdef inline void routed_head(const OutDelivery* o, bint first, const Slice* state, Transfer* t) noexcept:
    """Set the fields of the next transfer of a queued delivery. t points into o."""
    cdef const RoutedHead* head = <const RoutedHead*>o.prefix
    t.options = 0
    t.tag.size = 0
    t.message_format = o.message.format
    t.state = state[0]
    if first and head is not NULL:
        t.options = head.options
        t.tag.data = &head.tag[0]
        t.tag.size = head.tag_size


# Store a frame of a delivery for a link or remote end that cannot pass it on now. `m` meters its octets.
cdef int store_frame(OutDelivery* o, const Transfer* t, bint first, Meter* m) except -1
# Apply the sender's disposition to a delivery of which nothing has been passed on yet.
cdef int update_queued(OutDelivery* o, const Slice* state, bint settled) except -1

# Other end of a routed link, on another worker. Owner: the link.
cdef class OtherEnd(ReportingNode):
    cdef RoutedLink link                   # our link; None once cut
    # As RoutedLink.deliver.
    cdef int deliver(self, InDelivery* d, const Transfer* t, bint first, Meter* m) except -1
    cdef int flow(self, const Flow* f) except -1
    cdef int send_event(self, int what, bytes body) except -1
    # Stop sending: one of the two links has ended.
    cdef int cut(self) except -1
    # Called by the worker's port: for a record for our link; at the end of the wake; when the other worker has exited.
    cdef int on_record(self, const LinkRecord* r) except -1
    cdef int flush(self) except -1
    cdef int port_lost(self) except -1
    # Return True if this end uses the port.
    cdef bint through(self, object port) noexcept

# Link of a pair. Owner: its session. The other link is `local_end` (on this worker) or behind `remote_end` (on
# another worker); both are None when it is gone.
cdef class RoutedLink(DeliveryLink):
    cdef RoutedLink local_end
    cdef OtherEnd remote_end
    cdef uint32_t initial_count            # initial-delivery-count of the sender
    cdef readonly bint survives            # its terminus outlives the loss of its connection
    cdef readonly bint remote_survives        # the terminus of the other end does
    cdef bint other_gone                   # the other end is gone
    # Detach to be written in the DUE states, when the queue is empty and the write buffer has room.
    cdef bint due_closed
    cdef bytes due_error
    cdef PendingFlow pending_flow          # from the other end
    cdef Flow written                      # last flow written here, if `any_written`
    cdef bint any_written
    # Take a frame of delivery d: called on the link on which the peer receives. `m` meters the octets that are stored.
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
    cdef int abort_current(self) except -1
    cdef bint holds(self) noexcept
    cdef void note_credit(self, uint32_t credit) noexcept
    cdef int write_pending(self, Flow* f) except -1
    cdef int write_if_new(self, Flow* f) except -1
    cdef bint leaves_deliveries(self) noexcept
    cdef int defer_detach(self) except -1
    # Return True if nothing more may be written now on behalf of other connections.
    cdef bint output_full(self) noexcept


cdef inline uint32_t count_of_receiver(RoutedLink link, const Flow* f) noexcept:
    """Return the delivery-count that a receiver's flow with link-credit means.

    A receiver may leave it out until it knows the sender's; its credit then counts from the initial one.
    AMQP 1.0 part 2, 2.6.7.
    """
    return f.delivery_count if f.has_delivery_count else link.initial_count


cdef inline bint is_answered(RoutedLink link) noexcept:
    """Return True if our attach is written and the link is not detached: frames may follow."""
    return (<uint32_t>ANSWERED_STATES >> link.life) & 1


cdef inline bint has_left(RoutedLink link) noexcept:
    """Return True if the peer's detach has arrived, and ours is not written."""
    return (<uint32_t>LEFT_STATES >> link.life) & 1


cdef inline bint detach_is_due(RoutedLink link) noexcept:
    """Return True if the other end has detached and our detach waits to be written."""
    return link.life >= LIFE_ROUTE_MADE_DUE and link.life <= LIFE_ROUTED_LEFT_DUE
