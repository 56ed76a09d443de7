"""Other routers and the paths to them, as a worker uses them. Changed only between two wakes."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.items cimport item_at, items_in
from sluice.router.stats.counters cimport Tally
from sluice.router.message.content cimport Content
from sluice.router.ring.layout cimport RemoteSlot
from sluice.router.ring.port cimport WorkerPort
from sluice.router.ring.region cimport Region
from sluice.router.table.consumer cimport Consumer

cdef enum:
    PRIORITIES = 10            # as in sluice.router.addressing.settings
    DEFAULT_PRIORITY = 4
    HERE = 0                               # index of this router
    UNKNOWN_ROUTER = -1                    # index of a router that is not in the table
    # Routers in a trace, until `radius` is known. Dispatch networks have at most 128 routers, so a message with a
    # longer trace is in a loop.
    MOST_HOPS = 129

# An inter-router connection of any worker, as a next hop. Owner: the network.
cdef class NextHop:
    cdef readonly uint32_t conn
    cdef readonly int neighbour            # index of the router at its other end; 0: not known
    cdef uint64_t since                    # number of the last producer made before the connection came
    cdef list links                        # Consumer by priority; None: no link for this priority or a lower one

# Another router. Owner: the network.
cdef class Router:
    cdef readonly int index
    cdef readonly str id
    cdef readonly uint32_t cost
    cdef readonly list conns               # connection numbers of its next hops
    cdef uint64_t* origins                 # bit set of router indices: its valid origins
    cdef uint32_t words                    # length of `origins`
    # Return True if messages that entered the network at `origin` pass this router on their way to that one.
    cdef bint valid(self, int origin) noexcept

# Counter of this worker's unsettled deliveries to a router by an address, while the slot in shared memory belongs to
# that pair. Owner: the network.
cdef class OutstandingCounter:
    cdef Tally* tally
    cdef int uses                          # RemoteDestinations that use it
    # Stop counting: from the next epoch on the slot may belong to another pair. Copies that still live are not
    # counted.
    cdef void end(self) noexcept

# A router that announced an address. Owner: the address.
cdef class RemoteDestination:
    cdef readonly int index
    cdef readonly uint32_t counters        # number of its counters in the region
    cdef Router router                     # None while it is not known
    cdef OutstandingCounter own                   # counter of this worker
    # The counters of the other workers are summed once in each wake of this one.
    cdef const uint64_t* wakes             # wakes of this worker so far
    cdef uint64_t added_in                 # the wake of the last sum
    cdef uint64_t others                   # sum of unsettled deliveries of all other workers
    cdef const RemoteSlot* mine
    cdef const uint8_t* first              # RemoteSlot of worker 0
    cdef size_t stride                     # octets from one worker's RemoteSlot to the next
    cdef int workers
    cdef uint64_t unsettled(self) noexcept

# Set of next hops, with the routers that are reached by it and announced an address. Owner: the address.
cdef class Path:
    cdef list hops                         # NextHop, at least one
    cdef list destinations                 # RemoteDestination, by (cost, index)
    cdef uint64_t unsettled(self) noexcept
    # Return the link (Consumer, borrowed) of the hop that a producer keeps to; NULL: all hops are gone.
    cdef void* pick(self, int priority, uint64_t producer) noexcept
    # Return True if the message arrived by one of these hops, or passed one of their routers.
    cdef bint goes_back(self, Network network, const Content* c) noexcept

# Entry of the hash table of node ids ("0/ID").
cdef struct NodeEntry:
    const uint8_t* text                    # NULL: free
    uint32_t size
    int index                              # of the router

# The network as this worker knows it. Owner: the table.
cdef class Network:
    cdef readonly uint64_t version         # changes with everything that paths are made of
    cdef uint32_t hop_limit                # routers in a trace, at most
    cdef dict hops                         # conn -> NextHop
    cdef dict routers                      # index -> Router
    cdef dict before                       # conn -> NextHop, of the time before a snapshot
    cdef dict counters                     # counters in use -> Outstanding
    cdef NodeEntry* nodes                       # hash table of node ids
    cdef uint32_t node_slots               # its size, a power of two
    cdef list node_texts                   # bytes that `nodes` point into
    cdef bint nodes_stale
    cdef uint64_t chance                   # state of the random numbers of choices (chooser.pyx)
    cdef object uplink                     # at an edge router: ForwardingAddress of its uplink; None: no uplink
    cdef WorkerPort own_port               # port to this worker itself; None: there is none
    cdef dict edges                        # at an edge router: ForwardingAddress of each connected edge router, by id
    cdef int find_nodes(self) except -1
    # Return the index of the router that an encoded node id names; HERE when there is no id.
    cdef int origin_of(self, const Slice* encoded) noexcept
    cdef list ways(self, list destinations)


# Look-ups for each delivery to another router. Arguments and results are borrowed.

cdef inline void* link_of(void* hop, int priority) noexcept:
    """Return the data link (Consumer) of a NextHop for messages of this priority; NULL: it is gone."""
    cdef void* consumer = item_at(<void*>(<NextHop>hop).links, priority)
    if consumer is <void*>None or (<Consumer>consumer).slot.generation != (<Consumer>consumer).generation:
        return NULL
    return consumer


cdef inline void* nearest_destination(void* way, int origin) noexcept:
    """Return the nearest RemoteDestination of a Path for which the origin is valid, or NULL."""
    cdef void* destinations = <void*>(<Path>way).destinations
    cdef Py_ssize_t at
    for at in range(items_in(destinations)):
        if origin <= HERE or (<RemoteDestination>item_at(destinations, at)).router.valid(origin):
            return item_at(destinations, at)
    return NULL
