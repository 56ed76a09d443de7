"""States and outcomes of deliveries that are to be written when the write buffer has room."""
from libc.stdint cimport uint8_t, uint32_t

from router.amqp.codec cimport Slice
from router.amqp.id_map cimport IdMap

cdef enum:
    # Octets of states that are kept. Beyond them a state longer than REPORT_SHORT is reported by its kind alone: one
    # disposition with a long error gives it to thousands of deliveries.
    REPORTS_OCTETS = 1048576
    REPORT_SHORT = 64

cdef struct StateReport:
    StateReport* next
    StateReport* previous
    uint32_t id                # delivery-id of the first
    uint32_t count             # deliveries that have the state, one while an unsettled state waits
    uint32_t size
    bint settled
    uint8_t[1] octets          # the encoded state

# Owner: a session, one for each role. All zero: empty.
cdef struct StateReports:
    IdMap by_id                # delivery-id -> StateReport* of an unsettled state
    StateReport* first         # in the order in which they came due
    StateReport* last
    size_t octets              # of all states

# Report this unsettled state of a delivery; it replaces one that has not been written.
cdef int reports_put(StateReports* r, uint32_t id, const Slice* state) except -1
# Report that `count` deliveries are settled with this outcome.
cdef int reports_put_outcome(StateReports* r, uint32_t first, uint32_t count, const Slice* state) except -1
# Take the report that has been due longest, with those that follow it and say the same of the next deliveries. The
# caller frees it. NULL: there is none.
cdef StateReport* reports_take(StateReports* r) noexcept
cdef void reports_remove(StateReports* r, uint32_t id) noexcept
cdef void reports_clear(StateReports* r) noexcept


cdef inline void reports_forget(StateReports* r, uint32_t id) noexcept:
    """The delivery is settled: its outcome is all that is left to report."""
    if r.first is not NULL:
        reports_remove(r, id)
