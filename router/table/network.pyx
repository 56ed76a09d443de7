"""Other routers and the paths to them, as a worker uses them (inter-router.md 8, 11; control protocol, "Deltas").

The supervisor computes routes and sends the results as ops: next hops (inter-router connections with a data link for
each priority), routers (next hops, cost, valid origins), and the routers that announced each address. An address makes
its paths from these when it is next used. A delivery walks lists of C-level objects without interpreter work.
"""
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from sluice.router.amqp.codec cimport open_list, open_variable, skip_value
from sluice.router.stats.counters cimport tally_new, tally_release
from sluice.router.links.granting_link cimport producers_made
from sluice.router.table.consumer cimport find_consumer

cdef enum:
    WORD_BITS = 64
    FEW_NODES = 16                         # slots of the smallest table of node ids
    LINK_CAPACITY = 250                    # unsettled deliveries at a next hop, above which others are preferred

cdef uint32_t FNV_BASIS = 0x811C9DC5
cdef uint32_t FNV_PRIME = 0x01000193
cdef uint64_t SPREAD_PRODUCER = 0x9E3779B97F4A7C15
cdef uint64_t SPREAD_CONN = 0xC2B2AE3D27D4EB4F


cdef class NextHop:
    pass


cdef class Router:
    def __dealloc__(self):
        free(self.origins)

    cdef bint valid(self, int origin) noexcept:
        cdef uint32_t word = <uint32_t>origin // WORD_BITS
        if origin <= HERE:
            return True                    # entered at this router, or at an unknown one
        return word < self.words and (self.origins[word] >> (<uint32_t>origin % WORD_BITS)) & 1

    def use_origins(self, str text not None):
        """Set the valid origins from a hexadecimal number, in which bit i is the router with index i.

        Raises ValueError.
        """
        bits = int(text, 16) if text else 0
        words = (bits.bit_length() + WORD_BITS - 1) // WORD_BITS
        free(self.origins)
        self.words = 0
        self.origins = <uint64_t*>calloc(words or 1, sizeof(uint64_t))
        if self.origins is NULL:
            raise MemoryError("valid origins")
        for word in range(words):
            self.origins[word] = bits & 0xFFFFFFFFFFFFFFFF
            bits >>= WORD_BITS
        self.words = words


cdef class AwaitedRouter(Router):
    """Router that is unreachable and awaited: messages wait on the way to it that was the last one."""


cdef class OutstandingCounter:
    def __dealloc__(self):
        if self.tally is not NULL:
            self.tally.count = NULL
            tally_release(self.tally)

    cdef void end(self) noexcept:
        self.tally.count = NULL


cdef class RemoteDestination:
    cdef uint64_t unsettled(self) noexcept:
        """Return the unsettled deliveries of all workers: of this one now, of the others at the start of the wake."""
        cdef uint64_t wake = self.wakes[0]
        cdef uint64_t total = 0
        cdef const uint8_t* p
        if self.added_in != wake or wake == 0:
            self.added_in = wake
            p = self.first
            for _ in range(self.workers):
                total += (<const RemoteSlot*>p).unsettled
                p += self.stride
            self.others = total - self.mine.unsettled
        return self.others + self.mine.unsettled


cdef class Path:
    cdef uint64_t unsettled(self) noexcept:
        cdef uint64_t total = 0
        cdef RemoteDestination destination
        for destination in self.destinations:
            total += destination.unsettled()
        return total

    cdef void* pick(self, int priority, uint64_t producer) noexcept:
        """Choose one of several connections by rendezvous hashing: the heaviest hash of producer and connection wins.

        A new connection moves no producer, because a producer chooses only among connections that are older than
        itself. A lost one moves only its own producers. A producer older than all of them takes the oldest connection.

        inter-router-protocol.md 4.2.
        """
        cdef void* hops = <void*>self.hops
        cdef void* hop
        cdef void* consumer
        cdef void* best = NULL
        cdef void* oldest = NULL
        cdef uint64_t weight, since, best_weight = 0, oldest_since = 0
        cdef Py_ssize_t at
        if items_in(hops) == 1:
            return link_of(item_at(hops, 0), priority)
        for at in range(items_in(hops)):
            hop = item_at(hops, at)
            consumer = link_of(hop, priority)
            if consumer is NULL:
                continue
            since = (<NextHop>hop).since
            if producer > since:
                weight = (producer * SPREAD_PRODUCER) ^ ((<NextHop>hop).conn * SPREAD_CONN)
                weight = (weight ^ (weight >> 29)) * SPREAD_PRODUCER
                weight ^= weight >> 32
                if best is NULL or weight > best_weight:
                    best = consumer
                    best_weight = weight
            elif oldest is NULL or since < oldest_since:
                oldest = consumer
                oldest_since = since
        return best if best is not NULL else oldest

    cdef bint goes_back(self, Network network, const Content* c) noexcept:
        cdef NextHop hop
        cdef const Slice* trace = &c.sections.trace
        cdef const uint8_t* p
        cdef const uint8_t* end
        cdef uint32_t count
        cdef Slice item
        cdef int index
        cdef bint known = False
        for hop in self.hops:
            if c.came_by and hop.conn == c.came_by:
                return True
            known = known or hop.neighbour
        if trace.data is NULL or not known:
            return False
        p = open_list(trace.data, trace.data + trace.size, &count, &end)
        while p is not NULL and p < end:
            item.data = p
            p = skip_value(p, end)
            if p is NULL:
                break
            item.size = p - item.data
            index = network.origin_of(&item)
            if index > HERE:
                for hop in self.hops:
                    if hop.neighbour == index:
                        return True
        return False


def by_distance(RemoteDestination destination not None):
    """Return the sort key of a destination: its distance."""
    return destination.router.cost, destination.index


cdef class Network:
    """The network as this worker knows it: next hops, routers, and the counters of remote destinations."""

    def __cinit__(self, int worker=0):
        """worker: this worker."""
        self.version = 1
        self.chance = (<uint64_t>worker + 1) * SPREAD_PRODUCER
        self.hop_limit = MOST_HOPS
        self.counters = {}
        self.before = {}
        self.clear()

    def __dealloc__(self):
        free(self.nodes)

    def clear(self):
        """Forget everything: a snapshot follows. Connections that it names keep their age (NextHop.since)."""
        self.before = self.hops or {}
        cdef OutstandingCounter counter
        for counter in self.counters.values():
            counter.uses = 0
        self.hops = {}
        self.routers = {}
        self.hop_limit = MOST_HOPS
        self.uplink = None
        self.edges = {}
        self.changed()

    def changed(self):
        """Make every address find its paths anew when it is next used."""
        self.version += 1
        self.nodes_stale = True

    # -- ops ----------------------------------------------------------------------------------------------------------

    def apply_next_hop(self, Region region not None, int worker, list ports not None, dict links not None, op):
        """Apply a NextHopOp of sluice.router.control.ops (inter-router-protocol.md 6.2)."""
        cdef NextHop hop = self.hops.get(op.conn) or self.before.pop(op.conn, None)
        cdef Consumer lower = None
        if hop is None:
            hop = NextHop()
            hop.conn = op.conn
            hop.since = producers_made()
        hop.neighbour = 0 if op.neighbour is None else op.neighbour
        hop.links = []
        for named in (op.links + [None] * PRIORITIES)[:PRIORITIES]:
            if named is not None:
                lower = find_consumer(region, worker, ports, links, op.worker, named[0], named[1],
                                      LINK_CAPACITY, 0, 0, "") or lower
            hop.links.append(lower)
        self.hops[hop.conn] = hop
        self.changed()

    def drop_hop(self, conn):
        if self.hops.pop(conn, None) is not None:
            self.changed()

    def apply_router(self, op):
        """Apply a RouterOp of sluice.router.control.ops."""
        cdef Router router = AwaitedRouter() if op.awaited else Router()
        router.index = op.index
        router.id = op.id
        router.conns = list(op.conns)
        router.cost = op.cost
        router.use_origins(op.origins)
        self.routers[router.index] = router
        self.changed()

    def drop_router(self, index):
        if self.routers.pop(index, None) is not None:
            self.changed()

    def apply_radius(self, radius):
        """Set the limit of a trace. radius: hops to the farthest router."""
        self.hop_limit = radius + 1

    def destination(self, Region region not None, int worker, int index, uint32_t counters):
        """Make the destination of an address that a router announced.

        Newly used counters start at 0 for this worker.
        """
        cdef RemoteDestination destination = RemoteDestination()
        cdef OutstandingCounter counter = self.counters.get(counters)
        cdef RemoteSlot* slot
        if counter is None:
            slot = region.remote_slot(worker, counters)
            slot.unsettled = 0
            self.counters[counters] = counter = OutstandingCounter()
            counter.tally = tally_new(&slot.unsettled)
        counter.uses += 1
        destination.own = counter
        destination.index = index
        destination.counters = counters
        destination.first = <const uint8_t*>region.remote_slot(0, counters)
        destination.stride = region.addresses_stride
        destination.workers = region.workers
        destination.mine = region.remote_slot(worker, counters)
        destination.wakes = &region.worker_slot(worker).wakes
        return destination

    def drop_destination(self, RemoteDestination destination not None):
        """Release the counters of a destination that its address has lost; the next epoch may reuse them."""
        destination.own.uses -= 1
        if not destination.own.uses:
            destination.own.end()
            del self.counters[destination.counters]

    # -- paths --------------------------------------------------------------------------------------------------------

    def are_awaited(self, list ways not None):
        """Return True if all that these Paths lead to is awaited."""
        cdef Path way
        cdef RemoteDestination destination
        for way in ways:
            destination = way.destinations[0]
            if not isinstance(destination.router, AwaitedRouter):
                return False
        return True

    cdef list ways(self, list destinations):
        """Look up the routers of these RemoteDestinations; return one Path for each set of next hops.

        Routers that are awaited get nothing while another one is reachable.
        """
        cdef RemoteDestination destination
        cdef Path way
        cdef list awaited = []
        cdef dict found = {}
        for destination in destinations:
            destination.router = self.routers.get(destination.index)
            if isinstance(destination.router, AwaitedRouter):
                awaited.append(destination)
            elif destination.router is not None:
                self.add_to_path(found, destination)
        if not found:
            for destination in awaited:
                self.add_to_path(found, destination)
        for way in found.values():
            way.destinations.sort(key=by_distance)
        return list(found.values())

    def add_to_path(self, dict found not None, RemoteDestination destination not None):
        """Add a destination to the Path of its next hops; found: Paths by their first connection."""
        cdef Path way
        hops = [self.hops[conn] for conn in destination.router.conns if conn in self.hops]
        if hops:
            way = found.get((<NextHop>hops[0]).conn)
            if way is None:
                way = Path()
                way.hops = hops
                way.destinations = []
                found[(<NextHop>hops[0]).conn] = way
            way.destinations.append(destination)

    # -- names --------------------------------------------------------------------------------------------------------

    cdef int find_nodes(self) except -1:
        """Build the hash table of node ids."""
        cdef Router router
        cdef uint32_t slots = FEW_NODES
        cdef uint32_t at
        cdef bytes text
        self.nodes_stale = False
        free(self.nodes)
        self.nodes = NULL
        while slots < 2 * len(self.routers):
            slots *= 2
        self.nodes = <NodeEntry*>calloc(slots, sizeof(NodeEntry))
        if self.nodes is NULL:
            raise MemoryError("table of routers")
        self.node_slots = slots
        self.node_texts = []
        for router in self.routers.values():
            text = ("0/" + router.id).encode()
            self.node_texts.append(text)
            at = hash_of(text, len(text)) & (slots - 1)
            while self.nodes[at].text is not NULL:
                at = (at + 1) & (slots - 1)
            self.nodes[at].text = text
            self.nodes[at].size = <uint32_t>len(text)
            self.nodes[at].index = router.index
        return 0

    def settle(self):
        """Finish an epoch whose ops are all applied."""
        if self.nodes_stale:
            self.find_nodes()
            self.before = {}
            self._drop_unused()

    def _drop_unused(self):
        """Drop the counters that a snapshot does not name."""
        cdef OutstandingCounter counter
        for number, counter in list(self.counters.items()):
            if not counter.uses:
                counter.end()
                del self.counters[number]

    cdef int origin_of(self, const Slice* encoded) noexcept:
        cdef Slice text
        cdef uint32_t at
        cdef NodeEntry* node
        if encoded.data is NULL or self.nodes is NULL \
                or open_variable(encoded.data, encoded.data + encoded.size, &text) is NULL:
            return HERE
        at = hash_of(text.data, text.size) & (self.node_slots - 1)
        node = &self.nodes[at]
        while node.text is not NULL:
            if node.size == text.size and memcmp(node.text, text.data, text.size) == 0:
                return node.index
            at = (at + 1) & (self.node_slots - 1)
            node = &self.nodes[at]
        return UNKNOWN_ROUTER


cdef inline uint32_t hash_of(const uint8_t* p, size_t size) noexcept nogil:
    cdef uint32_t h = FNV_BASIS
    cdef size_t i
    for i in range(size):
        h = (h ^ p[i]) * FNV_PRIME
    return h
