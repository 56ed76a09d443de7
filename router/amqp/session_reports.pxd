"""What a session reports to its peer about deliveries: unsettled states, and outcomes (AMQP 1.0 part 2, 2.7.6)."""
from libc.stdint cimport uint8_t, uint32_t

from router.amqp.codec cimport Slice
from router.amqp.runs cimport Runs, runs_add
from router.amqp.session_links cimport SessionLinks
from router.amqp.state_reports cimport StateReports, reports_forget
from router.amqp.states cimport is_plain_outcome

# Base of a session. Owner: its connection.
cdef class SessionReports(SessionLinks):
    cdef Runs settlements                  # of this wake
    cdef bytes long_state                  # of consecutive ones with words of their own
    cdef uint32_t long_first
    cdef uint32_t long_count
    # Links or reports wait for their turn, or did and had none yet: no transfer may be written before it.
    cdef bint contended
    cdef StateReports received_states      # to be written, of deliveries that came …
    cdef StateReports sent_states          # … and that left
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
    """`report` of a settlement. Most are not the first one of their wake."""
    reports_forget(&session.received_states, delivery_id)
    if is_plain_outcome(kind, state) and runs_add(&session.settlements, delivery_id, 1, kind):
        return 0
    return session.report(delivery_id, kind, state, True)
