"""States and outcomes of deliveries that wait for room in the write buffer."""
from libc.stdint cimport uint8_t, uint32_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.id_map cimport IdMap

cdef enum:
    # Octets of waiting states. Above this, a state longer than REPORT_SHORT is reported by its kind alone: one
    # disposition with a long error may give it to thousands of deliveries.
    REPORTS_OCTETS = 1048576
    REPORT_SHORT = 64

cdef struct StateReport:
    StateReport* next
    StateReport* previous
    uint32_t id                # delivery-id of the first delivery
    uint32_t count             # number of consecutive deliveries with the state; 1 while an unsettled state waits
    uint32_t size
    bint settled
    uint8_t[1] octets          # the encoded state

# Waiting reports of one role. All zero: empty. Owner: a session, with one for each role.
cdef struct StateReports:
    IdMap by_id                # delivery-id -> StateReport* with an unsettled state
    StateReport* first         # in the order in which they became due
    StateReport* last
    size_t octets              # octets of all states

# Queue an unsettled state of a delivery. It replaces one that has not been written.
cdef int reports_put(StateReports* r, uint32_t id, const Slice* state) except -1
# Queue the settlement of `count` deliveries with this outcome.
cdef int reports_put_outcome(StateReports* r, uint32_t first, uint32_t count, const Slice* state) except -1
# Take the report that has waited longest, merged with following reports of the same state for the next deliveries. The
# caller frees it. NULL: there is none.
cdef StateReport* reports_take(StateReports* r) noexcept
cdef void reports_remove(StateReports* r, uint32_t id) noexcept
cdef void reports_clear(StateReports* r) noexcept


cdef inline void reports_forget(StateReports* r, uint32_t id) noexcept:
    """Drop the unsettled state of a delivery that is settled: only its outcome is left to report."""
    if r.first is not NULL:
        reports_remove(r, id)
