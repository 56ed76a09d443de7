"""AMQP session (AMQP 1.0 part 2, 2.5): windows, delivery ids, dispositions over ranges."""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.endpoint cimport Endpoint
from sluice.router.amqp.frames cimport Disposition, Flow, Transfer
from sluice.router.amqp.id_map cimport IdMap
from sluice.router.amqp.meter cimport Meter
from sluice.router.amqp.node_list cimport NodeList
from sluice.router.amqp.session_reports cimport SessionReports

cdef enum:
    # Octets of streams above which a link counts as held up; a session whose links are all held up is so, too.
    HOLD_OCTETS = 131072
    UNITS_PER_OCTET = 2         # cost units for each octet of a value that is decoded to check it

# AMQP session. Owner: its connection.
cdef class Session(SessionReports):
    cdef uint32_t next_incoming_id
    cdef uint32_t incoming_limit           # first transfer-id outside the window
    # First transfer-id outside the widest window announced, since the peer may not have seen it shortened.
    cdef uint32_t promised_limit
    cdef uint32_t update_at                # transfer-id at which the window is recomputed
    cdef uint32_t incoming_window          # frames of a window while nothing is held up
    cdef uint32_t held_window              # frames of a window while something is held up
    cdef uint32_t long_window              # frames of a window for frames of the largest size
    cdef uint64_t octets                   # octets of transfers since the window was last fitted to them
    cdef uint32_t measured_at              # transfer-id at that time
    cdef bint strict                       # the window is configured: a violation is an error
    cdef bint pressed                      # streams were held up, and some of them are still stored
    cdef bint window_changed
    cdef bint shorter                      # the window is shorter than announced to the peer
    cdef bint shut                         # the window stays shut until something is taken
    cdef bint waits                        # shut because memory is full: in the connection's `shut`
    cdef uint64_t waits_since              # time in ms since which it waits and nothing was passed on
    cdef uint64_t waits_passed             # `passed` at that time
    cdef uint64_t passed                   # counter of times that stored octets were passed on
    cdef uint32_t next_outgoing_id
    cdef uint32_t remote_incoming_window   # frames that the peer accepts
    cdef uint32_t next_delivery_id         # of outgoing deliveries
    cdef uint32_t expected_delivery_id     # of incoming ones
    cdef bint miscounted                   # the peer's impossible next-incoming-id was reported to the handler
    cdef bint any_delivery
    cdef bint delivery_id_reused                     # a delivery-id came round again while its delivery was unsettled
    cdef uint32_t applied                  # ids of the current disposition that earlier slices have handled
    cdef IdMap sent                        # delivery-id -> Entry*
    cdef IdMap received                    # delivery-id -> Entry*
    cdef Meter* streams                    # octets held of messages in several frames; NULL before the first
    cdef Meter* whole                      # octets held of messages that were stored whole
    cdef Meter* crossed                    # part of ConnectionMemory.crossed: messages of this session; or NULL
    # Links that wait for the peer's window: `waiting` had no turn since it was open, `served` had one.
    cdef NodeList waiting
    cdef NodeList served
    cdef list flows                        # Links with credit to grant

    cdef void note_delivery_id_reused(self) noexcept
    cdef bint window_used(self) except *
    cdef int new_delivery(self, const Transfer* t) except -1
    cdef int flow(self, const uint8_t* p, const uint8_t* end) except -1
    cdef int apply_flow_window(self, const Flow* f) except -1
    cdef int check_value(self, const Slice* value) except -1
    cdef int disposition(self, const uint8_t* p, const uint8_t* end) except -1
    cdef uint32_t apply_sent(self, uint32_t first, uint32_t count, uint8_t kind, const Slice* state,
                             bint settled) except? 0xFFFFFFFF
    cdef uint32_t apply_received(self, uint32_t first, uint32_t count, uint8_t kind, const Slice* state,
                                 bint settled) except? 0xFFFFFFFF
    cdef uint32_t apply_sparse(self, bint role, uint32_t first, uint32_t count, uint8_t kind, const Slice* state,
                               bint settled) except? 0xFFFFFFFF
    cdef int take_begin(self, list begin) except -1
    cdef int send_flow(self, Flow* flow) except -1
    cdef int send_whole_flow(self, Flow* flow) except -1
    cdef int window_left(self) noexcept
    cdef uint32_t window_now(self) noexcept
    cdef size_t awaited(self) noexcept
    cdef size_t little(self) noexcept
    cdef uint32_t window_most(self) noexcept
    cdef void open_window(self, uint32_t frames) noexcept
    cdef void adjust_window(self) noexcept
    cdef void set_shut(self, bint shut) noexcept
    cdef int update_window(self) except -1
    cdef int send_window(self) except -1
    cdef void wait_for_room(self) noexcept
    cdef int window_opened(self) except -1
    cdef void recheck_window(self) noexcept
    cdef Meter* streams_meter(self) except NULL
    cdef Meter* whole_meter(self) except NULL
    cdef Meter* crossed_meter(self) except NULL
    cdef void content_freed(self) noexcept
    cdef void want_flow(self, Endpoint link) noexcept
    cdef bint flow_due(self) noexcept
    cdef int write_flows(self) except -1


cdef inline int note_delivery(Session session, const Transfer* t) except -1:
    """Note the first transfer of a delivery."""
    if session.any_delivery and t.has_delivery_id and t.delivery_id == session.expected_delivery_id:
        session.expected_delivery_id += 1
        return 0
    return session.new_delivery(t)
