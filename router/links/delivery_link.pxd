"""Base of the router's links: the queue of copies and its frames, and settlement of sent copies."""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from sluice.router.amqp.buffer cimport buffer_used
from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.frames cimport Transfer
from sluice.router.amqp.id_map cimport map_put, map_take
from sluice.router.amqp.link cimport Link
from sluice.router.amqp.session cimport Session
from sluice.router.delivery.delivery cimport (
    IN_PRESETTLED, OUT_CHECK, OUT_COUNTED, OUT_SETTLED, OUT_STARTED, DeliveryNode, InDelivery, OutDelivery, in_charge,
    in_new, out_free, queue_remove, sent_append, sent_remove,
)
from sluice.router.ring.layout cimport LinkSlot
from sluice.router.message.content cimport COPY_OCTETS, copy_left
from sluice.router.stats.counters cimport count_age, count_finished, count_outcome, count_presettled_delivery
from sluice.router.stats.samples cimport (
    is_sample, is_settled_sample, mark_sample_sent, write_outcome_sample, write_settled_sample,
)

# Base of the router's links: a link of the protocol that is a delivery node with counters. Owner: its session.
cdef class DeliveryLink(Link):
    cdef DeliveryNode node
    cdef LinkSlot* slot                    # its counters
    cdef readonly object slot_owner        # keeps the memory of `slot`
    cdef readonly uint32_t capacity        # deliveries
    cdef readonly uint32_t delivery_count  # of the sender, as far as known here
    cdef bint granted                      # of a consumer's link: the peer has granted credit before
    # Methods called through NodeCalls.
    cdef int outcome(self, InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1
    cdef bint settled(self, OutDelivery** run, uint32_t n, uint8_t kind, const Slice* state) except -1
    cdef int returned(self, InDelivery* d) except -1
    cdef int more(self, OutDelivery* o) except -1
    cdef int producer_update(self, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1
    cdef int producer_lost(self, OutDelivery* o) except -1
    cdef int abandon(self, OutDelivery* o) except -1
    cdef void unstuck(self) noexcept
    # Count as stuck the deliveries older than `before` (ns) that have neither been sent nor settled; return the number
    # of those that were not counted before.
    cdef uint32_t mark_stuck(self, uint64_t before) noexcept
    cdef uint32_t count_stuck(self, uint32_t marked) noexcept
    # Send a flow that grants this credit.
    cdef int send_state(self, uint32_t credit, bint drain) except -1
    # Return True if another delivery may start. `start` is called with its first frame.
    cdef bint may_start(self) noexcept
    cdef int start(self, OutDelivery* o) except -1
    # Write a transfer of o at w, except its `payload` octets. There is room for TRANSFER_ROOM octets and the state.
    cdef size_t write_head(self, uint8_t* w, OutDelivery* o, const Slice* state, bint first, bint settled, bint more,
                           bint aborted, size_t payload) noexcept
    # Write one frame of o. Returns 0 if it has no octets to write yet.
    cdef int write_part(self, OutDelivery* o, size_t* budget) except -1
    # End o with an aborted transfer, after the octets that are already written.
    cdef int write_abort(self, OutDelivery* o) except -1
    # End a settled copy whose last octet is in the write buffer.
    cdef int left_settled(self, OutDelivery* o) except -1
    # Called when nothing more of the queue can leave now.
    cdef int pumped(self) except -1
    cdef void unqueue(self, OutDelivery* o) noexcept
    # Apply the producer's disposition to a copy that has started.
    cdef int update_started(self, OutDelivery* o, const Slice* state, bint settled) except -1

# Make the delivery of a first frame.
cdef inline InDelivery* delivery_begins(DeliveryLink link, const Transfer* t, uint16_t flags) except NULL:
    cdef InDelivery* d
    link.delivery_count += 1
    link.slot.last_delivery = link.session.connection.scheduler.now_ns
    d = in_new(&link.node, t.delivery_id, link.slot.last_delivery, flags | (IN_PRESETTLED if t.settled else 0))
    if not t.settled and not map_put(&link.session.received, t.delivery_id, d):
        link.session.note_delivery_id_reused()
    return d


cdef int wrong_delivery(const InDelivery* d, const Transfer* t) except -1

# Check that a further frame belongs to the current delivery; raise RemoteError if not.
cdef inline int check_continues(const InDelivery* d, const Transfer* t) except -1:
    return wrong_delivery(d, t) if t.has_delivery_id and t.delivery_id != <uint32_t>d.key else 0

# Steps of an outgoing copy. They are inline for links that send without the queue. Objects are borrowed pointers,
# since a local variable for an object would count references.

cdef inline bint can_write_now(DeliveryLink link) noexcept:
    """Return True if a frame may be written now: nothing has to leave before it, and there is window and room."""
    return link.node.queue_first is NULL and link.session.remote_incoming_window and not link.session.contended \
        and buffer_used(&link.session.connection.out) < link.output_high


cdef inline void frame_written(Session session) noexcept:
    session.next_outgoing_id += 1
    session.remote_incoming_window -= 1


cdef inline int start_copy(DeliveryLink link, OutDelivery* o) except -1:
    """Give a copy its delivery-id: its first frame is being written."""
    o.flags |= OUT_STARTED
    o.id = link.session.next_delivery_id
    link.session.next_delivery_id += 1
    link.delivery_count += 1
    link.slot.last_delivery = link.session.connection.scheduler.now_ns
    if not o.flags & OUT_SETTLED and not map_put(&link.session.sent, o.id, o):
        link.session.note_delivery_id_reused()
    return 0


cdef inline int copy_written(DeliveryLink link, OutDelivery* o) except -1:
    """Finish the writing of a copy: its last octet is in the write buffer."""
    link.slot.deliveries += 1
    if o.flags & OUT_SETTLED:
        if is_sample(link.slot):
            write_settled_sample(link.slot, o.octets, o.since, link.session.connection.scheduler.now_ns)
        return link.left_settled(o)
    if is_sample(link.slot):
        mark_sample_sent(link.slot, o, link.session.connection.scheduler.now_ns)
    sent_append(&link.node, o)
    link.slot.unsettled += 1
    return 0


cdef inline size_t copy_octets(const OutDelivery* o) noexcept:
    """Return the octets of a queued copy beside its message, which it shares with others."""
    return COPY_OCTETS + <size_t>o.prefix_size


cdef inline void leave_queue(DeliveryLink link, OutDelivery* o) noexcept:
    """Remove a copy from the queue; what it counts there is now charged to its delivery."""
    queue_remove(&link.node, o)
    link.slot.undelivered -= 1
    if o.flags & OUT_COUNTED:
        o.flags &= ~OUT_COUNTED
        if o.source is not NULL and not o.flags & OUT_SETTLED:
            in_charge(o.source, 1, o.message.meter)    # until the consumer settles it
        copy_left(o.message, copy_octets(o))


cdef inline void note_settled(DeliveryLink link, OutDelivery* o, uint8_t kind) noexcept:
    """Count the settlement of a copy by its consumer, with this outcome."""
    cdef uint64_t now = link.session.connection.scheduler.now_ns
    map_take(&link.session.sent, o.id)
    if o.flags & OUT_CHECK:
        count_presettled_delivery(link.slot, link.session.connection.scheduler.second)
    else:
        count_finished(link.slot, link.session.connection.scheduler.second)
        count_outcome(link.slot, kind)
        count_age(link.slot, now - o.since, False)
    if is_settled_sample(o, kind, now - o.since):
        write_outcome_sample(link.slot, o, kind, now)


cdef inline int settle_sent(DeliveryLink link, OutDelivery* o) except -1:
    """Release a sent copy."""
    sent_remove(&link.node, o)
    link.slot.unsettled -= 1
    out_free(o)
    return 0
