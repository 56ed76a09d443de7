"""Forwarders: the choice of the consumers that get a delivery (routing-semantics.md 8.2 to 8.4; inter-router.md 11).

Consumers of all workers are alike: their scores are read from gauges in shared memory. Other routers compete with
them: a delivery for another router goes to a data link of the next hop on the way there.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.string cimport memset

from router.amqp.codec cimport Slice
from router.amqp.items cimport item_at, items_in
from router.amqp.scheduler cimport charge, slice_used
from router.delivery.delivery cimport IN_MULTI
from router.table.network cimport (
    DEFAULT_PRIORITY, HERE, Network, Path, RemoteDestination, next_random, nearest_destination,
)
from router.ring.port cimport WorkerPort
from router.ring.port_out cimport PortOut
from router.links.consumer_link cimport ConsumerLink, leaves_unchanged, offer_copy
from router.table.size_limits cimport consumers_for, exceeds_some, octets_to_consumer
from router.table.table cimport BALANCED, MULTICAST, UNAVAILABLE, Exchange

cdef enum:
    # Added to the score of a link that sends an unfinished stream: other links are preferred, as if this queue were
    # longer by so much.
    BUSY_SCORE = 1 << 24
    GONE = 0xFFFFFFFF          # score of a consumer whose link has ended
    # Targets of one record: the worker that reads it handles them all in one slice.
    TARGETS_A_RECORD = 2048
    # From this many consumers on, multicast copies for consumers of this worker go through its ring to itself, like
    # those of other workers: one delivery for all of them may be the work of many slices.
    SPREAD_LEAST = 2048
    FALLBACK_PHASE = 22        # 'F' - '0': Dispatch's mark of a redirected message
    FULL = 3                   # added to the rank of a consumer at its capacity
    COPY_UNITS = 3             # cost units of one copy of a multicast delivery (router/amqp/scheduler.pxd)
    TARGETS_A_UNIT = 4         # targets named in a record for one cost unit

# Best consumer among those compared so far.
cdef struct BestConsumer:
    PyObject* consumer         # borrowed; NULL: none was compared
    uint32_t value             # its score
    bint eligible              # its score is below its capacity

# Best consumer so far at an edge router, whose consumers may be on other edge routers.
cdef struct BestEdgeConsumer:
    PyObject* consumer         # borrowed; NULL: none was compared
    uint32_t value             # its score plus the cost of its connection
    # Rank of its place: 0 nearer than the uplink, 1 the uplink, 2 no nearer than the uplink. FULL is added at
    # capacity.
    int rank


cdef Py_ssize_t spread_least = SPREAD_LEAST


cdef void use_spread(Py_ssize_t least) noexcept:
    global spread_least
    spread_least = least if least > 0 else SPREAD_LEAST


# routing-semantics.md 8.10.
cdef inline uint32_t score(Consumer c) noexcept:
    """Return the deliveries queued for a consumer, sent to it and unsettled, or on their way to it through a ring."""
    cdef uint32_t outstanding
    if c.slot.generation != c.generation:
        return GONE
    outstanding = c.slot.undelivered + c.slot.unsettled
    if c.taken is not NULL:
        if <int32_t>(c.sent - c.taken[0]) < 0:
            # A snapshot arrived while deliveries were in the ring; they had been counted before it.
            c.sent = c.taken[0]
        outstanding += c.sent - c.taken[0]
    if c.slot.busy:
        outstanding += BUSY_SCORE
    return outstanding


cdef inline int offer_to_consumer(ForwardingAddress address, Consumer consumer, InDelivery* d, Content* c) except -1:
    """Make the copy for one consumer, of this or another worker."""
    if consumer.container:
        address.slot.egress_container += 1
        totals.egress_container += 1
    if consumer.link is not None:
        return consumer.link.offer(d, c, overflow_of(address, c))
    consumer.port.outgoing.offer_one(consumer.slot_index, consumer.generation, d, c, overflow_of(address, c))
    consumer.sent += 1
    return 0


cdef int offer_to_next_hop(ForwardingAddress address, Consumer consumer, InDelivery* d, Content* c) except -1:
    """Make the copy for a data link of a next hop."""
    address.slot.transit += 1
    totals.transit += 1
    if consumer.link is not None:
        return consumer.link.offer(d, c, overflow_of(address, c))
    consumer.port.outgoing.offer_one(consumer.slot_index, consumer.generation, d, c, overflow_of(address, c))
    consumer.sent += 1
    return 0


# routing-semantics.md F-5, 11.5.
cdef inline int priority_of(ForwardingAddress address, const Content* c) noexcept:
    """Return the priority of a message, by which it takes one of a next hop's links."""
    if address.priority >= 0:
        return address.priority
    return c.sections.priority if c.sections.priority >= 0 else DEFAULT_PRIORITY


cdef int forward_any(ForwardingAddress address, InDelivery* d, Content* c) except -1:
    if exceeds_some(address, c):
        return forward_limited(address, d, c)
    return forward_all(address, d, c)


cdef int forward_limited(ForwardingAddress address, InDelivery* d, Content* c) except -1:
    """Forward a delivery to the consumers that take a message of its length."""
    cdef list consumers = address.consumers
    cdef list fitting = consumers_for(address, octets_to_consumer(c))
    cdef int start = address.start
    if len(fitting) == len(consumers):
        return forward_all(address, d, c)
    address.consumers = fitting
    address.start = address.fitting_start
    try:
        return forward_all(address, d, c)
    finally:
        address.fitting_start = address.start
        address.consumers = consumers
        address.start = start


# routing-semantics.md F-7.
cdef int forward_all(ForwardingAddress address, InDelivery* d, Content* c) except -1:
    """Forward a delivery by the treatment of the address, whatever the length of the message."""
    cdef int copies
    cdef Consumer only
    cdef int n = <int>items_in(<void*>address.consumers)
    if address.remotes is not None:
        return forward_network(address, d, c, n)
    if n == 0:
        return 0
    if n == 1 and address.treatment <= CLOSEST:
        only = <Consumer>item_at(<void*>address.consumers, 0)
        if returns_to_edge(only, c):
            return 0
        offer_to_consumer(address, only, d, c)
        copies = 1
    elif address.treatment == MULTICAST:
        copies = forward_multicast(address, d, c, NULL)
    elif address.treatment == CLOSEST:
        copies = forward_closest(address, d, c, n)
    elif address.treatment == UNAVAILABLE:
        return 0
    elif address.served is not None:
        copies = forward_balanced_at_edge(address, d, c, n)
    else:
        copies = forward_balanced(address, d, c, n)
    address.slot.egress += copies
    totals.egress += copies
    return copies


cdef int forward_network(ForwardingAddress address, InDelivery* d, Content* c, int n) except -1:
    """Forward a delivery of an address that other routers have consumers of, too (inter-router-protocol.md 6.4)."""
    cdef int copies = 0
    cdef int remote = 0
    if address.version != address.network.version:
        address.make_paths()
    if address.treatment == MULTICAST:
        copies = forward_multicast(address, d, c, &remote)
    elif address.treatment == CLOSEST:
        if n:
            copies = forward_closest(address, d, c, n)
        if copies == 0:
            remote = forward_nearest(address, d, c)
    elif address.treatment != UNAVAILABLE:
        remote = forward_balanced_remote(address, d, c, n)
        if remote == 0 and n:
            copies = forward_balanced(address, d, c, n)
    address.slot.egress += copies
    totals.egress += copies
    return copies + remote


cdef int forward_exchange(ForwardingAddress address, InDelivery* d, Content* c) except -1:
    """Forward to direct consumers as usual and to next hops of matching bindings presettled, else to the alternate.

    Returns the number of copies.
    """
    cdef ForwardingAddress hop
    cdef int copies
    cdef list hops
    cdef bint settled = c.settled
    cdef Exchange exchange = address.exchange
    exchange.slot.ingress += 1
    copies = forward(address, d, c)
    c.settled = True
    # Ingress and trace annotations start afresh at this router.
    memset(&c.sections.ingress, 0, sizeof(Slice))
    memset(&c.sections.trace, 0, sizeof(Slice))
    c.honour = False
    c.came_by = 0
    c.checkpoint = False
    if c.sections.subject.data is not NULL:
        hops = exchange.hops(PyBytes_FromStringAndSize(<const char*>c.sections.subject.data, c.sections.subject.size))
        for hop in hops:
            copies += forward_as(hop, hop.phase, d, c)
    if copies == 0 and exchange.alternate is not None:
        copies = forward_as(exchange.alternate, exchange.alternate.phase, d, c)
        if copies:
            exchange.slot.redirected += 1
    if copies:
        exchange.slot.egress += 1
    c.settled = settled
    return copies


cdef int forward_as(ForwardingAddress hop, int phase, InDelivery* d, Content* c) except -1:
    """Forward a delivery to another address than the one it was sent to."""
    c.to.data = hop.to
    c.to.size = len(hop.to)
    c.phase = phase
    return forward(hop, d, c)


cdef int forward_fallback(ForwardingAddress address, InDelivery* d, Content* c) except -1:
    cdef int copies = forward_as(address.fallback, FALLBACK_PHASE, d, c)
    if copies:
        address.slot.redirected += 1
        totals.redirected += 1
    return copies


cdef inline void compare_consumer(void* at, uint32_t came_by, BestConsumer* best) noexcept:
    """Compare one more consumer: first by room below its capacity, then by score; the earlier one wins if equal."""
    cdef Consumer consumer = <Consumer>at
    cdef uint32_t value
    cdef bint eligible
    if came_by != 0 and consumer.edge == came_by:          # see returns_to_edge
        return
    value = score(consumer)
    eligible = value < consumer.capacity
    if best.consumer is NULL or (eligible and not best.eligible) or (eligible == best.eligible and value < best.value):
        best.consumer = <PyObject*>at
        best.value = value
        best.eligible = eligible


cdef void compare_some(ForwardingAddress address, uint32_t came_by, int n, int some, BestConsumer* best) noexcept:
    """Compare `some` of the n consumers, from the list's start on, stopping at an idle one."""
    cdef void* consumers = <void*>address.consumers
    cdef int at = address.start
    for _ in range(some):
        compare_consumer(item_at(consumers, at), came_by, best)
        at = at + 1 if at + 1 < n else 0
        if best.value == 0 and best.consumer is not NULL:
            return


cdef void best_consumer(ForwardingAddress address, uint32_t came_by, int n, BestConsumer* best) noexcept:
    """Find the consumer with the best score; among many, one that is hardly ever worse (decision 0039)."""
    cdef void* consumers = <void*>address.consumers
    cdef uint64_t chance
    cdef int first, second
    best.consumer = NULL
    best.value = 0
    best.eligible = False
    if n <= FEW_CONSUMERS:
        compare_some(address, came_by, n, n, best)
        return
    # Idle consumers are served in rotation.
    compare_consumer(item_at(consumers, address.start), came_by, best)
    rotate_consumers(address)
    if best.consumer is not NULL and best.value == 0:
        return
    chance = next_random(address.network)
    first = <int>(((chance >> 32) * <uint64_t>n) >> 32)
    second = first + 1 + <int>(((chance & 0xFFFFFFFF) * <uint64_t>(n - 1)) >> 32)
    compare_consumer(item_at(consumers, first), came_by, best)
    compare_consumer(item_at(consumers, second if second < n else second - n), came_by, best)
    if not best.eligible:
        compare_some(address, came_by, n, FEW_CONSUMERS, best)
        address.start = (address.start + FEW_CONSUMERS) % n
    if best.consumer is NULL:              # all those compared would send it back where it came from
        compare_some(address, came_by, n, n, best)


cdef void* least_loaded(ForwardingAddress address, uint32_t came_by, bint* idle) noexcept:
    cdef BestConsumer best
    cdef int n = <int>items_in(<void*>address.consumers)
    best.consumer = NULL
    best.value = 0
    best.eligible = False
    compare_some(address, came_by, n, n, &best)
    idle[0] = best.consumer is not NULL and best.value == 0
    return <void*>best.consumer


cdef int forward_balanced(ForwardingAddress address, InDelivery* d, Content* c, int n) except -1:
    """Forward to the consumer with the lowest score, the earlier one if equal; if it is idle, rotate the list."""
    cdef BestConsumer best
    best_consumer(address, c.came_by, n, &best)
    if best.consumer is NULL:
        return 0
    if best.value == 0 and n <= FEW_CONSUMERS:
        rotate_consumers(address)
    offer_to_consumer(address, <Consumer>best.consumer, d, c)
    return 1


cdef int forward_balanced_at_edge(ForwardingAddress address, InDelivery* d, Content* c, int n) except -1:
    """Forward at an edge router when other edge routers have consumers as well: the cost of a connection is added to
    the score. At equal values a consumer of this router wins.

    The uplink comes after consumers that are nearer and below their capacity, however many deliveries those have: it
    may lead to the same consumers, and a producer's messages would reach them by two paths, in any order.
    """
    cdef void* consumers = <void*>address.consumers
    cdef void* by_edge = <void*>address.by_edge
    cdef BestEdgeConsumer best
    cdef uint32_t uplink = uplink_cost(address)
    cdef int at = address.start
    best.consumer = NULL
    best.rank = 0
    if n > FEW_CONSUMERS:
        for at in range(<int>items_in(by_edge)):
            compare_edge_consumer(item_at(by_edge, at), c, uplink, &best)
        for _ in range(2):
            at = <int>(((next_random(address.network) >> 32) * <uint64_t>n) >> 32)
            compare_edge_consumer(item_at(consumers, at), c, uplink, &best)
        at = address.start
        if best.consumer is NULL or best.rank >= FULL:
            address.start = (at + FEW_CONSUMERS) % n
    if n <= FEW_CONSUMERS or best.consumer is NULL or best.rank >= FULL:
        for _ in range(n if best.consumer is NULL else FEW_CONSUMERS):
            compare_edge_consumer(item_at(consumers, at), c, uplink, &best)
            at = at + 1 if at + 1 < n else 0
    if best.consumer is NULL:
        return 0
    if best.value == (<Consumer>best.consumer).cost and n <= FEW_CONSUMERS:
        address.start = address.start + 1 if address.start + 1 < n else 0
    offer_to_consumer(address, <Consumer>best.consumer, d, c)
    return 1


cdef inline void compare_edge_consumer(void* at, const Content* c, uint32_t uplink, BestEdgeConsumer* best) noexcept:
    """Compare one more consumer, of this or another edge router."""
    cdef Consumer consumer = <Consumer>at
    cdef uint32_t outstanding, value
    cdef int rank
    if returns_to_edge(consumer, c):
        return
    outstanding = score(consumer)
    value = outstanding if outstanding == GONE else outstanding + consumer.cost
    rank = 1 if consumer.edge and consumer.peer is None else 2 if consumer.cost >= uplink else 0
    if outstanding >= consumer.capacity:
        rank += FULL
    if best.consumer is NULL or rank < best.rank or (rank == best.rank and (
            value < best.value or (value == best.value and consumer.cost < (<Consumer>best.consumer).cost))):
        best.consumer = <PyObject*>at
        best.value = value
        best.rank = rank


cdef uint32_t uplink_cost(ForwardingAddress address) noexcept:
    """Return the cost of the uplink among the consumers of an address; GONE: there is none."""
    cdef Consumer consumer
    for consumer in address.by_edge:
        if consumer.edge and consumer.peer is None:
            return consumer.cost
    return GONE


cdef int forward_closest(ForwardingAddress address, InDelivery* d, Content* c, int n) except -1:
    """Forward in strict rotation over the consumers here, or, if other edge routers have some, over the nearest."""
    cdef Consumer consumer
    cdef bint nearest = address.served is not None
    cdef uint32_t least = least_distance(address, c) if nearest else 0
    for _ in range(n):
        consumer = <Consumer>address.consumers[address.start]
        address.start = address.start + 1 if address.start + 1 < n else 0
        if not returns_to_edge(consumer, c) and (not nearest or distance(consumer) == least):
            offer_to_consumer(address, consumer, d, c)
            return 1
    return 0


cdef inline uint32_t distance(Consumer consumer) noexcept:
    """Return the distance of a consumer: by cost; at equal costs the uplink comes before another edge router."""
    return 2 * consumer.cost + (consumer.peer is not None)


cdef uint32_t least_distance(ForwardingAddress address, const Content* c) noexcept:
    """Return the distance of the nearest consumers that may get the delivery."""
    cdef Consumer consumer
    cdef uint32_t least = GONE
    if len(address.by_edge) < len(address.consumers):
        return 0                           # some are clients of this router
    for consumer in address.by_edge:
        if not returns_to_edge(consumer, c) and distance(consumer) < least:
            least = distance(consumer)
    return least


cdef int forward_balanced_remote(ForwardingAddress address, InDelivery* d, Content* c, int n) except -1:
    """Forward to another router if that is better than any consumer here (inter-router.md 11.5).

    Returns the number of copies; 0: it is not. The value of a router is its unsettled deliveries plus its cost. Its
    capacity is compared with the unsettled deliveries alone.
    """
    cdef BestConsumer here
    cdef NextHopChoice step
    # At equal values a consumer here wins. An idle one wins at once.
    best_consumer(address, c.came_by, n, &here)
    if here.consumer is not NULL and here.value == 0:
        return 0
    choose_remote(address, priority_of(address, c), address.network.origin_of(&c.sections.ingress), c.producer, &here,
                  &step)
    if step.link is NULL:
        return 0
    c.outstanding = step.outstanding
    offer_to_next_hop(address, <Consumer>step.link, d, c)
    c.outstanding = NULL
    return 1


cdef void choose_remote(ForwardingAddress address, int priority, int origin, uint64_t producer,
                        const BestConsumer* here,
                        NextHopChoice* step) noexcept:
    """Choose the next hop of the router that is better than the best consumer here. step.link is NULL if none is."""
    cdef void* ways = <void*>address.ways
    cdef void* way
    cdef void* link
    cdef void* destination
    cdef void* chosen = NULL
    cdef uint64_t value, unsettled, best_value = here.value
    cdef bint eligible, best_eligible = here.eligible
    cdef bint alone = here.consumer is NULL and items_in(ways) == 1
    cdef Py_ssize_t at
    step.link = NULL
    for at in range(items_in(ways)):
        way = item_at(ways, at)
        destination = nearest_destination(way, origin)
        if destination is NULL:
            continue
        link = (<Path>way).pick(priority, producer)
        if link is NULL:
            continue
        if not alone:
            unsettled = (<Path>way).unsettled()
            value = unsettled + (<RemoteDestination>destination).router.cost
            eligible = unsettled < (<Consumer>link).capacity
            if not ((here.consumer is NULL and chosen is NULL) or (eligible and not best_eligible) or (
                    eligible == best_eligible and (value < best_value or (
                        chosen is not NULL and value == best_value
                        and (<RemoteDestination>destination).index < (<RemoteDestination>chosen).index)))):
                continue
            best_value = value
            best_eligible = eligible
        chosen = destination
        step.link = link
    step.outstanding = NULL if chosen is NULL else (<RemoteDestination>chosen).own.tally


cdef void choose_next_hop(ForwardingAddress address, int priority, const Sections* sections, uint64_t producer,
                          NextHopChoice* step) noexcept:
    cdef BestConsumer nobody
    cdef int origin = HERE
    cdef void* nearest = <void*>address.nearest
    step.link = step.outstanding = NULL
    step.alone = True
    if items_in(<void*>address.consumers) or address.version != address.network.version:
        return
    if address.priority >= 0:
        priority = address.priority
    elif priority < 0:
        priority = DEFAULT_PRIORITY
    if address.treatment == BALANCED:
        nobody.consumer = NULL
        nobody.value = 0
        nobody.eligible = False
        if sections is not NULL:
            origin = address.network.origin_of(&sections.ingress)
        choose_remote(address, priority, origin, producer, &nobody, step)
        step.alone = items_in(<void*>address.ways) == 1
    elif address.treatment == CLOSEST and items_in(nearest) == 1:
        step.link = (<Path>(<tuple>item_at(nearest, 0))[1]).pick(priority, producer)


cdef int forward_nearest(ForwardingAddress address, InDelivery* d, Content* c) except -1:
    """Forward to the router of lowest cost, in rotation among equals; unreachable routers are skipped
    (inter-router.md 11.4)."""
    cdef tuple found
    cdef void* link
    cdef int priority = priority_of(address, c)
    cdef uint32_t first = 0
    cdef uint32_t equal, i
    cdef uint32_t n = <uint32_t>len(address.nearest)
    cdef uint32_t cost
    while first < n:
        cost = cost_of(<tuple>address.nearest[first])
        equal = 1
        while first + equal < n and cost_of(<tuple>address.nearest[first + equal]) == cost:
            equal += 1
        for i in range(equal):
            found = <tuple>address.nearest[first + (address.turn + i) % equal]
            link = (<Path>found[1]).pick(priority, c.producer)
            if link is not NULL:
                address.turn += i + 1
                offer_to_next_hop(address, <Consumer>link, d, c)
                return 1
        first += equal
    return 0


cdef inline uint32_t cost_of(tuple found) noexcept:
    return (<RemoteDestination>found[0]).router.cost


cdef int forward_multicast(ForwardingAddress address, InDelivery* d, Content* c, int* remote) except -1:
    """Make one copy for each consumer, and one for each next hop that leads to other routers with consumers.

    Each other worker gets one record for all its consumers. Returns the number of copies for consumers; `remote` gets
    the number of copies for next hops.
    """
    cdef Consumer consumer
    try:
        return offer_to_all(address, d, c, remote)
    except BaseException:
        for consumer in [*address.consumers, *(multicast_links(address, c) if remote is not NULL else ()),
                         *uplink_of(address)]:
            if consumer.port is not None:
                consumer.port.outgoing.target_count = 0     # the next delivery must not get these targets
        if address.spreads:
            address.network.own_port.outgoing.target_count = 0
        raise


cdef PortOut spread_port(ForwardingAddress address):
    """Return the port to this worker, if copies for local consumers go through its ring; None: they get them directly.

    The ring is used for very many consumers, or when the current frame has made a slice's worth of copies for other
    addresses of its exchange. Once there are fewer consumers, the ring is used until it is empty, to keep the order.
    """
    cdef WorkerPort port = address.network.own_port
    cdef bint many
    if port is None or not port.alive:
        return None
    many = items_in(<void*>address.consumers) >= spread_least or slice_used(port.scheduler)
    if not many and not address.spreads:
        return None
    address.spreads = many or port.outgoing.waiting() or port.unread()
    return port.outgoing if address.spreads else None


cdef int offer_to_all(ForwardingAddress address, InDelivery* d, Content* c, int* remote) except -1:
    """Make the copies of a multicast delivery; see `forward_multicast`."""
    cdef Consumer consumer
    cdef PortOut port
    cdef list ports = None
    cdef list links = None
    cdef PortOut own = spread_port(address)
    cdef void* consumers = <void*>address.consumers
    cdef void* at
    cdef Py_ssize_t i = 0
    cdef void* here = NULL                 # a ConsumerLink of this worker
    cdef int overflow = overflow_of(address, c)
    cdef bint unchanged = leaves_unchanged(c)
    cdef int copies = 0
    d.flags |= IN_MULTI
    if address.served is not None and c.came_by == 0:
        # The copy for the uplink names the edge routers that have their copies from here: they drop it.
        c.served.data = address.served
        c.served.size = len(address.served)
    while i < items_in(consumers):
        at = item_at(consumers, i)         # borrowed: the list keeps it, and changes only between deliveries
        i += 1
        if returns_to_edge(<Consumer>at, c):
            continue
        copies += 1
        if (<Consumer>at).link is None:
            ports = add_target(address, <Consumer>at, (<Consumer>at).port.outgoing, d, c, ports)
        elif own is None:
            here = <void*>(<Consumer>at).link
            offer_copy(here, d, c, overflow, unchanged)
        else:
            ports = add_target(address, <Consumer>at, own, d, c, ports)
    if here is not NULL:
        charge((<ConsumerLink>here).session.connection.scheduler, COPY_UNITS * copies)
    elif own is not None:
        charge(address.network.own_port.scheduler, copies // TARGETS_A_UNIT)
    if c.anonymous and not uses_uplink(address, c):
        # Nobody has asked the interior router for consumers of this address: it gets a copy in any case.
        for consumer in uplink_of(address):
            copies += 1
            if consumer.link is not None:
                consumer.link.offer(d, c, overflow)
            else:
                ports = add_target(address, consumer, consumer.port.outgoing, d, c, ports)
    if remote is not NULL:
        links = multicast_links(address, c)
        for consumer in links:
            if consumer.link is not None:
                consumer.link.offer(d, c, overflow)
            else:
                ports = add_target(address, consumer, consumer.port.outgoing, d, c, ports)
        remote[0] = <int>len(links)
        address.slot.transit += remote[0]
        totals.transit += remote[0]
    if ports is not None:
        for port in ports:
            port.offer(d, c, overflow)
    if c.served.data is not NULL:
        c.served.data = NULL               # another address has other marks
        c.served.size = 0
    if not copies and not links:
        d.flags &= ~IN_MULTI
    return copies


cdef bint uses_uplink(ForwardingAddress address, const Content* c) except *:
    """True if a consumer that gets a copy is behind the uplink of this edge router."""
    cdef Consumer consumer
    for consumer in address.consumers:
        if consumer.edge != 0 and consumer.peer is None and not returns_to_edge(consumer, c):
            return True
    return False


cdef list uplink_of(ForwardingAddress address):
    """Return the uplink of an edge router as a list of consumers, for messages to any address."""
    cdef ForwardingAddress uplink = address.network.uplink
    return [] if uplink is None or uplink is address or address.confined else uplink.consumers


cdef list add_target(ForwardingAddress address, Consumer consumer, PortOut port, InDelivery* d, Content* c, list ports):
    """Add a consumer to the record for its worker; return the list of ports that have targets."""
    consumer.sent += 1
    port.add_target(consumer.slot_index, consumer.generation)
    if port.target_count == 1:
        if ports is None:
            ports = []
        ports.append(port)
    elif port.target_count == TARGETS_A_RECORD:
        port.offer(d, c, overflow_of(address, c))
        ports.remove(port)
    return ports


cdef list multicast_links(ForwardingAddress address, Content* c):
    """Return the data links by which a multicast message goes on to other routers (inter-router.md 11.3).

    Each router is to get the message once, whatever the topology. So it goes to those routers for which this router is
    on the path from the message's ingress router. The paths from there are a tree: every router has one predecessor.
    1.19 does not look at this. A message that came back to its ingress router, or whose ingress router is unknown,
    goes nowhere.
    """
    cdef Network network = address.network
    cdef Path way
    cdef void* link
    cdef list links = []
    cdef int origin = network.origin_of(&c.sections.ingress)
    cdef int priority = priority_of(address, c)
    if c.sections.ingress.data is not NULL and origin <= HERE:
        return links
    for way in address.ways:
        if nearest_destination(<void*>way, origin) is NULL or way.goes_back(network, c):
            continue
        link = way.pick(priority, c.producer)
        if link is not NULL:
            links.append(<Consumer>link)
    return links
