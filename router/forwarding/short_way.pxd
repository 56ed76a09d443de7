"""The short way of a delivery: from the frame that it comes in into its consumer's write buffer, or into the ring to
its worker, in one place.

docs/internals/engine.md, "The short way", says what the general way does for such a delivery, step by step. Here is the
way of messages that nothing is changed in, to a client of this worker. short_way.pyx has those into the ring, and the
longer one for what comes from other routers or goes to them, with other annotations. All only look first: when a
consumer is found, everything that the general way would do for this delivery is known, and is done, counter by counter.
Whoever changes one of the ways changes the others; random scenarios go through all of them and are compared
(tests/unit/workers/test_short_ways.py, test_short_ways_between_routers.py).
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
from router.forwarding.table cimport BALANCED, CLOSEST, Address
from router.links.consumer_link cimport ConsumerLink, Replacement, send_whole, takes_now
from router.links.delivery_link cimport delivery_begins
from router.links.granting_link cimport place_free
from router.links.producer_link cimport ProducerLink, count_presettled, spend_credit
from router.message.annotations cimport Composed
from router.message.last_sections cimport LastSections
from router.message.sections cimport NO_PRIORITY, Sections
from router.stats.counters cimport Tally, totals

cdef enum:
    HIGHEST_PRIORITY = 9

# Where a delivery goes. Pointers are borrowed.
cdef struct Way:
    void* consumer             # the ConsumerLink by which it leaves
    bint alone                 # there is no other one that could get the next delivery, while the table stays as it is
    bint turns                 # the list of consumers (of routers where it is `remote`) turns
    bint container             # it is a route container's
    bint remote                # it goes to another router …
    Tally* outstanding         # … for which it counts, or NULL

# What is to be done with messages that say the same. Plain struct: embedded in its user, who drops `composed` when that
# is something else from now on.
cdef struct Answer:
    uint64_t version           # of Table.recent: while it is that, the next one has the same answer; 0: look again
    size_t at                  # … if it has its annotations there …
    int priority               # … and this one
    Way way
    Replacement other          # what stands in it in place of its annotations
    Composed composed          # octets of `other`, for a way out with router annotations

# What a message says before its properties, as far as it matters here.
cdef struct Said:
    const Sections* sections   # of its annotations; NULL: it has none
    size_t at                  # offset of these, or of where they would be
    int priority               # of its header, or NO_PRIORITY

cdef inline bint is_section(const uint8_t* p) noexcept nogil:
    """Of three octets: the descriptor of a section."""
    return p[0] == 0 and p[1] == T_SMALLULONG


cdef inline bint says_nothing(const uint8_t* p, size_t size, Said* said) noexcept nogil:
    """Nothing in the message says where it goes: it begins with its properties or body, maybe behind a header whose
    durable and priority are plain. (Properties matter where the address or its consumers ask for them.)"""
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


cdef inline void says_what(const LastSections* last, Said* said) noexcept nogil:
    """It begins like one that came before."""
    said.sections = &last.sections
    said.at = last.sections.at
    said.priority = last.sections.priority


cdef inline bint may_pass(ProducerLink link, const Transfer* t) noexcept:
    """Frame and link are usual: this is a whole delivery, the one that is due, and all that is to be done is to route
    it."""
    return (not t.more and not t.aborted and not t.state.size and t.has_delivery_id and link.credit and not link.logged
            and t.delivery_id == link.session.expected_delivery_id and link.session.any_delivery)


cdef inline void* next_consumer(void* address, bint* turns) noexcept:
    """The consumer that gets the next delivery of a client for an address: what `deliver` and `forward` find. turns:
    the list of consumers turns, too. NULL: the address is in some way unusual. address, and what is returned:
    borrowed."""
    cdef void* consumers = <void*>(<Address>address).consumers
    cdef void* chosen
    if (<Address>address).remotes is not None or (<Address>address).exchange is not None \
            or (<Address>address).special or (<Address>address).treatment > CLOSEST:
        return NULL
    if items_in(consumers) == 1:
        chosen = item_at(consumers, 0)
    elif (<Address>address).treatment == BALANCED and (<Address>address).served is None \
            and items_in(consumers) <= FEW_CONSUMERS:
        chosen = least_loaded(<Address>address, 0, turns)
        if chosen is NULL:
            return NULL
    else:
        return NULL
    return chosen


cdef inline void* short_way(void* address, ProducerLink link, const Transfer* t, bint* turns) noexcept:
    """The consumer to which the delivery of this frame, which `may_pass` and `says_nothing`, may go on at once, as it
    is; whether there is room in the ring to one of another worker is for `pass_over` to say. NULL: it goes another way.

    address: of the link. turns: its list of consumers turns. Nothing is changed, and what is returned is borrowed.
    """
    cdef void* consumer
    cdef void* near
    if link.credit_on_forward:
        return NULL
    consumer = next_consumer(address, turns)
    if consumer is NULL:
        return NULL
    near = <void*>(<Consumer>consumer).link
    if near is not <void*>None and (not (<ConsumerLink>near).plain
                                    or not takes_now(<ConsumerLink>near, t.payload.size, t.settled)):
        return NULL
    return consumer


cdef inline int pass_on(ProducerLink link, ConsumerLink consumer, const Transfer* t, const Replacement* other,
                        Tally* outstanding, bint returns_credit) except -1:
    """Do for this delivery all that the general way does, but for what its address counts. returns_credit: the link has
    credit again when it is forwarded. Others: as of `send_whole`."""
    cdef uint64_t now = link.session.connection.scheduler.now_ns
    cdef InDelivery* d = NULL
    # As first_frame.
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
    # As route_content.
    link.slot.deliveries += 1
    if d is NULL:
        count_presettled(link)
        if not returns_credit:
            place_free(link)
    else:
        d.flags |= IN_ROUTED
    if returns_credit and not link.needs_flow:
        link.session.want_flow(link)
    return 0


cdef inline void count_through(void* address) noexcept:
    """A delivery of a client has come in, and a consumer of this router has got it, as in `deliver` and `forward`."""
    (<Address>address).slot.ingress += 1
    (<Address>address).slot.egress += 1
    totals.ingress += 1
    totals.egress += 1


cdef inline void count_from_container(void* address) noexcept:
    """As `count_ingress`, the client was a route container."""
    (<Address>address).slot.ingress_container += 1
    totals.ingress_container += 1


cdef inline void count_to_container(void* address) noexcept:
    """As `give`, the consumer is one of a route container."""
    (<Address>address).slot.egress_container += 1
    totals.egress_container += 1


# The same as `pass_on` for a consumer of another worker: into the ring to it. False, and nothing is done: there is no
# room, or something waits already. to, phase, honour: of the link's handler.
cdef bint pass_over(Address address, ProducerLink link, Consumer consumer, const Transfer* t, const Slice* to,
                    int phase, bint honour) except -1

cdef inline bint is_known(const Answer* answer, uint64_t version, const Said* said) noexcept nogil:
    """The message that says this has the same answer as the last one. version: of Table.recent."""
    return answer.version == version and answer.at == said.at and answer.priority == said.priority


# Find what is to be done with the next delivery of that producer for this address. False: it goes the general way.
# came_by: number of the connection of an edge router or another router, 0: of a client. to, phase: as of Content.
cdef bint find_answer(Answer* answer, Address address, uint64_t version, uint32_t came_by, uint64_t producer,
                      const Said* said, const Slice* to, int phase) noexcept
# The longer one of the short ways: the delivery of this frame, which `may_pass`, goes on at once with the annotations
# that its consumer is to get, if it can. False: nothing is done. answer: of this address, known or just found. address:
# borrowed.
cdef bint pass_changed(void* address, ProducerLink link, const Transfer* t, const Answer* answer) except -1
# The same for what cannot leave yet: it is stored as it will leave, and waits at its consumer.
cdef bint store_changed(void* address, ProducerLink link, const Transfer* t, const Answer* answer) except -1
