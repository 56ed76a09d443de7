"""States and outcomes of deliveries that wait for room in the write buffer (AMQP 1.0 part 2, 2.6.12).

A peer may change the state of thousands of deliveries with one frame, and do so again before the other peer has read
anything. AMQP describes the state of a delivery, not its history, so the latest unsettled state replaces earlier ones.
The memory is therefore bounded by the number of unsettled deliveries. Equal states of deliveries with consecutive ids
share a frame.
"""
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from sluice.router.amqp.id_map cimport map_free, map_get, map_put_reserved, map_reserve, map_take
from sluice.router.amqp.states cimport plain_state, state_kind


cdef inline void unlink_report(StateReports* r, StateReport* report) noexcept nogil:
    if report.previous is not NULL:
        report.previous.next = report.next
    else:
        r.first = report.next
    if report.next is not NULL:
        report.next.previous = report.previous
    else:
        r.last = report.previous
    r.octets -= report.size


cdef inline Slice bounded_state(const StateReports* r, const Slice* state) noexcept:
    """Return the state, or its kind alone if the bound of octets is reached."""
    if state.size > REPORT_SHORT and r.octets + state.size > REPORTS_OCTETS:
        return plain_state(state_kind(state))
    return state[0]


cdef inline bint has_state(const StateReport* report, const uint8_t* octets, size_t size) noexcept nogil:
    # An outcome may have no state. `octets` is NULL then, which memcmp must not get.
    return report.size == size and (size == 0 or memcmp(&report.octets[0], octets, size) == 0)


cdef StateReport* append_report(StateReports* r, uint32_t first, uint32_t count, const Slice* state,
                                bint settled) except NULL:
    cdef StateReport* report = <StateReport*>malloc(sizeof(StateReport) + state.size)
    if report is NULL:
        raise MemoryError("delivery state")
    report.id = first
    report.count = count
    report.settled = settled
    report.size = <uint32_t>state.size
    if state.size:
        memcpy(&report.octets[0], state.data, state.size)
    report.next = NULL
    report.previous = r.last
    if r.last is not NULL:
        r.last.next = report
    else:
        r.first = report
    r.last = report
    r.octets += report.size
    return report


cdef int reports_put(StateReports* r, uint32_t id, const Slice* state) except -1:
    cdef StateReport* report = <StateReport*>map_get(&r.by_id, id)
    cdef Slice kept = bounded_state(r, state)
    if report is not NULL and report.size == kept.size:
        memcpy(&report.octets[0], kept.data, kept.size)
        return 0
    map_reserve(&r.by_id)
    if report is not NULL:
        reports_remove(r, id)
    report = append_report(r, id, 1, &kept, False)
    map_put_reserved(&r.by_id, id, report)
    return 0


cdef int reports_put_outcome(StateReports* r, uint32_t first, uint32_t count, const Slice* state) except -1:
    cdef Slice kept = bounded_state(r, state)
    cdef StateReport* last = r.last
    if last is not NULL and last.settled and first == <uint32_t>(last.id + last.count) \
            and has_state(last, kept.data, kept.size):
        last.count += count
        return 0
    append_report(r, first, count, &kept, True)
    return 0


cdef StateReport* take_first(StateReports* r) noexcept:
    cdef StateReport* report = r.first
    if not report.settled:
        map_take(&r.by_id, report.id)
    unlink_report(r, report)
    return report


cdef StateReport* reports_take(StateReports* r) noexcept:
    cdef StateReport* taken
    cdef StateReport* report
    if r.first is NULL:
        return NULL
    taken = take_first(r)
    while r.first is not NULL and r.first.settled == taken.settled \
            and r.first.id == <uint32_t>(taken.id + taken.count) and has_state(r.first, &taken.octets[0], taken.size):
        report = take_first(r)
        taken.count += report.count
        free(report)
    return taken


cdef void reports_remove(StateReports* r, uint32_t id) noexcept:
    cdef StateReport* report = <StateReport*>map_take(&r.by_id, id)
    if report is not NULL:
        unlink_report(r, report)
        free(report)


cdef void reports_clear(StateReports* r) noexcept:
    cdef StateReport* report = r.first
    cdef StateReport* following
    while report is not NULL:
        following = report.next
        free(report)
        report = following
    r.first = r.last = NULL
    r.octets = 0
    map_free(&r.by_id)
