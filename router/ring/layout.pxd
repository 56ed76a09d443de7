"""Layout of the shared memory region, in one place for all processes.

Owner: each struct has exactly one writing process, named at its head, unless it says otherwise. Readers may see a
value that is one update old, but never a torn one: all words are naturally aligned.
"""
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

cdef enum:
    REGION_VERSION = 9
    MAX_WORKERS = 64
    QUOTAS = 4096              # slots of quotas
    # Buckets of a latency histogram. Bucket 0: below 1 µs; bucket n: from 2**(n - 1) µs to below 2**n µs; the last
    # bucket: everything longer.
    LATENCY_BUCKETS = 32
    SAMPLES = 16384            # unread samples that a worker keeps, a power of two
    SAMPLE_EVERY = 1024        # deliveries of a link for one sample; a power of two
    NO_TIME = 0xFFFFFFFF       # time in a sample that is not known
    RATE_SECONDS = 8           # seconds in LinkSlot.started, a power of two: 5 for a rate, and those being written
    DROP_NO_DESTINATION = 0    # presettled, no consumer
    DROP_OVERFLOW = 1          # presettled, consumer's queue full
    DROP_CONSUMER_LOST = 2     # presettled, queued when its consumer was lost
    DROP_PRODUCER_LOST = 3     # incomplete when its producer was lost
    DROP_WORKER_LOST = 4       # on its way to a worker that exited
    DROP_REJECTED = 5          # presettled, not routable as it is (malformed, forbidden)
    DROP_UNFINISHED = 6        # not finished when its producer's worker exited

# First octets of the region. Writer: the supervisor, before any other process maps it.
cdef struct RegionHeader:
    uint64_t magic
    uint32_t version
    uint32_t workers
    uint32_t links_per_worker
    uint32_t addresses
    uint64_t ring_octets
    uint64_t size              # octets of the whole region
    uint32_t worker_slot       # octets of each struct, as compiled in the process that created the region
    uint32_t link_slot
    uint32_t address_slot
    uint32_t ring_header
    uint32_t sample_ring
    uint32_t quota_slot
    uint64_t kept              # ns that counters of an ended link stay in its slot; may change while workers run

# Worker slot. Writer: the worker (first cache line: the supervisor). Other workers set `doorbells` and read `sleeping`
# for each batch of records. So these two share a cache line, apart from the counters, which change with every
# delivery.
cdef struct WorkerSlot:
    uint32_t state             # WorkerState: 0 down, 1 starting, 2 ready, 3 draining
    uint32_t generation
    uint32_t pid
    uint32_t pad0[13]
    uint32_t sleeping          # 1 while blocked in epoll_wait: who sets a doorbell must signal the eventfd
    uint32_t pad1
    uint64_t doorbells         # bit w, set by worker w: look at the rings between it and this worker
    uint32_t pad2[12]
    uint64_t heartbeat         # CLOCK_MONOTONIC ns of the last wake
    uint64_t heard             # CLOCK_MONOTONIC ms, as of that wake: last read from an established client
    uint64_t wakes
    uint64_t signals           # other workers signalled for records, or for room in their rings
    uint64_t shared_wakes      # other workers not signalled for outcomes, since they woke up by themselves in time
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
    uint64_t settled_no_state  # deliveries of clients
    uint64_t presettled        # deliveries of clients
    # Deliveries of clients, not of other routers, among accepted, rejected, released, modified.
    uint64_t ended_accepted
    uint64_t ended_rejected
    uint64_t ended_released
    uint64_t ended_modified
    uint64_t dropped_presettled
    uint64_t delayed_1s
    uint64_t delayed_10s
    uint64_t redirected        # to a fallback
    # Among ingress: from route containers. Among egress: to route containers.
    uint64_t ingress_container
    uint64_t egress_container
    uint64_t ingress_edge      # among ingress: by connections between an edge router and another router
    uint64_t checks_failed     # CHECK assertions that failed
    uint64_t buffered          # octets of message content held
    uint64_t windows_shut      # sessions whose window stays closed until held octets are taken
    uint64_t given_up          # links whose messages were dropped at the memory bound
    uint64_t stuck             # stuck deliveries of all links; those of one link are in its slot
    uint64_t blocked           # links without credit for long
    uint32_t links_used_high   # highest link slot that this generation has claimed, plus 1
    uint32_t pad3
    uint64_t dropped[8]        # by DROP_ reason
    uint64_t latency_sum       # µs: time in the router of the deliveries that `latency` counts
    uint64_t latency[32]       # settled deliveries by time in the router

# Link slot. Writer: the worker that owns it.
cdef struct LinkSlot:
    uint32_t generation        # 0: free
    uint32_t undelivered       # copies queued here, not written
    # Written and not settled. Of a producer: also settled ones that occupy a place (link_counts).
    uint32_t unsettled
    int32_t credit             # credit of the sending side
    uint32_t busy              # 1 while an unfinished streamed message occupies an outgoing link
    uint32_t rate_second       # CLOCK_MONOTONIC s: second in which a delivery finished last
    uint64_t octets            # octets of messages in received or sent transfers
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
    uint64_t blocked_since     # CLOCK_MONOTONIC ns; 0 while it has credit
    uint64_t message_limit     # of a consumer: octets of the longest message that it takes; 0: any length
    uint64_t stall_since       # CLOCK_MONOTONIC ns: start of the stall; 0: none
    uint64_t stall_mark        # progress of the link at the last check for stalls
    uint32_t stall             # stall reason (Stall, router/stalls); 0: none
    uint32_t stall_detail      # for that reason: identity of the consumer's link; 0: not known
    uint32_t blocked           # 1: long without credit, see waits_for_credit; cleared by new credit
    uint32_t capacity
    uint32_t address           # address id
    uint32_t container         # 1: its connection has role route-container
    uint32_t started[8]        # `finished` (mod 2**32) at the start of a second, by its number mod RATE_SECONDS
    uint32_t ended             # generation of an ended link whose counters are still here; `generation` is 0 then
    uint32_t round_trip        # of a control link to another router: µs, as TCP measured it lately; 0: not known
    uint32_t direction         # 1 in (client sends), 2 out (client receives)
    uint32_t stuck             # deliveries found neither sent nor settled for long, and not finished since
    uint32_t latency[32]       # of a producer: its settled deliveries by time in the router (mod 2**32)
    # followed by uint32_t taken[workers]: deliveries taken from the ring of each worker so far (mod 2**32)

# Sample: record of one delivery that a consumer settled, or that was sent settled.
cdef struct Sample:
    uint64_t at                # CLOCK_MONOTONIC ns
    uint64_t octets            # octets of the message that were sent; 0: not known
    uint32_t link              # slot of the consumer's link
    uint32_t generation        # generation of that slot
    uint32_t latency           # µs from arrival of the first octet at this worker to the writing of the last; NO_TIME
    uint32_t settle            # µs from arrival of the first octet to settlement; NO_TIME: sent settled
    uint32_t kind              # outcome, D_…; 0: none
    uint32_t every             # number of deliveries that the sample stands for

# Recent samples of a worker, by number mod SAMPLES. Writer: that worker; it writes `samples` before `head`.
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
    # Among ingress: from route containers. Among egress: to route containers.
    uint64_t ingress_container
    uint64_t egress_container

# Counter of a worker's deliveries to one other router for one address. It is an AddressSlot of its own with another
# layout, in which `unused` keeps sums over address slots from counting it. Writer: that worker.
cdef struct RemoteSlot:
    uint64_t unused[7]
    uint64_t unsettled         # unsettled deliveries that `balanced` gave to that router

# Use of a quota that is shared by the connections of one vhost, or of one of its groups. Writers: all workers,
# atomically. The supervisor writes `links`, and resets the slot.
cdef struct QuotaSlot:
    uint64_t messages_until    # CLOCK_MONOTONIC ns up to which the messages received have used up their rate
    uint64_t octets_until      # CLOCK_MONOTONIC ns up to which their octets have
    uint64_t messages          # messages received
    uint64_t octets            # octets of these
    uint64_t held_back         # times that a link got less credit, or a session no window
    uint64_t links             # links of producers
    uint64_t unused[2]
    uint64_t held[64]          # by worker: octets held of connections that share the quota. Writer: that worker

# Header of a ring, which is empty when head equals tail. Writer of head and data: the producer; of tail: the consumer.
cdef struct RingHeader:
    uint64_t head              # octets ever written
    uint32_t producer_waits    # 1: the producer wants a signal when there is room again
    uint32_t pad0[13]
    uint64_t tail              # octets ever read
    uint32_t pad1[14]
    # followed by ring_octets of data
