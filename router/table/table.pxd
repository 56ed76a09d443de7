"""Read-only table that a worker routes by: addresses, their consumers, exchanges. Changed only between two wakes."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.delivery.delivery cimport NodeOwner
from sluice.router.links.granting_link cimport GrantingLink
from sluice.router.ring.layout cimport AddressSlot
from sluice.router.ring.region cimport Region
from sluice.router.table.consumer cimport Consumer
from sluice.router.table.network cimport Network
from sluice.router.table.address_cache cimport AddressCache

cdef enum:
    BALANCED = 0
    CLOSEST = 1
    MULTICAST = 2
    UNAVAILABLE = 3

cdef enum:
    # Flags of ForwardingAddress.special.
    SPECIAL_UNPLANNED = 1      # `inproc`, `uplink`, `limits` or `suspended`
    SPECIAL_TAPPED = 2         # taps copy its messages, and none of these is required
    SPECIAL_REQUIRED = 4       # a required tap copies its messages

# Reason why a look-up finds no address.
cdef enum NotFoundReason:
    NOWHERE_UNKNOWN = 0        # no such address here
    NOWHERE_UNAVAILABLE = 1    # the address is configured as unavailable
    NOWHERE_CONFINED = 2       # no such address here, and its messages must not leave this router

# An address, with everything that its deliveries need. Owner: the table.
cdef class ForwardingAddress:
    cdef readonly uint32_t id
    cdef readonly str key
    cdef readonly int treatment
    cdef readonly int phase                # of a mobile address, else 0
    cdef readonly int priority             # 0…9; -1: each message has its own
    cdef readonly int overflow             # Overflow
    cdef readonly bint inproc              # the router itself is a destination
    cdef readonly bint rejects             # the router itself is a destination that rejects all deliveries (option -T)
    cdef readonly bint uplink              # at an edge router: the address of its uplink, whether connected or not
    cdef uint8_t special                   # flags SPECIAL_…; 0 for nearly all addresses
    cdef readonly bint confined            # at an edge router: its messages never leave by the uplink
    cdef public ForwardingAddress fallback
    cdef public Exchange exchange
    cdef tuple taps                        # AddressTaps that copy its messages; None: none
    cdef list consumers                    # Consumer, in the order of rotation from `start` on; a new one is last
    cdef bint spreads                      # copies for consumers of this worker go through its ring to itself
    cdef int start                         # index in `consumers` at which the rotating list starts
    # Consumers with a limit of message length (size_limits.pyx).
    cdef uint32_t limits                   # number of these consumers
    cdef uint64_t least_limit              # the least of their limits, octets
    # Consumers that take messages of more than `fits_from` and at most `fits_to` octets; None: to be computed again.
    cdef list fitting
    cdef uint64_t fits_from
    cdef uint64_t fits_to
    cdef int fitting_start                 # index in `fitting` at which the rotating list starts
    cdef list by_edge                      # the few consumers that are on an edge connection
    cdef bytes served                      # at an edge router: encoded marks of the peers in `by_edge`; None: no peers
    # Other routers.
    cdef list remotes                      # RemoteDestination, by index; None: no other router announced the address
    cdef list ways                         # Path, made for `version`
    cdef uint64_t version                  # Network.version of `ways` and `nearest`
    cdef list nearest                      # (RemoteDestination, Path), by (cost, index)
    cdef uint32_t turn                     # rotation among routers at the same distance
    cdef Network network
    # Producers of this worker.
    cdef dict producers                    # GrantingLink bound here -> whether it may use the fallback
    cdef set waiting                       # producers that get credit once the address is reachable, or None
    cdef set called                        # producers on connections that the router initiated, or None
    cdef AddressSlot* slot                 # counters
    cdef bytes to                          # its name as an encoded string, for x-opt-qd.to
    # Return True if all that the address has is a suspended consumer: deliveries wait, and producers get no credit.
    cdef bint suspended(self) noexcept
    # Return True if a delivery has a destination now. fallback: that of the fallback counts.
    cdef bint reachable(self, bint fallback) noexcept
    # Return True if a reachable router announced the address.
    cdef bint announced(self) noexcept
    cdef int make_paths(self) except -1
    cdef int wait(self, GrantingLink link) except -1
    cdef int give_credit(self, GrantingLink link, bint fallback) except -1

# An exchange of the configuration, with its bindings. Owner: the table.
cdef class Exchange:
    cdef readonly uint32_t id
    cdef readonly ForwardingAddress alternate
    cdef readonly int alternate_phase
    cdef object matcher                    # KeyMatcher
    cdef dict next_hops                    # binding id -> ForwardingAddress
    cdef dict counters                     # binding id -> number of its counters
    cdef dict cache                        # subject octets -> (ForwardingAddresses, numbers of counters), bounded
    # Counters of the exchange: `ingress` counts messages received, `egress` those that some consumer got, `redirected`
    # those that went to the alternate. A binding has counters of its own, in which `ingress` counts matching messages.
    cdef AddressSlot* slot
    cdef Region region
    cdef int worker
    cdef list hops(self, bytes subject)

# Tap of the configuration, as far as the table knows it; see tap.pxd. Owner: the table.
cdef class AddressTap(NodeOwner):
    cdef readonly uint32_t id
    cdef readonly str key                  # of the address that gets the copies
    cdef object pattern                    # PatternTree
    cdef readonly bint required            # producers' outcomes wait for that of the copy
    cdef readonly bint live                # the table has the tap; False: it makes no more copies
    cdef readonly ForwardingAddress address    # of `key`; None: the table has none
    cdef bint serves(self, str tenant) noexcept
    cdef bint reachable(self) noexcept
    # End the tap. lost: deliveries that wait for a copy end as modified, otherwise they wait for it no more.
    cdef int end(self, bint lost) except -1

# Return True if each required tap among these has a consumer.
cdef bint taps_reachable(tuple taps) noexcept

# The worker's copy of the replicated tables. Owner: the worker.
cdef class Table:
    cdef readonly object make_tap          # class of taps (tap.pyx); None: the table has none
    cdef readonly Region region
    cdef readonly int worker
    cdef readonly uint64_t epoch
    cdef dict addresses                    # id -> ForwardingAddress
    cdef dict by_key                       # key -> ForwardingAddress
    cdef dict exchanges                    # id -> Exchange
    cdef dict taps                         # id -> AddressTap
    cdef dict consumers                    # slot_key -> Consumer; others of the same slot follow by `also`
    cdef set bound                         # ForwardingAddresses that have producers here
    cdef readonly Network network
    cdef readonly list ports               # WorkerPort by worker; None for this one: copies here are not spread
    cdef readonly dict links               # slot index -> ConsumerLink: live links of this worker
    cdef readonly object settings          # AddressSettings
    # Cached results of look-ups, bounded. (text, tenant, phase) of anonymous messages -> result of `look_up`;
    # (text, tenant) -> whole address; (text, rights, "rights") -> limited address.
    cdef dict lookups
    cdef AddressCache recent               # cached addresses of messages from routers
    cdef object lookups_key                # replaced at each change: look-ups cached with an earlier object are void
    cdef readonly str router_id
    cdef readonly str mode                 # of the router
    # (link, key, octets) -> bool: processes a message for the router itself; False: the message was not accepted.
    cdef readonly object on_local
    cdef object look_up(self, bytes text, str tenant, int phase)
    cdef int bind_consumer(self, ForwardingAddress address, Consumer consumer) except -1
    cdef Consumer bound_consumer(self, uint64_t key, uint32_t generation, ForwardingAddress address)
    cdef Consumer unbind_consumer(self, uint64_t key, uint32_t generation, object address)
    cdef ForwardingAddress find(self, bytes text, str tenant, int phase, NotFoundReason* why)
    cdef tuple whole_address(self, bytes text, str tenant)
    cdef tuple limited_address(self, bytes text, str rights)
    cdef int keep(self, tuple key, size_t octets, object found) except -1
