"""The read-only table that a worker routes by: addresses, their consumers, exchanges. Changed only between two wakes.
"""
from libc.stdint cimport uint32_t, uint64_t

from router.links.producer_link cimport ProducerLink
from router.interworker.layout cimport AddressSlot
from router.interworker.region cimport Region
from router.forwarding.consumer cimport Consumer
from router.forwarding.network cimport Network
from router.forwarding.address_cache cimport Recent

cpdef enum Treatment:
    BALANCED = 0
    CLOSEST = 1
    MULTICAST = 2
    UNAVAILABLE = 3

# Why a text leads to no address here.
cdef enum Nowhere:
    NOWHERE_UNKNOWN = 0
    NOWHERE_UNAVAILABLE = 1
    NOWHERE_CONFINED = 2       # unknown, and to be known nowhere else

# Owner: the table.
cdef class Address:
    cdef readonly uint32_t id
    cdef readonly str key
    cdef readonly int treatment
    cdef readonly int phase                # of a mobile address, else 0
    cdef readonly int priority             # 0…9, or -1: the message's own
    cdef readonly int overflow
    cdef readonly bint inproc              # the router itself is a destination …
    cdef readonly bint rejects             # … that rejects what it gets (option -T)
    cdef readonly bint uplink              # of an edge router: whatever is beyond its uplink, now or later
    cdef bint special                      # `inproc`, `uplink` or `limits`
    cdef readonly bint confined            # at an edge router: its messages never leave by the uplink
    cdef public Address fallback
    cdef public Exchange exchange
    cdef list consumers                    # Consumer, in the order of their arrival
    cdef bint spreads                      # copies for consumers here take the ring of this worker to itself
    cdef int start                         # where the (rotating) list of consumers begins
    cdef uint32_t limits                   # consumers that take no message above some length …
    cdef uint64_t least_limit              # … the least of these lengths, octets
    cdef list fitting                      # consumers that take one of more than `fits_from` octets, and of `fits_to` …
    cdef uint64_t fits_from                # … at most; None: not made since consumers changed (size_limits.pyx)
    cdef uint64_t fits_to
    cdef int fitting_start                 # where that list begins
    cdef list by_edge                      # those of them that are on an edge connection: few
    cdef bytes served                      # at an edge router: marks of peers among them, encoded; None: there is none
    cdef list remotes                      # RemoteDestination, by index; None: no other router announced it
    cdef list ways                         # Path, of …
    cdef uint64_t version                  # … that version of the network
    cdef list nearest                      # (RemoteDestination, Path), by (cost, index)
    cdef uint32_t turn                     # of routers at the same distance
    cdef Network network
    cdef dict producers                    # ProducerLink bound here, ours only -> whether it may use the fallback
    cdef set waiting                       # … of these, which get credit when the address is reachable; None: none
    cdef set called                        # … to which the router initiated the connection; None: none
    cdef AddressSlot* slot
    cdef bytes to                          # its name as an encoded string, for x-opt-qd.to
    cdef bint reachable(self, bint fallback) noexcept
    cdef bint announced(self) noexcept     # some router that can be reached announced it
    cdef int find_ways(self) except -1
    cdef int wait(self, ProducerLink link) except -1
    cdef int give_credit(self, ProducerLink link, bint fallback) except -1

# Owner: the table.
cdef class Exchange:
    cdef readonly uint32_t id
    cdef readonly Address alternate
    cdef readonly int alternate_phase
    cdef object matcher                    # KeyMatcher
    cdef dict next_hops                    # binding id -> Address
    cdef dict counters                     # binding id -> id of its counters
    cdef dict cache                        # subject octets -> (Addresses, ids of counters), bounded
    # Its own counters: ingress are messages received, egress those that a consumer got, redirected those that went to
    # the alternate. Of a binding, ingress are messages that matched.
    cdef AddressSlot* slot
    cdef Region region
    cdef int worker
    cdef list hops(self, bytes subject)

# Owner: the worker.
cdef class Table:
    cdef readonly Region region
    cdef readonly int worker
    cdef readonly uint64_t epoch
    cdef dict addresses                    # id -> Address
    cdef dict by_key                       # key -> Address
    cdef dict exchanges                    # id -> Exchange
    cdef dict consumers                    # slot_key -> Consumer: who is bound where
    cdef set bound                         # Addresses that have producers here
    cdef readonly Network network
    cdef readonly list ports               # by worker, None for our own
    cdef readonly dict links               # slot index -> ConsumerLink: ours, alive
    cdef readonly object settings          # AddressSettings
    # Bounded. Text, tenant and phase of anonymous messages -> result of `look_up`; text and tenant -> whole address;
    # text and rights -> limited address.
    cdef dict lookups
    cdef Recent recent                     # addresses that routers' messages were for
    cdef object lookups_key                # another object after each change: remembered look-ups are void
    cdef readonly str router_id
    cdef readonly str mode                 # of the router
    cdef readonly object on_local          # (link, key, octets) -> whether taken: a message for the router itself
    cdef object look_up(self, bytes text, str tenant, int phase)
    cdef int bind_consumer(self, Address address, Consumer consumer) except -1
    cdef Consumer unbind_consumer(self, uint64_t key, uint32_t generation, object address)
    cdef Address find(self, bytes text, str tenant, int phase, Nowhere* why)
    cdef tuple whole_address(self, bytes text, str tenant)
    cdef tuple limited_address(self, bytes text, str rights)
    cdef int keep(self, tuple key, size_t octets, object found) except -1
