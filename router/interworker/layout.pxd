"""Layout of the shared memory region: one place, used by every process.

Owner: each struct has exactly one writing process, named at its head. Readers may see a value
that is one update old, never a torn one (naturally aligned words).
"""
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

cdef enum:
    REGION_VERSION = 9
    MAX_WORKERS = 64
    QUOTAS = 4096              # slots of quotas
    # Bucket 0: below 1 µs; bucket n: 2**(n - 1) µs and more, below 2**n µs; the last one: all that is longer.
    LATENCY_BUCKETS = 32
    SAMPLES = 16384            # of one worker that wait to be read, a power of two
    SAMPLE_EVERY = 1024        # deliveries of a link, of which one is a sample; a power of two
    NO_TIME = 0xFFFFFFFF       # of a sample: not known
    RATE_SECONDS = 8           # of LinkSlot.started, a power of two: the 5 that a rate is of, and those being written
    DROP_REASONS = 8
    DROP_NO_DESTINATION = 0    # presettled, no consumer
    DROP_OVERFLOW = 1          # presettled, consumer's queue full
    DROP_CONSUMER_LOST = 2     # presettled, queued when its consumer went away
    DROP_PRODUCER_LOST = 3     # incomplete when its producer went away
    DROP_WORKER_LOST = 4       # on its way to a worker that died
    DROP_REJECTED = 5          # presettled, not routable as it is (malformed, forbidden)
    DROP_UNFINISHED = 6        # its producer's worker died before it had ended

# The first octets of the region. Writer: the supervisor, before anybody else maps it.
cdef struct RegionHeader:
    uint64_t magic
    uint32_t version
    uint32_t workers
    uint32_t links_per_worker
    uint32_t addresses
    uint64_t ring_octets
    uint64_t size              # octets of the whole region
    uint32_t worker_slot       # octets of each struct as its creator was compiled
    uint32_t link_slot
    uint32_t address_slot
    uint32_t ring_header
    uint32_t sample_ring
    uint32_t quota_slot
    uint64_t kept              # ns that the counters of a link that is gone stay in its slot; changes while workers run

# A worker's own slot. Writer: that worker (first cache line: the supervisor). Other workers ring `doorbells` and read
# `sleeping` for every batch that they send, so these share a line, but none with the counters, which change with every
# delivery.
cdef struct WorkerSlot:
    uint32_t state             # WorkerState: 0 down, 1 starting, 2 ready, 3 draining
    uint32_t generation
    uint32_t pid
    uint32_t pad0[13]
    uint32_t sleeping          # 1 while blocked in epoll_wait: who rings must signal
    uint32_t pad1
    uint64_t doorbells         # bit w: worker w wants it to look at the rings between them. Each sets its own bit
    uint32_t pad2[12]
    uint64_t heartbeat         # CLOCK_MONOTONIC ns of the last wake
    uint64_t heard             # CLOCK_MONOTONIC ms when it last read from a client that is in, until that wake
    uint64_t wakes
    uint64_t signals           # other workers woken for records, or for room in their rings
    uint64_t shared_wakes      # … not woken for outcomes, since they woke up by themselves in time
    uint64_t connections
    uint64_t links
    uint64_t ingress           # router totals, names of the management schema
    uint64_t egress
    uint64_t transit
    uint64_t to_container
    uint64_t from_container
    uint64_t accepted
    uint64_t rejected
    uint64_t released
    uint64_t modified
    uint64_t settled_no_state  # of clients
    uint64_t presettled        # of clients
    uint64_t ended_accepted    # of accepted and so on: of clients, not of other routers
    uint64_t ended_rejected
    uint64_t ended_released
    uint64_t ended_modified
    uint64_t dropped_presettled
    uint64_t delayed_1s
    uint64_t delayed_10s
    uint64_t redirected        # to fallback
    uint64_t ingress_container  # of ingress, egress: from, to route containers
    uint64_t egress_container
    uint64_t ingress_edge      # of ingress: by connections between an edge router and another router
    uint64_t checks_failed     # CHECK assertions that did not hold
    uint64_t buffered          # octets of message content held
    uint64_t windows_shut      # sessions whose window stays shut until something is taken
    uint64_t given_up          # links whose messages were given up at the bound of memory
    uint64_t stuck             # deliveries that are stuck, on all links; those of a link are in its slot
    uint64_t blocked           # links without credit for long
    uint32_t links_used_high   # link slots ever claimed by this generation: all below this index
    uint32_t pad3
    uint64_t dropped[8]        # by DROP_ reason
    uint64_t latency[32]       # settled deliveries by time in the router

# A link. Writer: the worker that owns it.
cdef struct LinkSlot:
    uint32_t generation        # 0: free
    uint32_t undelivered       # queued here, not written
    uint32_t unsettled         # written, not settled; of a producer also settled ones that have a place (link_counts)
    int32_t credit             # what the peer of the link has, or has given
    uint32_t busy              # 1 while an unfinished streaming message occupies an out link
    uint32_t rate_second       # CLOCK_MONOTONIC s: the last one in which a delivery was finished
    uint64_t octets            # of messages, in transfers that came or left
    uint64_t deliveries
    uint64_t accepted
    uint64_t finished          # deliveries that have ended here, whatever their outcome
    uint64_t last_delivery     # CLOCK_MONOTONIC ns, 0: none yet
    uint64_t rejected
    uint64_t released
    uint64_t modified
    uint64_t presettled
    uint64_t dropped_presettled
    uint64_t delayed_1s
    uint64_t delayed_10s
    uint64_t blocked_since     # CLOCK_MONOTONIC ns, 0 while it has credit
    uint64_t message_limit     # of a consumer: octets of the longest message that it takes; 0: any
    uint64_t stall_since       # CLOCK_MONOTONIC ns: start of the stall, 0: none
    uint64_t stall_mark        # progress of the link at the last check for stalls
    uint32_t stall             # Stall (router/stalls): reason why no delivery moves, 0: none
    uint32_t stall_detail      # of the reason: identity of the consumer's link, 0: not known
    uint32_t blocked           # 1: found without credit for long while something waits for it, and has got none since
    uint32_t capacity
    uint32_t address           # address id
    uint32_t container         # 1: its connection has role route-container
    uint32_t started[8]        # `finished` (mod 2**32) when a second began, by its number mod RATE_SECONDS
    uint32_t ended             # the generation that it had, once it is free again and its counters are still here
    uint32_t round_trip        # of a control link to another router: µs, as TCP knew it lately; 0: not known
    uint32_t direction         # 1 in (client sends), 2 out (client receives)
    uint32_t stuck             # deliveries found neither sent nor settled for long, not finished since
    uint32_t latency[32]       # of a producer: its settled deliveries by time in the router (mod 2**32)
    # followed by uint32_t taken[workers]: deliveries taken from the ring of each worker so far (mod 2**32)

# One delivery that a consumer has settled, or that left settled.
cdef struct Sample:
    uint64_t at                # CLOCK_MONOTONIC ns
    uint64_t octets            # of the message, as far as it was sent; 0: not known
    uint32_t link              # slot of the consumer's link …
    uint32_t generation        # … and the generation of that
    uint32_t latency           # µs from its first octet at this worker to its last one to the consumer; NO_TIME
    uint32_t settle            # µs from its first octet to the settlement; NO_TIME: it left settled
    uint32_t kind              # what the consumer said, D_…; 0: nothing
    uint32_t every             # it stands for so many deliveries

# The last samples of a worker, by number mod SAMPLES. Writer: that worker, of `samples` before `head`.
cdef struct SampleRing:
    uint64_t head              # samples ever written
    Sample samples[16384]

# Counters of one address in one worker. Writer: that worker.
cdef struct AddressSlot:
    uint64_t ingress
    uint64_t egress
    uint64_t transit
    uint64_t to_container
    uint64_t from_container
    uint64_t redirected
    uint64_t ingress_container  # of ingress, egress: from, to route containers
    uint64_t egress_container

# What a worker has sent to one other router for one address: an AddressSlot of its own, seen otherwise, so that sums
# over the slots of addresses do not count it. Writer: that worker.
cdef struct RemoteSlot:
    uint64_t unused[7]
    uint64_t unsettled         # deliveries that `balanced` gave to that router, unsettled

# Use of a quota that the connections of one vhost, or of one of its groups, share. Writers: all workers, atomically;
# `links` and all at once: the supervisor.
cdef struct QuotaSlot:
    uint64_t messages_until    # CLOCK_MONOTONIC ns up to which the messages that came have used up their rate
    uint64_t octets_until      # the same of their octets
    uint64_t messages          # that came
    uint64_t octets            # of these
    uint64_t held_back         # times that a link got less credit, or a session no window
    uint64_t links             # of producers
    uint64_t unused[2]
    uint64_t held[64]          # octets that each worker holds of connections that share it. Writer: that worker

# A ring, empty when head equals tail. Writer of head and data: the producer; of tail: the consumer.
cdef struct RingHeader:
    uint64_t head              # octets ever written
    uint32_t producer_waits    # 1: producer wants a signal when there is room again
    uint32_t pad0[13]
    uint64_t tail              # octets ever read
    uint32_t pad1[14]
    # followed by ring_octets of data
