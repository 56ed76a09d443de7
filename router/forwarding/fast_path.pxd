"""Fast path of a delivery: from its incoming frame into the consumer's write buffer, or into the ring to its worker.

docs/internals/engine.md, "The fast path", lists the steps of the slow path that the fast path replaces. This file has
the fast path for unchanged messages to a client of this worker. fast_path.pyx has the fast path into a
ring, and the one for messages from or to other routers, whose annotations are rewritten. Each first checks its
conditions without any effect. Once it has a consumer, it does everything the slow path would do for this delivery,
counter by counter. Whoever changes one of the paths changes the others; random scenarios go through all of them and
are compared (tests/unit/workers/test_short_ways.py, test_short_ways_between_routers.py).
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from router.amqp.codec cimport Slice
from router.amqp.frames cimport Transfer
from router.amqp.items cimport item_at, items_in
from router.amqp.spec cimport (
    S_HEADER, S_PROPERTIES, T_FALSE, T_LIST0, T_LIST8, T_NULL, T_SMALLULONG, T_TRUE, T_UBYTE,
)
from router.delivery.delivery cimport IN_COMPLETE, IN_CREDITED, IN_ROUTED, InDelivery
from router.forwarding.consumer cimport Consumer
from router.forwarding.forward cimport FEW_CONSUMERS, least_loaded
from router.forwarding.table cimport BALANCED, CLOSEST, ForwardingAddress
from router.links.consumer_link cimport ConsumerLink, AnnotationsEdit, send_whole, can_send_unchanged
from router.links.delivery_link cimport delivery_begins
from router.links.granting_link cimport request_flow
from router.links.producer_link cimport ProducerLink, count_presettled, spend_credit
from router.message.annotations cimport ComposedAnnotations
from router.message.scanned_prefix cimport ScannedPrefix
from router.message.sections cimport NO_PRIORITY, Sections
from router.stats.counters cimport Tally, totals

cdef enum:
    HIGHEST_PRIORITY = 9

# Leg of a delivery: the consumer that gets it. Pointers are borrowed.
cdef struct ForwardingLeg:
    void* consumer             # ConsumerLink of this worker by which the delivery leaves
    bint alone                 # no other consumer can get the next delivery while the table does not change
    bint turns                 # the list of consumers rotates (of routers at one distance, if `remote`)
    bint container             # the consumer belongs to a route container
    bint remote                # the consumer is a data link to another router
    Tally* outstanding         # counts unsettled deliveries to that router; NULL: they are not counted

# Cached forwarding decision for messages with identical leading sections. Plain struct, embedded in its user. The user
# calls `composed_drop` for `composed` before it uses the struct for other messages.
cdef struct ForwardingDecision:
    # Table.recent.version for which the decision holds; 0: it is made anew for each message. It holds for messages
    # with annotations at offset `at` and with a header of this priority.
    uint64_t version
    size_t at
    int priority
    ForwardingLeg way
    AnnotationsEdit other          # edit of the message on its way out
    ComposedAnnotations composed          # octets of `other`, for consumers that get router annotations

# Facts about routing in a message's leading sections, without its properties.
cdef struct LeadingSections:
    const Sections* sections   # of its annotations; NULL: it has none
    size_t at                  # offset of the annotations, or of the place where they would be
    int priority               # of its header, or NO_PRIORITY

cdef inline bint is_section(const uint8_t* p) noexcept nogil:
    """Return True if `p` points to a three-octet section descriptor."""
    return p[0] == 0 and p[1] == T_SMALLULONG


cdef inline bint has_no_annotations(const uint8_t* p, size_t size, LeadingSections* said) noexcept nogil:
    """Return True if the message needs no scan: it has neither delivery-annotations nor message-annotations.

    A header before its properties or body must have `durable` and `priority` in their short encodings. Sets `said`.
    The properties matter only where the address or the policy asks for them.
    """
    said.sections = NULL
    said.at = 0
    said.priority = NO_PRIORITY
    if size < 9 or not is_section(p):
        return False
    if p[2] >= S_PROPERTIES:
        return True
    if p[2] != S_HEADER:
        return False
    if p[3] == T_LIST0:
        said.at = 4
    elif p[3] != T_LIST8 or p[4] < 1:
        return False
    else:
        said.at = 5 + p[4]
        if p[5] and p[6] != T_TRUE and p[6] != T_FALSE and p[6] != T_NULL:
            return False
        if p[5] > p[4] - 1 or (p[5] > 1 and p[7] != T_NULL and (p[7] != T_UBYTE or p[4] < 4)):
            return False
        if p[5] > 1 and p[7] == T_UBYTE:
            said.priority = p[8] if p[8] < HIGHEST_PRIORITY else HIGHEST_PRIORITY
    return said.at + 3 <= size and is_section(p + said.at) and p[said.at + 2] >= S_PROPERTIES


cdef inline void use_scanned_prefix(const ScannedPrefix* last, LeadingSections* said) noexcept nogil:
    """Set `said` from the results of a scan of the same octets."""
    said.sections = &last.sections
    said.at = last.sections.at
    said.priority = last.sections.priority


cdef inline bint fits_fast_path(ProducerLink link, const Transfer* t) noexcept:
    """Return True for a whole delivery in one frame, without a state, with the expected delivery-id, on a producer's
    link with credit, that is neither aborted nor logged."""
    return (not t.more and not t.aborted and not t.state.size and t.has_delivery_id and link.credit and not link.logged
            and t.delivery_id == link.session.expected_delivery_id and link.session.any_delivery)


cdef inline void* choose_simple_consumer(void* address, bint* turns) noexcept:
    """Return the consumer that gets a client's next delivery for an address, as `deliver` and `forward` choose it.

    NULL: the address needs the slow path. turns: set if the list of consumers rotates. address and result: borrowed.
    """
    cdef void* consumers = <void*>(<ForwardingAddress>address).consumers
    cdef void* chosen
    if (<ForwardingAddress>address).remotes is not None or (<ForwardingAddress>address).exchange is not None \
            or (<ForwardingAddress>address).special or (<ForwardingAddress>address).treatment > CLOSEST:
        return NULL
    if items_in(consumers) == 1:
        chosen = item_at(consumers, 0)
    elif (<ForwardingAddress>address).treatment == BALANCED and (<ForwardingAddress>address).served is None \
            and items_in(consumers) <= FEW_CONSUMERS:
        chosen = least_loaded(<ForwardingAddress>address, 0, turns)
        if chosen is NULL:
            return NULL
    else:
        return NULL
    return chosen


cdef inline void* choose_consumer_now(void* address, ProducerLink link, const Transfer* t, bint* turns) noexcept:
    """Return the consumer that gets the delivery of this frame now and unchanged; NULL: it needs another path.

    `fits_fast_path` and `has_no_annotations` must hold. Room in the ring to a consumer of another worker is checked by
    `forward_to_ring`. address: of the link's target, borrowed as the result. turns: set if the list of consumers
    rotates. Has no effect.
    """
    cdef void* consumer
    cdef void* near
    if link.credit_on_forward:
        return NULL
    consumer = choose_simple_consumer(address, turns)
    if consumer is NULL:
        return NULL
    near = <void*>(<Consumer>consumer).link
    if near is not <void*>None and (not (<ConsumerLink>near).plain
                                    or not can_send_unchanged(<ConsumerLink>near, t.payload.size, t.settled)):
        return NULL
    return consumer


cdef inline int forward_now(ProducerLink link, ConsumerLink consumer, const Transfer* t, const AnnotationsEdit* other,
                            Tally* outstanding, bint returns_credit) except -1:
    """Forward the delivery of this frame: all effects of the slow path, except the counters of the address.

    returns_credit: the link gets its credit back at once. Other parameters: as of `send_whole`.
    """
    cdef uint64_t now = link.session.connection.scheduler.now_ns
    cdef InDelivery* d = NULL
    # As ProducerLink.first_frame does.
    link.session.expected_delivery_id += 1
    spend_credit(link)
    if t.settled:
        link.delivery_count += 1
        link.slot.last_delivery = now
    else:
        link.slot.unsettled += 1
        d = delivery_begins(link, t, IN_COMPLETE)
        if returns_credit:
            d.flags |= IN_CREDITED
        else:
            link.occupied += 1
    send_whole(consumer, d, t.payload.data, t.payload.size, t.message_format, now, other, outstanding)
    # As ProducerLink.route_content does.
    link.slot.deliveries += 1
    if d is NULL:
        count_presettled(link)
        if not returns_credit:
            request_flow(link)
    else:
        d.flags |= IN_ROUTED
    if returns_credit and not link.needs_flow:
        link.session.want_flow(link)
    return 0


cdef inline void count_forwarded(void* address) noexcept:
    """Count a client's delivery that one consumer of this router gets, as `deliver` and `forward` do."""
    (<ForwardingAddress>address).slot.ingress += 1
    (<ForwardingAddress>address).slot.egress += 1
    totals.ingress += 1
    totals.egress += 1


cdef inline void count_from_container(void* address) noexcept:
    """Count a delivery of a route container, as `count_ingress` does."""
    (<ForwardingAddress>address).slot.ingress_container += 1
    totals.ingress_container += 1


cdef inline void count_to_container(void* address) noexcept:
    """Count a delivery to a route container, as `give` does."""
    (<ForwardingAddress>address).slot.egress_container += 1
    totals.egress_container += 1


# Forward the delivery of this frame into the ring to the consumer's worker; otherwise as `forward_now`. False,
# without any effect: the ring has no room, or other deliveries already wait for it. to, phase, honour: of the link's
# handler.
cdef bint forward_to_ring(ForwardingAddress address, ProducerLink link, Consumer consumer, const Transfer* t,
                          const Slice* to,
                          int phase, bint honour) except -1

cdef inline bint decision_holds(const ForwardingDecision* answer, uint64_t version,
                                const LeadingSections* said) noexcept nogil:
    """Return True if the cached decision holds for this message. version: the present Table.recent.version."""
    return answer.version == version and answer.at == said.at and answer.priority == said.priority


# Make the forwarding decision for a producer's next delivery to this address. False: it needs the slow path.
# came_by: number of the connection of an edge router or another router; 0: of a client. to, phase: as of Content.
cdef bint make_forwarding_decision(ForwardingDecision* answer, ForwardingAddress address, uint64_t version,
                                   uint32_t came_by, uint64_t producer,
                                   const LeadingSections* said, const Slice* to, int phase) noexcept
# Forward the delivery of this frame now, with the annotations that its consumer gets. False, without any effect: it
# cannot leave now, or needs the slow path. `fits_fast_path` must hold; answer: valid for this address and message.
# address: borrowed.
cdef bint forward_edited_now(void* address, ProducerLink link, const Transfer* t,
                             const ForwardingDecision* answer) except -1
# Store the delivery of this frame as it will leave, and queue it at its consumer. Otherwise as `forward_edited_now`.
cdef bint queue_edited(void* address, ProducerLink link, const Transfer* t, const ForwardingDecision* answer) except -1
