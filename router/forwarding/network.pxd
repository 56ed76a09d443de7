"""Other routers and the ways to them, as a worker routes by them. Changed only between two wakes."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from router.amqp.codec cimport Slice
from router.amqp.items cimport item_at, items_in
from router.stats.counters cimport Tally
from router.message.content cimport Content
from router.interworker.layout cimport RemoteSlot
from router.interworker.port cimport WorkerPort
from router.interworker.region cimport Region
from router.forwarding.consumer cimport Consumer

cdef enum:
    PRIORITIES = 10            # as in router.addressing.settings
    DEFAULT_PRIORITY = 4
    HERE = 0                               # index of this router
    UNKNOWN_ROUTER = -1
    # A trace that is longer is of no network of Dispatch, which has 128 routers: it goes round in circles. The limit
    # until `radius` is known.
    MOST_HOPS = 129

# An inter-router connection of any worker, as a next hop. Owner: the network.
cdef class NextHop:
    cdef readonly uint32_t conn
    cdef readonly int neighbour            # index of the router at its other end, 0: not known
    cdef uint64_t since                    # the last producer's number when it came
    cdef list links                        # Consumer by priority, None where there is none at or below it

# Another router. Owner: the network.
cdef class Router:
    cdef readonly int index
    cdef readonly str id
    cdef readonly uint32_t cost
    cdef readonly list conns               # its next hops' connections
    cdef uint64_t* origins                 # bit set of indices
    cdef uint32_t words
    # Whether a message that entered the network there comes this way, to be sent on to this router.
    cdef bint valid(self, int origin) noexcept

# Counts unsettled deliveries of this worker to a router by an address, while the counter is theirs. Owner: the network.
cdef class Outstanding:
    cdef Tally* tally
    cdef int uses                          # Destinations
    # The counter may be another's from the next epoch on: deliveries that live are counted no more.
    cdef void end(self) noexcept

# A router that announced an address. Owner: the address.
cdef class RemoteDestination:
    cdef readonly int index
    cdef readonly uint32_t counters
    cdef Router router                     # None while it is not known
    cdef Outstanding own                   # unsettled deliveries of this worker
    cdef const uint64_t* wakes             # of this worker: the others' are added up once in each …
    cdef uint64_t added_in                 # … and were in that one
    cdef uint64_t others                   # unsettled deliveries of all other workers
    cdef const RemoteSlot* mine
    cdef const uint8_t* first              # of worker 0 …
    cdef size_t stride                     # … and from worker to worker
    cdef int workers
    cdef uint64_t unsettled(self) noexcept

# Next hops that some of the routers which announced an address have in common. Owner: the address.
cdef class Path:
    cdef list hops                         # NextHop, at least one
    cdef list destinations                 # RemoteDestination, by (cost, index)
    cdef uint64_t unsettled(self) noexcept
    # The link (Consumer, borrowed) of the hop that this content's producer keeps to, or NULL when every one is gone.
    cdef void* pick(self, int priority, uint64_t producer) noexcept
    # Whether a message that came by this connection, or through these routers, would go back.
    cdef bint goes_back(self, Network network, const Content* c) noexcept

# A node id ("0/ID") in a table of such.
cdef struct Node:
    const uint8_t* text                    # NULL: free
    uint32_t size
    int index

# Owner: the table.
cdef class Network:
    cdef readonly uint64_t version         # of ways: they are found anew when it has changed
    cdef uint32_t hop_limit                # routers in a trace
    cdef dict hops                         # conn -> NextHop
    cdef dict routers                      # index -> Router
    cdef dict before                       # conn -> NextHop of before a snapshot
    cdef dict counters                     # counters in use -> Outstanding
    cdef Node* nodes
    cdef uint32_t node_slots               # a power of two
    cdef list node_texts                   # bytes that `nodes` point into
    cdef bint nodes_stale
    cdef uint64_t chance                   # of `draw`
    cdef object uplink                     # of an edge router: the Address of what is beyond, None: it has none
    cdef WorkerPort own_port               # to this worker itself; None: it has none
    cdef dict edges                        # of an edge router: Addresses of others that it is connected to, by id
    cdef int find_nodes(self) except -1
    # Index of the router that an encoded node id names; HERE when there is none.
    cdef int origin_of(self, const Slice* encoded) noexcept
    cdef list ways(self, list destinations)


cdef inline uint64_t draw(Network network) noexcept nogil:
    """A number by chance: xorshift64*. A worker draws the same ones after each start."""
    cdef uint64_t x = network.chance
    x ^= x >> 12
    x ^= x << 25
    x ^= x >> 27
    network.chance = x
    return x * <uint64_t>0x2545F4914F6CDD1D


# Borrowed objects, for each delivery to another router.

cdef inline void* link_of(void* hop, int priority) noexcept:
    """The data link (Consumer) of a NextHop for messages of this priority; NULL: it is gone."""
    cdef void* consumer = item_at(<void*>(<NextHop>hop).links, priority)
    if consumer is <void*>None or (<Consumer>consumer).slot.generation != (<Consumer>consumer).generation:
        return NULL
    return consumer


cdef inline void* nearest_of(void* way, int origin) noexcept:
    """The nearest RemoteDestination of a Path for which that origin is valid, or NULL."""
    cdef void* destinations = <void*>(<Path>way).destinations
    cdef Py_ssize_t at
    for at in range(items_in(destinations)):
        if origin <= HERE or (<RemoteDestination>item_at(destinations, at)).router.valid(origin):
            return item_at(destinations, at)
    return NULL
