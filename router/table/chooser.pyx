"""Choice of the consumer that gets a delivery (routing-semantics.md 8.2, 8.3; inter-router.md 11).

Consumers of all workers are compared alike: their scores are read from gauges in shared memory. Other routers are
compared with them: a delivery for another router goes to a data link of the next hop on the path to that router.
"""
from cpython.object cimport PyObject
from libc.stdint cimport int32_t

from sluice.router.amqp.items cimport item_at, items_in
from sluice.router.table.consumer cimport Consumer
from sluice.router.table.network cimport HERE, Path, RemoteDestination, nearest_destination
from sluice.router.table.table cimport BALANCED, CLOSEST

cdef enum:
    # Added to the score of a link that sends an unfinished stream: other links are preferred, as if this queue were
    # longer by so much.
    BUSY_SCORE = 1 << 24
    GONE = 0xFFFFFFFF          # score of a consumer whose link has ended
    FULL = 3                   # added to the rank of a consumer at its capacity

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


cdef inline void begin_choice(ForwardingAddress address, Choice* choice) noexcept:
    choice.consumer = NULL
    choice.outstanding = NULL
    choice.remote = choice.alone = choice.moves = False
    choice.start = address.start
    choice.turn = address.turn
    choice.chance = address.network.chance


cdef void choose(ForwardingAddress address, uint32_t came_by, uint64_t producer, int priority, const Slice* ingress,
                 Choice* choice) noexcept:
    cdef void* consumers = <void*>address.consumers
    cdef int n = <int>items_in(consumers)
    begin_choice(address, choice)
    if n == 1 and address.remotes is None and address.treatment <= CLOSEST:
        choice.alone = True
        if not returns_to_edge(item_at(consumers, 0), came_by):
            choice.consumer = item_at(consumers, 0)
    elif address.treatment == BALANCED:
        if address.served is not None:
            choose_balanced_at_edge(address, came_by, n, choice)
        else:
            choose_balanced(address, came_by, producer, priority, ingress, n, choice)
    elif address.treatment == CLOSEST:
        choose_closest(address, came_by, n, choice)
        if choice.consumer is NULL and address.remotes is not None:
            choose_nearest(address, producer, priority, choice)


cdef inline int place_after(int place, int n) noexcept nogil:
    return place + 1 if place + 1 < n else 0


cdef inline uint64_t next_random(Choice* choice) noexcept nogil:
    """Return a random number (xorshift64*). A worker draws the same sequence after each start."""
    cdef uint64_t x = choice.chance
    x ^= x >> 12
    x ^= x << 25
    x ^= x >> 27
    choice.chance = x
    choice.moves = True
    return x * <uint64_t>0x2545F4914F6CDD1D


# routing-semantics.md 8.10.
cdef inline uint32_t score(Consumer c) noexcept:
    """Return the number of deliveries that are queued for a consumer, sent to it and unsettled, or still in a ring to
    its worker."""
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


# ---------------------------------------------------------------------------------------------------------------------
# Balanced: by load

cdef inline void compare_consumer(void* at, uint32_t came_by, BestConsumer* best) noexcept:
    """Compare one more consumer: first by room below its capacity, then by score; the earlier one wins if equal."""
    cdef Consumer consumer = <Consumer>at
    cdef uint32_t value
    cdef bint eligible
    if returns_to_edge(at, came_by):
        return
    value = score(consumer)
    eligible = value < consumer.capacity
    if best.consumer is NULL or (eligible and not best.eligible) or (eligible == best.eligible and value < best.value):
        best.consumer = <PyObject*>at
        best.value = value
        best.eligible = eligible


cdef inline void compare_some(void* consumers, int start, uint32_t came_by, int n, int some,
                              BestConsumer* best) noexcept:
    """Compare `some` of the n consumers, from `start` on, stopping at an idle one."""
    cdef int at = start
    for _ in range(some):
        compare_consumer(item_at(consumers, at), came_by, best)
        at = place_after(at, n)
        if best.value == 0 and best.consumer is not NULL:
            return


cdef void choose_least_loaded(ForwardingAddress address, uint32_t came_by, Choice* choice) noexcept:
    cdef BestConsumer best
    cdef int n = <int>items_in(<void*>address.consumers)
    best.consumer = NULL
    best.value = 0
    best.eligible = False
    begin_choice(address, choice)
    compare_some(<void*>address.consumers, choice.start, came_by, n, n, &best)
    use_best(&best, n, choice)


cdef inline void use_best(const BestConsumer* best, int n, Choice* choice) noexcept:
    """Choose the best consumer. If it is idle and there are at most FEW_CONSUMERS, the list rotates."""
    choice.consumer = <void*>best.consumer
    if best.consumer is not NULL and best.value == 0 and n <= FEW_CONSUMERS:
        choice.start = place_after(choice.start, n)
        choice.moves = True


cdef void find_best(ForwardingAddress address, uint32_t came_by, int n, Choice* choice, BestConsumer* best) noexcept:
    """Find the consumer with the best score. Of more than FEW_CONSUMERS, only some are compared (decision 0039)."""
    cdef void* consumers = <void*>address.consumers
    cdef uint64_t chance
    cdef int first, second
    best.consumer = NULL
    best.value = 0
    best.eligible = False
    if n <= FEW_CONSUMERS:
        compare_some(consumers, choice.start, came_by, n, n, best)
        return
    # Idle consumers are served in rotation.
    compare_consumer(item_at(consumers, choice.start), came_by, best)
    choice.start = place_after(choice.start, n)
    choice.moves = True
    if best.consumer is not NULL and best.value == 0:
        return
    chance = next_random(choice)
    first = <int>(((chance >> 32) * <uint64_t>n) >> 32)
    second = first + 1 + <int>(((chance & 0xFFFFFFFF) * <uint64_t>(n - 1)) >> 32)
    compare_consumer(item_at(consumers, first), came_by, best)
    compare_consumer(item_at(consumers, second if second < n else second - n), came_by, best)
    if not best.eligible:
        compare_some(consumers, choice.start, came_by, n, FEW_CONSUMERS, best)
        choice.start = (choice.start + FEW_CONSUMERS) % n
    if best.consumer is NULL:              # all compared are on the connection that the delivery came by
        compare_some(consumers, choice.start, came_by, n, n, best)


cdef void choose_balanced(ForwardingAddress address, uint32_t came_by, uint64_t producer, int priority,
                          const Slice* ingress, int n, Choice* choice) noexcept:
    """Choose the consumer with the lowest score, the earlier one if equal, or another router if that is better.

    A consumer here wins against a router of equal value. An idle consumer here is chosen without comparing routers
    (inter-router.md 11.5).
    """
    cdef BestConsumer here
    find_best(address, came_by, n, choice, &here)
    if address.remotes is not None and (here.consumer is NULL or here.value):
        choose_remote(address, priority_at(address, priority),
                      HERE if ingress is NULL else address.network.origin_of(ingress), producer, &here, choice)
        if choice.remote:
            choice.alone = n == 0 and items_in(<void*>address.ways) == 1
            return
    use_best(&here, n, choice)


cdef void choose_remote(ForwardingAddress address, int priority, int origin, uint64_t producer,
                        const BestConsumer* here, Choice* choice) noexcept:
    """Choose the best other router, if it is better than the best consumer here: a data link of its next hop.

    The value of a router is the number of unsettled deliveries to it, plus its cost. Only the number of unsettled
    deliveries is compared with the capacity of the link.
    """
    cdef void* ways = <void*>address.ways
    cdef void* way
    cdef void* link
    cdef void* destination
    cdef void* chosen = NULL
    cdef uint64_t value, unsettled, best_value = here.value
    cdef bint eligible, best_eligible = here.eligible
    cdef bint alone = here.consumer is NULL and items_in(ways) == 1
    cdef Py_ssize_t at
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
        choice.consumer = link
    if chosen is not NULL:
        choice.remote = True
        choice.outstanding = (<RemoteDestination>chosen).own.tally


cdef void choose_balanced_at_edge(ForwardingAddress address, uint32_t came_by, int n, Choice* choice) noexcept:
    """Choose at an edge router whose peers have consumers as well: the cost of a connection is added to the score. At
    equal values a consumer of this router wins.

    Consumers that are nearer than the uplink and below their capacity win against it, whatever their scores. The uplink
    may lead to the same consumers, so a producer's messages would reach them by two paths, in any order.
    """
    cdef void* consumers = <void*>address.consumers
    cdef void* by_edge = <void*>address.by_edge
    cdef BestEdgeConsumer best
    cdef uint32_t uplink = uplink_cost(address)
    cdef int at = choice.start
    best.consumer = NULL
    best.value = 0
    best.rank = 0
    if n > FEW_CONSUMERS:
        for at in range(<int>items_in(by_edge)):
            compare_edge_consumer(item_at(by_edge, at), came_by, uplink, &best)
        for _ in range(2):
            at = <int>(((next_random(choice) >> 32) * <uint64_t>n) >> 32)
            compare_edge_consumer(item_at(consumers, at), came_by, uplink, &best)
        at = choice.start
        if best.consumer is NULL or best.rank >= FULL:
            choice.start = (at + FEW_CONSUMERS) % n
    if n <= FEW_CONSUMERS or best.consumer is NULL or best.rank >= FULL:
        for _ in range(n if best.consumer is NULL else FEW_CONSUMERS):
            compare_edge_consumer(item_at(consumers, at), came_by, uplink, &best)
            at = place_after(at, n)
    choice.consumer = <void*>best.consumer
    if best.consumer is not NULL and best.value == (<Consumer>best.consumer).cost and n <= FEW_CONSUMERS:
        choice.start = place_after(choice.start, n)
        choice.moves = True


cdef inline void compare_edge_consumer(void* at, uint32_t came_by, uint32_t uplink, BestEdgeConsumer* best) noexcept:
    """Compare one more consumer, of this or another edge router."""
    cdef Consumer consumer = <Consumer>at
    cdef uint32_t outstanding, value
    cdef int rank
    if returns_to_edge(at, came_by):
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


# ---------------------------------------------------------------------------------------------------------------------
# Closest: in rotation over the nearest

cdef void choose_closest(ForwardingAddress address, uint32_t came_by, int n, Choice* choice) noexcept:
    """Choose in strict rotation over the consumers here. At an edge router with peers, only over the nearest ones."""
    cdef void* consumers = <void*>address.consumers
    cdef void* at
    cdef int place = choice.start
    cdef bint nearest = address.served is not None
    cdef uint32_t least = least_distance(address, came_by) if nearest else 0
    for _ in range(n):
        at = item_at(consumers, place)
        place = place_after(place, n)
        if not returns_to_edge(at, came_by) and (not nearest or distance(<Consumer>at) == least):
            choice.consumer = at
            choice.start = place
            choice.moves = n > 1
            choice.alone = n == 1
            return


cdef inline uint32_t distance(Consumer consumer) noexcept:
    """Return the sort key of a consumer by cost. At equal costs the uplink precedes another edge router."""
    return 2 * consumer.cost + (consumer.peer is not None)


cdef uint32_t least_distance(ForwardingAddress address, uint32_t came_by) noexcept:
    """Return the least `distance` of the consumers that may get the delivery."""
    cdef Consumer consumer
    cdef uint32_t least = GONE
    if items_in(<void*>address.by_edge) < items_in(<void*>address.consumers):
        return 0                           # some are clients of this router
    for consumer in address.by_edge:
        if not returns_to_edge(<void*>consumer, came_by) and distance(consumer) < least:
            least = distance(consumer)
    return least


cdef void choose_nearest(ForwardingAddress address, uint64_t producer, int priority, Choice* choice) noexcept:
    """Choose the router of lowest cost, in rotation among equal costs. Unreachable routers are skipped
    (inter-router.md 11.4)."""
    cdef void* nearest = <void*>address.nearest
    cdef void* way
    cdef void* link
    cdef uint32_t first = 0
    cdef uint32_t equal, i
    cdef uint32_t n = <uint32_t>items_in(nearest)
    cdef uint32_t cost
    priority = priority_at(address, priority)
    while first < n:
        cost = cost_of(item_at(nearest, first))
        equal = 1
        while first + equal < n and cost_of(item_at(nearest, first + equal)) == cost:
            equal += 1
        for i in range(equal):
            way = item_at(nearest, first + (choice.turn + i) % equal)
            link = (<Path>(<tuple>way)[1]).pick(priority, producer)
            if link is not NULL:
                choice.consumer = link
                choice.remote = True
                choice.alone = n == 1 and items_in(<void*>address.consumers) == 0
                if equal > 1:
                    choice.turn += i + 1
                    choice.moves = True
                return
        first += equal


cdef inline uint32_t cost_of(void* found) noexcept:
    return (<RemoteDestination>(<tuple>found)[0]).router.cost
