"""Links on which a client receives (AMQP 1.0 part 2, 2.6): copies are sent within credit and window, or queued."""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from sluice.router.amqp.buffer cimport buffer_room
from sluice.router.amqp.connection cimport Connection
from sluice.router.amqp.endpoint cimport is_detached, is_pending
from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.frames cimport SHORT_TAG, TRANSFER_ROOM, write_short_transfer, write_transfer
from sluice.router.amqp.link_life cimport LIFE_ATTACHED
from sluice.router.amqp.id_map cimport map_put_reserved, map_reserve
from sluice.router.amqp.session cimport Session
from sluice.router.delivery.delivery cimport OUT_STARTED, InDelivery, OutDelivery, out_count, out_make, sent_append
from sluice.router.links.credit cimport shown_credit
from sluice.router.links.delivery_link cimport DeliveryLink, can_write_now
from sluice.router.message.content cimport Content, Cursor, Message
from sluice.router.stats.counters cimport Tally, count_presettled_delivery
from sluice.router.stats.samples cimport is_sample, mark_sample_sent, write_settled_sample

# Overflow policy: treatment of presettled deliveries for a queue that is full.
cdef enum:
    OVERFLOW_THROTTLE = 0      # hold the producer's credit; drop the oldest copies only if the consumer is starved
    OVERFLOW_BLOCK = 1         # hold the producer's credit
    OVERFLOW_DROP_OLDEST = 2   # drop all older copies, as Dispatch 1.19 does
    OVERFLOW_REMOTE = 3        # from a router that cannot slow the producers: drop the oldest copies of a long queue
    # Added to the first two: from a router that slows the producers, but only after many deliveries are on their way.
    OVERFLOW_TRACKED = 4

cdef enum:
    STARVED_MS = 1000          # time without credit after which `throttle` drops

# Delivery tags of this process.
cdef struct DeliveryTags:
    uint64_t next              # the next tag: a counter, with the worker's number in the last octet

cdef DeliveryTags tags

# Link on which the peer receives. Owner: its session.
cdef class ConsumerLink(DeliveryLink):
    cdef readonly uint32_t credit
    cdef bint drain
    cdef readonly bint settles             # the consumer asked for settled deliveries (snd-settle-mode settled)
    cdef readonly bint annotations         # router annotations are sent (not stripped)
    cdef bint plain                        # `offer` is that of this class, so a plan may replace it
    # A RouterOut: a plan may replace `offer`, except for streams and tracked deliveries.
    cdef bint routed
    cdef uint64_t starved_since            # ms: time at which its credit ran out; 0: it has credit
    cdef readonly bint watched             # listed in Scheduler.starved
    cdef uint8_t waits                     # when the peer is lost, the link is suspended (wait_for_return)
    cdef uint8_t suspended                 # the peer is lost, and what it had not been sent waits for its return
    cdef uint64_t routed_octets            # octets of queued copies with OUT_ROUTED
    # Queued copies that may be dropped (presettled, not started), in the order in which they became droppable.
    cdef OutDelivery* oldest
    cdef OutDelivery* newest
    cdef void** place                      # entry of its worker's LinkTable for this link (borrowed), or NULL
    cdef int offer(self, InDelivery* d, Content* c, int overflow) except -1
    cdef int accept_copy(self, InDelivery* d, Content* c) except -1
    cdef void no_credit(self) noexcept
    cdef void count_settled(self, uint8_t kind) noexcept
    cdef bint drop_oldest(self) except *
    # Queue message m, from `cursor` on, as the only copy of d. The copy takes over the references to m and to the
    # cursor's chunk. `may_queue_edited` must hold, and a struct must be reserved (deliveries_reserve). outstanding:
    # counts the copy, or NULL.
    cdef int queue_whole(self, InDelivery* d, Message* m, Cursor* cursor, Tally* outstanding) except -1
    cdef int enqueue(self, InDelivery* d, Content* c, int overflow) except -1
    cdef bint takes_copies(self) noexcept
    cdef bint exceeds_uncharged_memory(self, bint multicast) noexcept
    cdef int decline(self, OutDelivery* o) except -1
    cdef bint make_room(self, int overflow) except *
    cdef bint make_routed_room(self, size_t size, int overflow) except *
    cdef void count_routed(self, OutDelivery* o, int sign) noexcept
    cdef void list_droppable(self, OutDelivery* o) noexcept
    cdef void unlist_droppable(self, OutDelivery* o) noexcept
    cdef int drop_queued(self, OutDelivery* o, int reason) except -1
    cdef int show_first(self, OutDelivery* o) except -1
    cdef int finish_drain(self) except -1
    cdef int release_deliveries(self, uint32_t most) except -1
    cdef uint32_t release_sent(self, uint32_t most) except? 0xFFFFFFFF
    cdef int release_first(self, OutDelivery* o) except -1
    cdef int release_unfit(self) except -1
    cdef bint may_wait(self, const OutDelivery* o) noexcept
    cdef int take_copy(self, ConsumerLink owner, OutDelivery* o) except -1
    cdef int release_queued(self, OutDelivery* o) except -1
    cdef int release_waiting(self) except -1


# ---------------------------------------------------------------------------------------------------------------------
# A copy that leaves at once, in one frame

cdef inline void record_sent_copy(ConsumerLink link, OutDelivery* o) noexcept:
    """Record an unsettled copy as sent, with the next delivery-id. There must be room in the map."""
    o.flags |= OUT_STARTED
    o.id = link.session.next_delivery_id
    sent_append(&link.node, o)
    if not map_put_reserved(&link.session.sent, o.id, o):
        link.session.note_delivery_id_reused()
    link.slot.unsettled += 1


cdef inline void use_credit(ConsumerLink link) noexcept:
    """Spend one credit."""
    link.credit -= 1
    link.slot.credit = shown_credit(link.credit)
    if link.credit == 0:
        link.no_credit()


cdef inline void note_written(ConsumerLink link, size_t size, uint64_t now) noexcept:
    """Update credit, window and counters for a copy whose only frame is in the write buffer.

    size: octets of the message.
    """
    tags.next += 1
    link.session.next_delivery_id += 1
    link.session.next_outgoing_id += 1     # as `frame_written` does
    link.session.remote_incoming_window -= 1
    link.delivery_count += 1
    use_credit(link)
    link.slot.deliveries += 1
    link.slot.octets += size
    link.slot.last_delivery = now


# Edit of a copy: replacement for the incoming message-annotations section.
cdef struct AnnotationsEdit:
    size_t at                  # offset in the message at which the replaced octets start
    size_t end                 # offset behind them
    const uint8_t* octets      # borrowed
    size_t size                # 0: the section is removed


cdef inline bint has_ended(ConsumerLink link) noexcept:
    """Return True if the link takes no deliveries any more."""
    return is_detached(link) and not link.suspended


cdef inline bint can_send_now(ConsumerLink link, size_t size, bint settled) noexcept:
    """Return True if a whole message of `size` octets, without a state, may leave now in one frame."""
    return (can_write_now(link) and link.credit and not is_pending(link) and not link.logged
            and (settled or not link.settles) and size + TRANSFER_ROOM <= link.session.connection.remote_max_frame)


cdef inline bint can_send_unchanged(ConsumerLink link, size_t size, bint settled) noexcept:
    """Return True if such a message may leave now unchanged."""
    return not link.annotations and can_send_now(link, size, settled)


cdef inline bint may_queue_edited(ConsumerLink link) noexcept:
    """Return True if an unsettled message that cannot leave now in one frame may be queued here as it will leave."""
    return link.life == LIFE_ATTACHED and not link.logged and not link.settles


cdef inline void write_replaced(uint8_t* w, const uint8_t* data, size_t size,
                                const AnnotationsEdit* other) noexcept nogil:
    """Write a message with its edit applied."""
    if other.at:
        memcpy(w, data, other.at)
    if other.size:
        memcpy(w + other.at, other.octets, other.size)
    memcpy(w + other.at + other.size, data + other.end, size - other.end)


cdef inline int send_whole(ConsumerLink link, InDelivery* d, const uint8_t* data, size_t size, uint32_t format,
                           uint64_t since, const AnnotationsEdit* other, Tally* outstanding,
                           const Slice* state=NULL, uint16_t flags=0) except -1:
    """Write a message in one frame, as a copy of d; d NULL: it is settled. There must be credit, window and room.

    since: arrival of the delivery, ns. other: its edit; NULL: unchanged. outstanding: counts the copy, or NULL. state:
    delivery state in the transfer, or NULL. flags: further flags of the copy.
    """
    cdef void* session = <void*>link.session             # a local variable of its class would count references
    cdef void* connection = <void*>link.session.connection
    cdef uint64_t now = (<Connection>connection).scheduler.now_ns
    cdef size_t written = size if other is NULL else size - (other.end - other.at) + other.size
    cdef uint8_t* w = buffer_room(&(<Connection>connection).out,
                                  TRANSFER_ROOM + written + (0 if state is NULL else state.size))
    cdef OutDelivery* o = NULL
    if state is NULL:
        w += write_short_transfer(w, (<Session>session).local_channel, link.handle,
                                  (<Session>session).next_delivery_id, <uint8_t*>&tags.next, format, d is NULL,
                                  written)
    else:
        w += write_transfer(w, (<Session>session).local_channel, link.handle, (<Session>session).next_delivery_id,
                            <uint8_t*>&tags.next, SHORT_TAG, format, d is NULL, False, False, state.data, state.size,
                            written)
    if other is NULL:
        memcpy(w, data, size)
    else:
        write_replaced(w, data, size, other)
    if d is not NULL:
        map_reserve(&(<Session>session).sent)
        o = out_make(&link.node, d, False, True)
        o.flags |= flags
        if outstanding is not NULL:
            out_count(o, outstanding)
        record_sent_copy(link, o)
    (<Connection>connection).out.end = w + written - (<Connection>connection).out.data
    note_written(link, written, now)
    if is_sample(link.slot):
        if d is NULL:
            write_settled_sample(link.slot, written, since, now)
        else:
            o.octets = <uint32_t>written
            mark_sample_sent(link.slot, o, now)
    if not (<Connection>connection).dirty:
        (<Connection>connection).mark_dirty()
    if d is NULL:
        count_presettled_delivery(link.slot, (<Connection>connection).scheduler.second)
    return 0


cdef inline bint leaves_unchanged(const Content* c) noexcept nogil:
    """Return True if consumers without router annotations get the message in one frame as it arrived."""
    return (c.whole and not c.sections.rewrite and not c.state.size and not c.checkpoint and c.outstanding is NULL)


cdef inline int offer_copy(void* link, InDelivery* d, Content* c, int overflow, bint unchanged) except -1:
    """Make a copy for a ConsumerLink, as `offer` does. unchanged: `leaves_unchanged` of the message."""
    if unchanged and (<ConsumerLink>link).plain and can_send_unchanged(<ConsumerLink>link, c.size, c.settled):
        return send_whole(<ConsumerLink>link, NULL if c.settled else d, c.data, c.size, c.format, d.since, NULL, NULL)
    return (<ConsumerLink>link).offer(d, c, overflow)
