"""Recorder of the spans of sampled deliveries in this process.

A sampled delivery has a pending span from its arrival to its settlement, and one for each copy, from the routing of the
delivery to the settlement of the copy. Deliveries and copies do not point to their spans: the flags IN_TRACED and
OUT_TRACED say that there is one, and a hash table finds it by the address of the struct. So a delivery that is not
sampled has no field for it. An ended span waits in a bounded list until the worker drains it.

Functions take the structs of deliveries and copies as keys only. `record` is the worker's record of a link: its
attribute `span_facts` has the facts that spans name, or None, and its method `make_span_facts` makes them.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.tracing.context cimport TraceContext

cdef enum SpanKind:
    SPAN_RECEIVE = 1           # a delivery, from its arrival to its settlement towards the producer
    SPAN_SEND = 2              # a copy, from its routing to its settlement by the consumer
    SPAN_CROSS = 3             # the way of a delivery from its arrival at another worker into this worker

cdef enum:
    # Span.flags
    SPAN_SETTLED = 1           # sent settled by the producer, or sent settled to the consumer
    SPAN_QUEUED = 2            # the copy waited in the queue of its consumer
    SPAN_DROPPED = 4           # ended without having been sent, or refused
    SPAN_CUT = 8               # the address is longer than ADDRESS_OCTETS
    SPAN_OVERDUE = 16          # ended by `end_overdue`, before its delivery or copy was settled
    ADDRESS_OCTETS = 168       # of an address in a span; so a span has 256 octets
    ADDRESS_MOST = 672         # octets; a delivery whose message names a longer address is not sampled
    RULES_MOST = 8             # addresses whose rule is remembered for each link without an address of its own
    RULE_UNITS = 100           # cost units of finding the rule of an address
    NO_WORKER = 255

    PENDING_MOST = 1024        # spans of this process that have not ended
    ENDED_MOST = 2048          # spans of this process that wait to be drained
    COPIES_MOST = 32           # copies of one delivery that have spans
    SHARES = 256               # connections among which the bounds are shared, with one slot for all beyond
    WANT_SECONDS = 60          # time for which a connection keeps its share after the last span that it wanted

# Span as `drain` returns it: sluice.router.tracing.spans decodes this layout. Times in ns, CLOCK_MONOTONIC; 0: none.
cdef struct Span:
    uint8_t[16] trace_id
    uint8_t[8] span_id
    uint8_t[8] parent_id       # zeros: the trace begins here
    uint64_t began
    uint64_t sent              # of a copy: when its first octet was written
    uint64_t ended
    uint64_t octets            # of the message, as far as it had arrived when it was routed
    uint64_t link              # identity of the link in management; 0: unknown, or SPAN_CROSS
    uint64_t connection        # number of its connection
    uint8_t kind               # SpanKind
    uint8_t outcome            # D_…; 0: none
    uint8_t flags
    uint8_t from_worker        # of a copy: worker that the delivery arrived at, or NO_WORKER if it is this one
    uint32_t address_size
    uint8_t[168] address

# Facts of a link that all its spans name. Owner: the record of the link.
cdef class SpanFacts:
    cdef uint64_t link         # identity of the link in management; 0: unknown
    cdef uint64_t connection   # number of its connection
    cdef bytes address         # None: not known, or the messages of the link name their addresses
    # Returns (threshold, whole address as spans name it) for the address that a message of the link names.
    cdef object find
    # Results of `find` for the last RULES_MOST addresses, each of at most ADDRESS_MOST octets. None: not used yet.
    cdef dict rules

# Arrival of a delivery that may be sampled.
cdef struct Arrival:
    uint32_t threshold         # ProducerLink.sampling
    bint chosen                # the ratio of the link samples it
    bint by_address            # the link has no address, so that of the message decides
    bint honour                # router annotations of the message may name its address
    bint settled
    bint searched              # set by `decide`: the rule of an address was searched for, which costs RULE_UNITS

# Return the number of deliveries to pass before the next one that is sampled. Each delivery is sampled independently of
# others, with the probability threshold / 2**32; UINT32_MAX: all are.
cdef uint32_t draw_gap(uint32_t threshold) noexcept
# Decide whether a delivery is sampled, and keep the decision for the next call of `begin_span` or `begin_carried`.
# Returns 1 or 0. record: of its link.
cdef int decide(Arrival* arrival, object record, const Slice* message) except -1
# Return the decoded context of the message that the last call of `decide` samples.
cdef const TraceContext* decided_context() noexcept nogil
# Compose the message-annotations of the copy of this delivery. section: in, those that the copy would have otherwise,
# encoded, or an empty slice; out, those with the context of the span, borrowed until the next call. False: the message
# needs `begin_span`.
cdef bint annotate(Slice* section) noexcept
# Begin the spans of a delivery that has been carried with these annotations, and of its only copy. d, o: NULL if it was
# sent settled; its spans have ended then. record, consumer: of the links of d and o. octets, copied: of the message and
# its copy. flags: of the span of the copy. Returns 1 if d has a span, 2 if d and o have one.
cdef int begin_carried(const Arrival* arrival, void* d, void* o, object record, object consumer, uint64_t octets,
                       uint64_t copied, uint8_t flags) except -1
# Begin the span of delivery d, which the last call of `decide` samples. On return, `message` has the trace context, if
# its sections are complete; its octets are borrowed until the next call. Returns 1 if there is a span.
cdef int begin_span(void* d, const Arrival* arrival, object record, Slice* message) except -1
# Begin to record a delivery from another worker, whose message has a trace context. Its span SPAN_CROSS is recorded
# with its first copy, whose link names the address. to: encoded address of the record for a link without one; data
# NULL: that in the properties of the message is the whole address.
cdef int begin_crossing(void* d, const uint8_t* data, size_t size, const Slice* to, int worker) except -1
# Begin the span of a copy of d. o NULL: it was sent settled, so the span has ended. Returns 1 if o has a span.
cdef bint begin_copy(void* d, void* o, object record, uint64_t octets, uint8_t flags) except -1
# Record that the first octet of a copy was written.
cdef void note_copy_sent(void* o) noexcept
# Record the outcome of a delivery or copy before its end.
cdef void note_span_outcome(const void* key, uint8_t kind) noexcept nogil
# End the span of a delivery or copy. kind: its outcome, unless one was recorded. flags: to add.
cdef void end_span(void* key, uint8_t kind, uint8_t flags) noexcept
