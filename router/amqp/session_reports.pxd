"""Reports of a session to its peer about deliveries: unsettled states, and outcomes (AMQP 1.0 part 2, 2.7.6)."""
from libc.stdint cimport uint8_t, uint32_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.runs cimport SettlementRuns, runs_add
from sluice.router.amqp.session_links cimport SessionLinks
from sluice.router.amqp.state_reports cimport StateReports, reports_forget
from sluice.router.amqp.states cimport is_plain_outcome

# Base class of a session: its reports. Owner: its connection.
cdef class SessionReports(SessionLinks):
    cdef SettlementRuns settlements                  # outcomes of this wake
    cdef bytes long_state                  # state of a run of deliveries whose outcomes are not plain
    cdef uint32_t long_first
    cdef uint32_t long_count
    # Links or reports wait for a turn, or have waited without one since: no transfer may be written before that turn.
    cdef bint contended
    cdef StateReports received_states      # waiting reports of deliveries received
    cdef StateReports sent_states          # waiting reports of deliveries sent
    cdef int report(self, uint32_t delivery_id, uint8_t kind, const Slice* state, bint settled) except -1
    cdef int report_run(self, uint32_t first, uint32_t count, uint8_t kind, const Slice* state) except -1
    cdef int report_long(self, uint32_t first, uint32_t count, const Slice* state) except -1
    cdef int report_state(self, bint role, uint32_t delivery_id, const Slice* state) except -1
    cdef int flush_settlements(self) except -1
    cdef void wait_for_turn(self) noexcept
    cdef bint any_report_due(self) noexcept
    cdef int write_reports(self, size_t most) except -1
    cdef int report_outcome(self, bint role, uint32_t first, uint32_t count, const Slice* state) except -1
    cdef int write_report(self, bint role, uint32_t first, uint32_t count, const Slice* state, bint settled) except -1


cdef inline int report_settled(SessionReports session, uint32_t delivery_id, uint8_t kind,
                               const Slice* state) except -1:
    """Report a settlement, with a fast path for a plain outcome that is not the first of its wake."""
    reports_forget(&session.received_states, delivery_id)
    if is_plain_outcome(kind, state) and runs_add(&session.settlements, delivery_id, 1, kind):
        return 0
    return session.report(delivery_id, kind, state, True)
