"""Recorder of the spans of sampled deliveries in this process.

Bounds: spans in each second, pending spans, ended spans that wait, copies of one delivery. Everything beyond a bound is
counted as dropped. A delivery beyond a bound is routed as if it were not sampled.

Spans are charged to the connection of the producer. Half of the spans of a second, and of the pending ones, are for
whoever comes first. The other half is divided among the connections that have wanted spans lately, so that none of them
can use up the share of another.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from libc.math cimport INFINITY, log, log1p
from libc.stdint cimport UINT32_MAX, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset


from sluice.router.amqp.clock cimport Clock
from sluice.router.amqp.codec cimport open_variable
from sluice.router.message.sections cimport SCAN_OK, Sections, scan
from sluice.router.tracing.context cimport (
    SPAN_ID_OCTETS, TRACE_ID_OCTETS, TraceContext, append_context, append_room, context_room, find_context,
    write_context,
)

import os

cdef enum:
    BUCKETS = 1024             # of the hash table of pending spans; a power of two
    HEAD = 88                  # octets of a Span before its address
    SCRATCH_KEPT = 65536       # octets of the room for a message with its context that are kept between deliveries

cdef struct PendingSpan:
    Span span
    PendingSpan* chain         # next span in the bucket
    void* key
    uint32_t copies            # of a delivery: copies that have had spans
    uint64_t arrived           # of SPAN_CROSS: time of the arrival at the other worker
    uint32_t share             # slot of `shares` that it is charged to
    bint common                # charged to the half for all

# Use of the bounds by one connection.
cdef struct Share:
    uint64_t connection        # number; 0: the slot is free
    uint32_t used              # spans in this second
    uint32_t pending
    uint32_t wanted            # second of the last span that it wanted
    bint counted               # included in `wanting`

# Decision about the next delivery of the process, kept between `decide` and the beginning of its span.
cdef struct Decision:
    TraceContext context
    uint64_t connection        # of the producer
    uint32_t share
    uint8_t[16] trace_id       # set by `annotate`
    uint8_t[8] span_id
    bint scanned               # `sections` is complete
    Sections sections
    Slice address              # named by the message; data NULL: none

# State of the process.
cdef PendingSpan* buckets[BUCKETS]
cdef PendingSpan* unused = NULL    # ended ones, to be used again; at most PENDING_MOST
cdef Span* ended = NULL        # ENDED_MOST spans, used as a ring; NULL: never used
cdef uint32_t ended_first = 0
cdef uint32_t ended_count = 0
cdef uint32_t pending = 0
cdef uint64_t dropped_spans = 0
cdef uint64_t recorded_spans = 0
cdef uint64_t random_state = 0
cdef uint32_t limit = 0        # spans in each second
cdef uint32_t limit_second = 0
cdef uint32_t limit_used = 0
cdef uint32_t common_used = 0      # of them, those beyond the shares
cdef uint32_t common_pending = 0   # pending spans beyond the shares
cdef uint32_t wanting = 0          # connections that have wanted spans in the last WANT_SECONDS
cdef Share[SHARES] shares          # the first one is for all connections without a slot of their own
cdef bint by_parent = False
cdef Decision decision
cdef char settled_key = 0      # its address is the key of the span of a delivery that has no struct
cdef bytes decided_name = None    # of `decision`, on a link without an address: the whole address, as spans name it
cdef uint8_t* scratch = NULL
cdef size_t scratch_size = 0
cdef Clock clock = None
cdef object on_activity = None     # called when a span begins while nothing is recorded
cdef uint32_t scaled = 0           # threshold that `scale` belongs to
cdef double scale = 0.0            # 1 / ln(1 - threshold / 2**32)
cdef bint active = False           # `on_activity` was called, and `drain` has not found the tracer idle since


cdef class SpanFacts:
    def __init__(self, uint64_t link, uint64_t connection, bytes address, find=None):
        self.link = link
        self.connection = connection
        self.address = address
        self.find = find


def use_tracer(Clock used not None, activity, uint32_t per_second, bint parents):
    """Set how deliveries are sampled.

    used: clock of the worker. activity: called when spans begin to be recorded, so that the worker drains them.
    per_second: most spans. parents: deliveries whose producer has sampled them are sampled.
    """
    global clock, on_activity, limit, by_parent, random_state, active
    clock, on_activity, limit, by_parent = used, activity, per_second, parents
    while random_state == 0:
        random_state = int.from_bytes(os.urandom(8), "little")
    start_second()
    active = pending > 0 or ended_count > 0
    if active:
        activity()


def drain(uint32_t most):
    """Return up to `most` ended spans, 256 octets each. An empty result of an idle tracer lets `activity` be called
    again."""
    global ended_first, ended_count, active
    cdef bytes octets = b""
    cdef uint32_t n = min(most, ended_count)
    cdef uint32_t run
    while n:
        run = min(n, <uint32_t>ENDED_MOST - ended_first)
        octets += PyBytes_FromStringAndSize(<const char*>&ended[ended_first], run * sizeof(Span))
        ended_first = (ended_first + run) % ENDED_MOST
        ended_count -= run
        n -= run
    if not octets and pending == 0:
        active = False
    return octets


def end_overdue(uint64_t age_ns):
    """End the spans that began more than `age_ns` ago, although their deliveries go on.

    Otherwise a consumer that settles nothing would keep all pending spans. The later way of these deliveries is not
    recorded.
    """
    cdef uint32_t i
    cdef PendingSpan* p
    cdef PendingSpan* following
    if pending == 0:
        return
    for i in range(BUCKETS):
        p = buckets[i]
        while p is not NULL:
            following = p.chain
            if clock.now_ns - p.span.began > age_ns:
                end_span(p.key, 0, SPAN_OVERDUE)
            p = following


def span_counts():
    """Return the numbers of spans recorded and dropped since the start, and of spans that have not ended."""
    return recorded_spans, dropped_spans, pending


cdef inline uint64_t next_random() noexcept nogil:
    """Return the next number of an xorshift* generator, whose seed is from the system. For ids and sampling."""
    global random_state
    random_state ^= random_state >> 12
    random_state ^= random_state << 25
    random_state ^= random_state >> 27
    return random_state * <uint64_t>2685821657736338717


cdef void make_id(uint8_t* w, size_t octets) noexcept nogil:
    cdef uint64_t random
    cdef size_t i
    for i in range(0, octets, 8):
        random = next_random() | 1         # an id of zeros is invalid
        memcpy(w + i, &random, 8)


cdef inline uint32_t random_below(uint32_t bound) noexcept nogil:
    return <uint32_t>((next_random() >> 32) * bound >> 32)


cdef uint32_t draw_gap(uint32_t threshold) noexcept:
    # The geometric distribution by inversion: ln(U) / ln(1 - p), with 0 < U <= 1.
    global scaled, scale
    cdef double gap
    if threshold == UINT32_MAX:
        return 0
    if scaled != threshold:
        scaled = threshold
        scale = 1.0 / log1p(-<double>threshold / 4294967296.0) if threshold else -INFINITY
    gap = log(<double>((next_random() >> 32) + 1) / 4294967296.0) * scale
    return <uint32_t>gap if gap < UINT32_MAX else UINT32_MAX


cdef inline PendingSpan** bucket_of(const void* key) noexcept nogil:
    return &buckets[(<uintptr_t>key >> 4) * <uint64_t>0x9E3779B97F4A7C15 >> 54]


cdef inline PendingSpan* find_span(const void* key) noexcept nogil:
    cdef PendingSpan* p = bucket_of(key)[0]
    while p is not NULL and p.key is not key:
        p = p.chain
    return p


cdef inline bint is_idle(const Share* share) noexcept nogil:
    return share.connection == 0 or (share.pending == 0 and not share.counted)


cdef uint32_t share_of(uint64_t connection) noexcept nogil:
    """Return the slot of a connection, which may be made here; 0: there is none left."""
    cdef uint32_t first = <uint32_t>(1 + connection % <uint64_t>(SHARES - 1))
    cdef uint32_t found = 0
    cdef uint32_t i
    if shares[first].connection == connection or connection == 0:
        return first if connection else 0
    for i in range(1, <uint32_t>SHARES):
        if shares[i].connection == connection:
            return i
        if not found and is_idle(&shares[i]):
            found = i
    if is_idle(&shares[first]):
        found = first
    if found:
        memset(&shares[found], 0, sizeof(Share))
        shares[found].connection = connection
    return found


cdef void start_second() noexcept:
    """Begin a further second of the limit."""
    global limit_second, limit_used, common_used, wanting
    cdef uint32_t i
    limit_second = clock.second
    limit_used = common_used = wanting = 0
    for i in range(<uint32_t>SHARES):
        shares[i].used = 0
        shares[i].counted = shares[i].counted and limit_second - shares[i].wanted < <uint32_t>WANT_SECONDS
        wanting += shares[i].counted


cdef bint take_from_limit(uint32_t at) noexcept:
    """Count a span against the limits, for the connection in a slot. False, and counted as dropped: one is reached."""
    global limit_used, common_used, wanting, dropped_spans
    cdef Share* share = &shares[at]
    cdef bint common
    if clock.second != limit_second:
        start_second()
    if not share.counted:
        share.counted = True
        wanting += 1
    share.wanted = limit_second
    common = share.used >= max(limit // 2 // wanting, <uint32_t>1)
    if limit_used >= limit or pending >= PENDING_MOST or (common and common_used >= limit - limit // 2) \
            or (is_common_pending(share) and common_pending >= <uint32_t>PENDING_MOST // 2):
        dropped_spans += 1
        return False
    limit_used += 1
    common_used += common
    share.used += 1
    return True


cdef inline bint is_common_pending(const Share* share) noexcept nogil:
    """Return True if the connection has used up its share of pending spans. One further share is left for a connection
    that has not wanted spans yet, because spans may be pending for long."""
    return share.pending >= max(<uint32_t>PENDING_MOST // 2 // (wanting + 1), <uint32_t>1)


cdef PendingSpan* add_span(void* key, SpanKind kind, uint64_t octets, uint32_t at) noexcept:
    """Make a span, with an id of its own, for the connection in a slot. NULL: there is no memory, and it is counted as
    dropped."""
    global pending, dropped_spans, unused, common_pending
    cdef PendingSpan* p = unused
    cdef PendingSpan** bucket
    if p is not NULL:
        unused = p.chain
    else:
        p = <PendingSpan*>malloc(sizeof(PendingSpan))
        if p is NULL:
            dropped_spans += 1
            return NULL
    memset(&p.span, 0, HEAD)
    p.copies = 0
    p.share = at
    p.common = is_common_pending(&shares[at])
    common_pending += p.common
    shares[at].pending += 1
    make_id(p.span.span_id, SPAN_ID_OCTETS)
    p.span.kind = kind
    p.span.began = clock.now_ns
    p.span.octets = octets
    p.span.from_worker = NO_WORKER
    p.key = key
    bucket = bucket_of(key)
    p.chain = bucket[0]
    bucket[0] = p
    pending += 1
    return p


cdef void set_address(Span* span, const Slice* address) noexcept nogil:
    span.address_size = <uint32_t>min(address.size, <size_t>ADDRESS_OCTETS)
    if address.size > ADDRESS_OCTETS:
        span.flags |= SPAN_CUT
    if span.address_size:
        memcpy(span.address, address.data, span.address_size)


cdef inline void set_name(Span* span, bytes address) noexcept:
    cdef Slice text
    text.data = <const uint8_t*>PyBytes_AS_STRING(address)
    text.size = PyBytes_GET_SIZE(address)
    set_address(span, &text)


cdef inline SpanFacts facts_of(object record):
    cdef SpanFacts facts = record.span_facts
    return record.make_span_facts() if facts is None else facts


cdef int set_link(Span* span, object record) except -1:
    """Set link and connection, and the address if the link has one."""
    cdef SpanFacts facts = facts_of(record)
    span.link = facts.link
    span.connection = facts.connection
    if facts.address is not None and not span.address_size:
        set_name(span, facts.address)
    return 0


cdef void remove_span(void* key) noexcept nogil:
    global pending, unused, common_pending
    cdef PendingSpan** at = bucket_of(key)
    cdef PendingSpan* p
    while at[0] is not NULL and at[0].key is not key:
        at = &at[0].chain
    p = at[0]
    if p is not NULL:
        at[0] = p.chain
        pending -= 1
        shares[p.share].pending -= 1
        common_pending -= p.common
        p.chain = unused
        unused = p


cdef void keep_ended(const Span* span) noexcept:
    """Put an ended span into the list for `drain`."""
    global ended, ended_count, dropped_spans, recorded_spans
    if ended is NULL:
        ended = <Span*>malloc(ENDED_MOST * sizeof(Span))
    if ended is NULL or ended_count == ENDED_MOST:
        dropped_spans += 1
        return
    memcpy(&ended[(ended_first + ended_count) % ENDED_MOST], span, HEAD + span.address_size)
    ended_count += 1
    recorded_spans += 1


cdef bint scan_message(const Slice* message, bint honour, bint addressed) noexcept:
    """Find the sections of the message that is being decided about. addressed: and its address, behind them. Returns
    False if it could not be marked."""
    memset(&decision.sections, 0, sizeof(Sections))
    decision.address.data = NULL
    decision.address.size = 0
    decision.scanned = scan(message.data, message.size, addressed, honour, &decision.sections) == SCAN_OK
    if not decision.scanned or not addressed:
        return decision.scanned
    if decision.sections.to_override.data is not NULL:
        open_variable(decision.sections.to_override.data,
                      decision.sections.to_override.data + decision.sections.to_override.size, &decision.address)
    else:
        decision.address = decision.sections.to
    return True


cdef int decide(Arrival* arrival, object record, const Slice* message) except -1:
    cdef SpanFacts facts
    find_context(message.data, message.size, &decision.context)
    if not arrival.chosen and not (by_parent and decision.context.found and decision.context.sampled):
        return 0
    decision.scanned = False
    if (arrival.by_address or not decision.context.appendable) \
            and not scan_message(message, arrival.honour, arrival.by_address):
        return 0
    facts = facts_of(record)
    if arrival.by_address and (decision.address.data is NULL or not is_address_sampled(arrival, facts)):
        return 0
    decision.connection = facts.connection
    decision.share = share_of(decision.connection)
    return take_from_limit(decision.share)


cdef const TraceContext* decided_context() noexcept nogil:
    return &decision.context


cdef bint annotate(Slice* section) noexcept:
    cdef size_t room = append_room(section, &decision.context)
    if not decision.context.appendable or room > <size_t>SCRATCH_KEPT:
        return False
    if room > scratch_size:
        try:
            reserve_scratch(SCRATCH_KEPT)
        except MemoryError:
            return False                   # `begin_span` raises it
    if decision.context.found:
        memcpy(decision.trace_id, decision.context.trace_id, TRACE_ID_OCTETS)
    else:
        make_id(decision.trace_id, TRACE_ID_OCTETS)
    make_id(decision.span_id, SPAN_ID_OCTETS)
    section.size = append_context(scratch, section, &decision.context, decision.trace_id, decision.span_id)
    section.data = scratch
    return section.size != 0


cdef bint is_address_sampled(Arrival* arrival, SpanFacts facts) except -1:
    """Return True if a delivery to the address of the message is sampled: one whose producer has sampled it, if a rule
    concerns the address; one that the ratio of the link has chosen, with the share of the address in that ratio."""
    global decided_name
    cdef bytes address
    cdef PyObject* found
    cdef uint32_t least
    if decision.address.size > ADDRESS_MOST or facts.find is None:
        return False
    if facts.rules is None:
        facts.rules = {}
    address = PyBytes_FromStringAndSize(<const char*>decision.address.data, decision.address.size)
    found = PyDict_GetItemWithError(facts.rules, address)
    if found is NULL:
        arrival.searched = True
        if len(facts.rules) == RULES_MOST:
            facts.rules.clear()
        rule = facts.rules[address] = facts.find(address)
    else:
        rule = <object>found
    least, decided_name = rule
    return least == UINT32_MAX or (random_below(arrival.threshold) if arrival.chosen else 0) < least


cdef int reserve_scratch(size_t size) except -1:
    global scratch, scratch_size
    if size <= scratch_size:
        return 0
    free(scratch)
    scratch = <uint8_t*>malloc(size)
    scratch_size = size if scratch is not NULL else 0
    if scratch is NULL:
        raise MemoryError("trace context")
    return 0


cdef int begin_span(void* d, const Arrival* arrival, object record, Slice* message) except -1:
    global scratch_size, scratch
    cdef PendingSpan* p
    if not decision.scanned and not scan_message(message, arrival.honour, False):
        return 0
    if scratch_size > SCRATCH_KEPT:
        free(scratch)                      # of an earlier delivery
        scratch = NULL
        scratch_size = 0
    reserve_scratch(context_room(message.size, &decision.context))
    p = begin_receive(d, record, message.size, arrival.by_address)
    if p is NULL:
        return 0
    if decision.context.found:
        memcpy(p.span.trace_id, decision.context.trace_id, TRACE_ID_OCTETS)
    else:
        make_id(p.span.trace_id, TRACE_ID_OCTETS)
    if arrival.settled:
        p.span.flags |= SPAN_SETTLED
    message.size = write_context(scratch, message.data, message.size, &decision.sections, &decision.context,
                                 p.span.trace_id, p.span.span_id, decision.connection, p.span.began)
    message.data = scratch
    return 1


cdef PendingSpan* begin_receive(void* d, object record, uint64_t octets, bint by_address) except? NULL:
    """Begin the span of the delivery that was decided about, without its trace. NULL: there is no memory."""
    global active
    cdef PendingSpan* p = add_span(d, SPAN_RECEIVE, octets, decision.share)
    if p is NULL:
        return NULL
    if decision.context.found:
        memcpy(p.span.parent_id, decision.context.parent_id, SPAN_ID_OCTETS)
    if by_address:
        set_name(&p.span, decided_name)
    set_link(&p.span, record)
    if not active:
        active = True
        on_activity()
    return p


cdef int begin_carried(const Arrival* arrival, void* d, void* o, object record, object consumer, uint64_t octets,
                       uint64_t copied, uint8_t flags) except -1:
    cdef void* key = d if d is not NULL else &settled_key
    cdef PendingSpan* p = begin_receive(key, record, octets, arrival.by_address)
    cdef bint has_copy
    if p is NULL:
        return 0
    memcpy(p.span.trace_id, decision.trace_id, TRACE_ID_OCTETS)
    memcpy(p.span.span_id, decision.span_id, SPAN_ID_OCTETS)
    has_copy = begin_copy(key, o, consumer, copied, flags)
    if d is NULL:
        p.span.flags |= SPAN_SETTLED
        end_span(key, 0, 0)
        return 0
    return 2 if has_copy else 1


cdef int begin_crossing(void* d, const uint8_t* data, size_t size, const Slice* to, int worker) except -1:
    global active
    cdef TraceContext context
    cdef PendingSpan* p
    cdef Sections sections
    cdef Slice address
    cdef uint32_t share
    if clock is None:
        return 0
    find_context(data, size, &context)
    if not context.found:
        return 0
    share = share_of(context.connection)
    if not take_from_limit(share):
        return 0
    p = add_span(d, SPAN_CROSS, size, share)
    if p is NULL:
        return 0
    memcpy(p.span.trace_id, context.trace_id, TRACE_ID_OCTETS)
    memcpy(p.span.span_id, context.parent_id, SPAN_ID_OCTETS)
    p.span.from_worker = <uint8_t>worker
    p.span.connection = context.connection
    p.arrived = context.arrived
    memset(&sections, 0, sizeof(Sections))
    if to.data is not NULL:
        if open_variable(to.data, to.data + to.size, &address) is not NULL:
            set_address(&p.span, &address)
    elif scan(data, size, True, False, &sections) == SCAN_OK and sections.to.data is not NULL:
        set_address(&p.span, &sections.to)
    if not active:
        active = True
        on_activity()
    return 1


cdef void keep_crossing(const PendingSpan* source, const Span* copy) noexcept:
    """Record the way of a delivery between two workers, once its first copy has named the address."""
    cdef Span span = source.span
    make_id(span.span_id, SPAN_ID_OCTETS)
    memcpy(span.parent_id, source.span.span_id, SPAN_ID_OCTETS)
    # The clock of this worker is that of its last wake, which may be earlier than the arrival.
    span.ended = source.span.began
    span.began = min(source.arrived, span.ended) if source.arrived else span.ended
    span.flags = copy.flags & SPAN_CUT
    span.address_size = copy.address_size
    memcpy(span.address, copy.address, copy.address_size)
    keep_ended(&span)


cdef bint begin_copy(void* d, void* o, object record, uint64_t octets, uint8_t flags) except -1:
    global dropped_spans
    cdef PendingSpan* source = find_span(d)
    cdef PendingSpan* p
    if source is NULL:
        return False
    if source.copies == COPIES_MOST:
        dropped_spans += 1
        return False
    source.copies += 1
    if not take_from_limit(source.share):
        return False
    p = add_span(o if o is not NULL else &decision, SPAN_SEND, octets, source.share)
    if p is NULL:
        return False
    memcpy(p.span.trace_id, source.span.trace_id, TRACE_ID_OCTETS)
    memcpy(p.span.parent_id, source.span.span_id, SPAN_ID_OCTETS)
    p.span.flags = flags
    p.span.from_worker = source.span.from_worker
    if source.span.kind == SPAN_CROSS:
        # A message with a target may name any address, also that of another tenant.
        set_link(&p.span, record)
    if not p.span.address_size:
        p.span.flags |= source.span.flags & SPAN_CUT
        p.span.address_size = source.span.address_size
        memcpy(p.span.address, source.span.address, source.span.address_size)
    set_link(&p.span, record)
    if source.span.kind == SPAN_CROSS and source.copies == 1:
        keep_crossing(source, &p.span)
    if not flags & SPAN_QUEUED:
        p.span.sent = clock.now_ns
    if o is NULL:
        end_span(&decision, 0, 0)
    return True


cdef void note_copy_sent(void* o) noexcept:
    cdef PendingSpan* p = find_span(o)
    if p is not NULL:
        p.span.sent = clock.now_ns


cdef void note_span_outcome(const void* key, uint8_t kind) noexcept nogil:
    cdef PendingSpan* p = find_span(key)
    if p is not NULL:
        p.span.outcome = kind


cdef void end_span(void* key, uint8_t kind, uint8_t flags) noexcept:
    cdef PendingSpan* p = find_span(key)
    if p is NULL:
        return
    if not p.span.outcome:
        p.span.outcome = kind
    p.span.flags |= flags
    if p.span.kind == SPAN_SEND and not p.span.sent and not flags & SPAN_OVERDUE:
        p.span.flags |= SPAN_DROPPED
    p.span.ended = clock.now_ns
    if p.span.kind != SPAN_CROSS:
        keep_ended(&p.span)
    remove_span(key)
