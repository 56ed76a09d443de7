"""Unsettled delivery states that are to be written (AMQP 1.0 part 2, 2.6.12): the latest one of each delivery.

A peer may change the state of thousands of deliveries by one frame, and do so again before the other peer has read
anything. AMQP describes the state of a delivery, not its history, so the latest one replaces those before it: what is
kept is bounded by the number of unsettled deliveries. Equal states of deliveries whose ids follow each other become one
frame.
"""
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from router.amqp.id_map cimport map_free, map_get, map_put_reserved, map_reserve, map_take
from router.amqp.states cimport plain_state, state_kind


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


cdef int reports_put(StateReports* r, uint32_t id, const Slice* state) except -1:
    cdef StateReport* report = <StateReport*>map_get(&r.by_id, id)
    cdef Slice kept = state[0]
    if kept.size > REPORT_SHORT and r.octets + kept.size > REPORTS_OCTETS:
        kept = plain_state(state_kind(state))
    if report is not NULL and report.size == kept.size:
        memcpy(&report.octets[0], kept.data, kept.size)
        return 0
    map_reserve(&r.by_id)
    if report is not NULL:
        reports_remove(r, id)
    report = <StateReport*>malloc(sizeof(StateReport) + kept.size)
    if report is NULL:
        raise MemoryError("delivery state")
    report.id = id
    report.size = <uint32_t>kept.size
    if kept.size:
        memcpy(&report.octets[0], kept.data, kept.size)
    report.next = NULL
    report.previous = r.last
    if r.last is not NULL:
        r.last.next = report
    else:
        r.first = report
    r.last = report
    r.octets += report.size
    map_put_reserved(&r.by_id, id, report)
    return 0


cdef StateReport* reports_take(StateReports* r, uint32_t* count) noexcept:
    cdef StateReport* taken = r.first
    cdef StateReport* report
    if taken is NULL:
        return NULL
    map_take(&r.by_id, taken.id)
    unlink_report(r, taken)
    count[0] = 1
    report = r.first
    while report is not NULL and report.id == <uint32_t>(taken.id + count[0]) and report.size == taken.size \
            and memcmp(&report.octets[0], &taken.octets[0], taken.size) == 0:
        count[0] += 1
        reports_remove(r, report.id)
        report = r.first
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
