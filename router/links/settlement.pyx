"""Settlement of runs: copies that one consumer settles together, and whose deliveries arrived by one link.

Copies in a run are usual: written whole, unsettled until now, each the only copy of a delivery of which nothing has
been reported to the producer. Copies of multicast deliveries, and others of which only the delivery is unusual, form a
run for their consumer, and each reports to its delivery by `out_update`. The first copy of another kind ends the run.
Copies that are not written whole, and samples, take the slow path (`delivery_outcome`).

The producer is reported to first, since only this can fail. At that time no copy has been settled. The failure ends
the consumer's connection, which settles the copies as lost.
"""
from libc.stdint cimport uint64_t

from sluice.router.amqp.id_map cimport home_of, map_get, map_take, map_take_known
from sluice.router.amqp.meter cimport DELIVERY_OCTETS, Meter, meter_give_back
from sluice.router.amqp.prefetch cimport prefetch
from sluice.router.amqp.runs cimport runs_add
from sluice.router.amqp.session cimport Session
from sluice.router.amqp.spec cimport D_ACCEPTED
from sluice.router.amqp.states cimport is_plain_outcome
from sluice.router.delivery.delivery cimport (
    IN_CREDITED, OUT_STARTED, DeliveryNode, InDelivery, ins_recycle, out_free, outs_recycle, sent_remove,
)
from sluice.router.delivery.outcome cimport out_update
from sluice.router.stats.counters cimport count_age, count_finished, count_outcome, count_total
from sluice.router.stats.samples cimport SLOW_NS, write_outcome_sample

cdef enum:
    AHEAD = 8                  # copies between the current one and the one that is prefetched
    OUT_HOT = 128              # octets of a copy that its settlement reads

cdef bint runs_on = True


cdef void use_runs(bint on) noexcept:
    global runs_on
    runs_on = on


cdef bint runs_used() noexcept:
    return runs_on


cdef inline bint is_usual_copy(DeliveryLink link, const OutDelivery* o) noexcept nogil:
    """Return True if the copy itself is usual, and a report to its delivery's upstream cannot affect the run.

    The latter holds if that upstream is a link.
    """
    return (o.flags == OUT_STARTED and o.downstream is &link.node
            and (o.source is NULL or o.source.upstream.calls is link.node.calls))


cdef inline OutDelivery* next_copy(Session session, const OutDelivery* o, uint32_t id) noexcept nogil:
    """Return the copy with this id, which follows that of o; NULL: there is none. Usually it is o's neighbour."""
    if o.next is not NULL and o.next.id == id:
        return o.next
    return <OutDelivery*>map_get(&session.sent, id)


cdef inline void prefetch_further(Session session, uint32_t id) noexcept nogil:
    """Prefetch the structs of copies some places ahead of this id."""
    cdef const OutDelivery* o = <const OutDelivery*>home_of(&session.sent, id + AHEAD).value
    if o is not NULL:
        prefetch(o.source, sizeof(InDelivery))
    prefetch(home_of(&session.sent, id + 2 * AHEAD).value, OUT_HOT)


cdef uint32_t settle_copies(DeliveryLink link, OutDelivery* o, uint32_t most, uint8_t kind,
                            const Slice* state) except 0xFFFFFFFF:
    cdef OutDelivery* run[RUN_MOST]
    cdef Session session = link.session
    cdef DeliveryNode* upstream
    cdef uint32_t first = o.id
    cdef uint32_t n = 0
    if not runs_on:
        return 0
    if most > RUN_MOST:
        most = RUN_MOST
    if can_join_run(o, o.source):
        upstream = o.source.upstream
        while can_join_run(o, o.source) and o.source.upstream is upstream and o.downstream is &link.node:
            run[n] = o
            n += 1
            if n == most:
                break
            prefetch_further(session, o.id)
            o = next_copy(session, o, <uint32_t>(first + n))
            if o is NULL:
                break
        if not upstream.calls.settled(upstream.owner, run, n, kind, state):
            return 0
    else:
        while o is not NULL and n < most and is_usual_copy(link, o):
            run[n] = o
            n += 1
            out_update(o, kind, state, True)
            o = next_copy(session, o, <uint32_t>(first + n))
        if n == 0:
            return 0
    count_copies(link, run, n, kind)
    free_copies(link, run, n)
    return n


cdef inline void count_copies(DeliveryLink link, OutDelivery** run, uint32_t n, uint8_t kind) noexcept:
    cdef uint64_t now = link.session.connection.scheduler.now_ns
    cdef uint32_t i
    count_finished(link.slot, link.session.connection.scheduler.second, n)
    count_outcome(link.slot, kind, n)
    link.slot.unsettled -= n
    for i in range(n):
        if kind != D_ACCEPTED or now - run[i].since > SLOW_NS:
            count_age(link.slot, now - run[i].since, False)
            write_outcome_sample(link.slot, run[i], kind, now)


cdef inline void free_copies(DeliveryLink link, OutDelivery** run, uint32_t n) noexcept:
    """Release the copies of a run; neighbours in the list of sent copies are removed together."""
    cdef Session session = link.session
    cdef OutDelivery* first
    cdef OutDelivery* last
    cdef uint32_t i = 0
    cdef uint32_t begin
    while i < n:
        begin = i
        first = last = run[i]
        i += 1
        if first.prefix is not NULL:
            map_take(&session.sent, first.id)
            sent_remove(&link.node, first)
            out_free(first)
            continue
        while i < n and last.next is run[i] and run[i].id > last.id and run[i].prefix is NULL \
                and run[i].outstanding is first.outstanding:
            last = run[i]
            i += 1
        map_take_known(&session.sent, first.id, i - begin)
        outs_recycle(first, last, i - begin)


cdef uint32_t settle_sources(DeliveryLink link, OutDelivery** run, uint32_t n, uint8_t kind, const Slice* state,
                             bint client) except 0xFFFFFFFF:
    cdef InDelivery* sources[RUN_MOST]
    cdef Session session = link.session
    report_sources(session, run, n, kind, state)
    cut_sources(run, n, sources)
    count_sources(link, sources, n, kind, client)
    return free_sources(&session.received, sources, n)


cdef void cut_sources(OutDelivery** run, uint32_t n, InDelivery** sources) noexcept nogil:
    cdef uint32_t i
    for i in range(n):
        sources[i] = run[i].source
        sources[i].copies = NULL
        run[i].source = NULL


cdef inline int report_sources(Session session, OutDelivery** run, uint32_t n, uint8_t kind,
                               const Slice* state) except -1:
    cdef uint32_t i = 0
    cdef uint32_t begin, first
    cdef bint plain = is_plain_outcome(kind, state)
    while i < n:
        begin = i
        first = <uint32_t>run[i].source.key
        i += 1
        while i < n and <uint32_t>run[i].source.key == <uint32_t>(first + (i - begin)):
            i += 1
        if not plain or not runs_add(&session.settlements, first, i - begin, kind):
            session.report_run(first, i - begin, kind, state)
    return 0


cdef inline void count_sources(DeliveryLink link, InDelivery** sources, uint32_t n, uint8_t kind, bint client) noexcept:
    """Count the end of a run's deliveries. Those that arrived at the same time have the same age."""
    cdef uint64_t now = link.session.connection.scheduler.now_ns
    cdef uint64_t since
    cdef uint32_t i = 0
    cdef uint32_t begin
    count_finished(link.slot, link.session.connection.scheduler.second, n)
    count_outcome(link.slot, kind, n)
    count_total(kind, client, n)
    while i < n:
        begin = i
        since = sources[i].since
        i += 1
        while i < n and sources[i].since == since:
            i += 1
        count_age(link.slot, now - since, True, i - begin)


cdef uint32_t free_sources(IdMap* received, InDelivery** sources, uint32_t n) noexcept:
    cdef Meter* meter = sources[0].upstream.meter
    cdef InDelivery* last
    cdef uint64_t key
    cdef uint32_t i = 0
    cdef uint32_t credited = 0
    cdef uint32_t begin
    while i < n:
        begin = i
        last = sources[i]
        key = last.key
        while True:
            credited += last.flags & IN_CREDITED
            i += 1
            if i == n or last.next is not sources[i] or sources[i].key != key + (i - begin):
                break
            last = sources[i]
        map_take_known(received, key, i - begin)
        ins_recycle(sources[begin], last, i - begin)
    if meter is not NULL:
        meter_give_back(meter, <size_t>DELIVERY_OCTETS * n)
    return n - credited // IN_CREDITED
