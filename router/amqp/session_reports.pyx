"""Reports of a session to its peer about deliveries: unsettled states, and outcomes (AMQP 1.0 part 2, 2.7.6).

Outcomes are collected in a wake and written at its end in few dispositions. Outcomes for which the write buffer has no
room, and all unsettled states, are kept (state_reports.pyx) and written in the session's turn.
"""
cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport free
from libc.string cimport memcmp

from sluice.router.amqp.buffer cimport buffer_room, buffer_used
from sluice.router.amqp.endpoint cimport OUTPUT_HIGH
from sluice.router.amqp.frames cimport DISPOSITION_ROOM, write_disposition
from sluice.router.amqp.runs cimport runs_add, runs_begin, runs_release, runs_take
from sluice.router.amqp.state_reports cimport (
    StateReport, reports_clear, reports_forget, reports_put, reports_put_outcome, reports_take,
)
from sluice.router.amqp.states cimport is_plain_outcome, plain_state, state_kind

cdef enum:
    LONG_STATE_MOST = 16384    # octets of a state that may wait for equal ones


cdef class SessionReports(SessionLinks):
    def __dealloc__(self):
        reports_clear(&self.received_states)
        reports_clear(&self.sent_states)
        runs_release(&self.settlements)

    cdef int report(self, uint32_t delivery_id, uint8_t kind, const Slice* state, bint settled) except -1:
        """Report a state or an outcome to the sender of a delivery. Equal outcomes of consecutive deliveries share a
        disposition."""
        if not settled:
            return self.report_state(True, delivery_id, state)
        reports_forget(&self.received_states, delivery_id)
        return self.report_run(delivery_id, 1, kind, state)

    cdef int report_state(self, bint role, uint32_t delivery_id, const Slice* state) except -1:
        """Report an unsettled state when the write buffer has room. Only the latest state of the delivery is written.
        role: as in a disposition, True for deliveries received."""
        if self.ended or state.size == 0:
            return 0       # a disposition without settlement and state must not replace a state that waits
        reports_put(&self.received_states if role else &self.sent_states, delivery_id, state)
        self.wait_for_turn()
        return 0

    cdef void wait_for_turn(self) noexcept:
        """Have reports written before any later transfer of the session: a state may belong to a transaction that the
        transfer discharges."""
        self.contended = True
        self.connection.want_turn(self, False)

    @cython.final
    cdef bint any_report_due(self) noexcept:
        return self.received_states.first is not NULL or self.sent_states.first is not NULL

    cdef int write_reports(self, size_t most) except -1:
        """Write reports that are due until the write buffer holds `most` octets."""
        cdef StateReport* report
        cdef Slice state
        cdef bint role
        while buffer_used(&self.connection.out) < most:
            role = self.received_states.first is not NULL
            report = reports_take(&self.received_states if role else &self.sent_states)
            if report is NULL:
                reports_clear(&self.received_states)   # an idle session keeps no memory
                reports_clear(&self.sent_states)
                break
            state.data = &report.octets[0]
            state.size = report.size
            try:
                self.write_report(role, report.id, report.count, &state, report.settled)
            finally:
                free(report)
        return 0

    cdef int report_run(self, uint32_t first, uint32_t count, uint8_t kind, const Slice* state) except -1:
        """Report that deliveries `first` to `first + count - 1` are settled."""
        if not is_plain_outcome(kind, state):
            if state.size <= LONG_STATE_MOST:
                return self.report_long(first, count, state)
            self.flush_settlements()
            return self.report_outcome(True, first, count, state)
        if self.long_count:
            self.flush_settlements()
        if runs_add(&self.settlements, first, count, kind):
            return 0
        self.flush_settlements()
        if not runs_begin(&self.settlements, first):
            return self.report_outcome(True, first, count, state)
        runs_add(&self.settlements, first, count, kind)
        self.connection.mark_channel(self)
        return 0

    cdef int report_long(self, uint32_t first, uint32_t count, const Slice* state) except -1:
        """Report an outcome that is not plain; consecutive deliveries with equal ones share a frame. While it waits,
        no other settlement does."""
        if self.long_count and first == self.long_first + self.long_count \
                and state.size == <size_t>len(self.long_state) \
                and memcmp(<const char*>self.long_state, state.data, state.size) == 0:
            self.long_count += count
            return 0
        self.flush_settlements()
        runs_release(&self.settlements)    # later settlements begin a new run behind it
        self.long_state = PyBytes_FromStringAndSize(<const char*>state.data, state.size)
        self.long_first = first
        self.long_count = count
        self.connection.mark_channel(self)
        self.wait_for_turn()
        return 0

    cdef int flush_reports(self) except -1:
        self.flush_settlements()
        if self.any_report_due():
            self.write_reports(<size_t>-1)
        return 0

    cdef int flush_settlements(self) except -1:
        cdef Slice state
        cdef uint32_t first, count
        cdef uint8_t kind
        if self.long_count:
            state.data = <const uint8_t*><const char*>self.long_state
            state.size = len(self.long_state)
            count = self.long_count
            self.long_count = 0
            self.report_outcome(True, self.long_first, count, &state)
            self.long_state = None
        if self.settlements.kinds is not NULL:
            count = runs_take(&self.settlements, &first, &kind)
            while count:
                state = plain_state(kind)
                self.report_outcome(True, first, count, &state)
                count = runs_take(&self.settlements, &first, &kind)
        return 0

    cdef int report_outcome(self, bint role, uint32_t first, uint32_t count, const Slice* state) except -1:
        """Report that deliveries are settled, now or when the write buffer has room."""
        if self.ended or self.connection.close_sent:
            return 0
        if buffer_used(&self.connection.out) < OUTPUT_HIGH:
            return self.write_report(role, first, count, state, True)
        reports_put_outcome(&self.received_states if role else &self.sent_states, first, count, state)
        self.wait_for_turn()
        return 0

    cdef int write_report(self, bint role, uint32_t first, uint32_t count, const Slice* state, bint settled) except -1:
        cdef uint8_t* w
        cdef Slice plain
        if self.ended or self.connection.close_sent:
            return 0
        if DISPOSITION_ROOM + state.size > self.connection.remote_max_frame:
            plain = plain_state(state_kind(state))     # the state came over a connection with longer frames
            state = &plain
        w = buffer_room(&self.connection.out, DISPOSITION_ROOM + state.size)
        self.connection.out.end += write_disposition(w, self.local_channel, role, first, first + count - 1, settled,
                                                     state.data, state.size)
        self.connection.mark_dirty()
        return 0
