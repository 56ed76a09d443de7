"""A session (part 2, 2.5): windows, delivery ids, dispositions over ranges; the links it carries."""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from router.amqp.codec cimport Slice
from router.amqp.connection cimport Channel, Connection, Endpoint, ReadyList
from router.amqp.delivery cimport IdMap, InDelivery, OutDelivery
from router.amqp.frames cimport Disposition, Flow, Transfer
from router.amqp.message cimport Meter
from router.amqp.numbers cimport NumberTable
from router.ipc.layout cimport LinkSlot

cdef enum:
    RANGES = 128               # settlements that are collected before they are written, where they are no neighbours
    WINDOW_OPEN = 0x7FFFFFFF   # frames: what Dispatch advertises in a begin when nothing bounds the session
    # Octets of streams above which a link is held up, and a session all of whose links are.
    HOLD_OCTETS = 131072
    # Octets of streams of one link above which it gets no credit for more.
    CREDIT_OCTETS = 1048576

# A link, as its session knows it. Owner: the session.
cdef class Link(Endpoint):
    cdef readonly Session session
    cdef LinkSlot* slot                    # where it counts
    cdef readonly object slot_owner        # keeps the memory of `slot`
    cdef public object context             # the worker's record of the link
    cdef readonly uint32_t capacity        # deliveries
    cdef readonly str name
    cdef readonly uint32_t handle          # ours
    cdef readonly uint32_t remote_handle
    cdef readonly bint incoming            # the peer sends
    cdef bint pending                      # its attach is being decided: no transfer or detach yet
    cdef readonly bint initiated           # the router attached it
    cdef bint detached                     # detach sent: frames for the handle are absorbed until the peer's comes
    cdef readonly bint gone                # its end was told to the handler
    cdef bint needs_flow
    cdef bint credit_withheld              # it is in the connection's list of links that get credit later
    cdef bint credit_held                  # it gets none while it holds CREDIT_OCTETS of streams
    cdef Meter* streams                    # octets held of messages in several frames, NULL before the first
    cdef Meter* whole                      # … and of messages that were stored whole
    cdef uint32_t passed                   # times that some of it was passed on
    cdef uint32_t looked_passed            # … when somebody looked last
    cdef uint64_t stood_since              # ms: when somebody looked and found that it had changed
    cdef Meter* streams_meter(self) except NULL
    cdef Meter* whole_meter(self) except NULL
    cdef void content_freed(self) noexcept
    cdef size_t octets_held(self) noexcept        # octets of both
    # The peer may send on it, and what it sends would not only wait: the session's window is to stay open.
    cdef bint goes_on(self) noexcept
    # It holds what its consumers do not take, and others wait for that: end it, or what it holds. Text for the log.
    cdef str give_up(self)
    cdef int on_transfer(self, const Transfer* t) except -1
    cdef int on_flow(self, const Flow* f) except -1
    cdef int delivery_outcome(self, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1
    cdef int delivery_update(self, InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1
    cdef bint answers_later                # the peer's detach (or end) waits for answer_detach
    cdef readonly bint answer_closed       # the link was closed, not only detached
    cdef readonly bytes detach_error       # of the peer's detach, encoded; None: there was none
    # Count as stuck what came before that time (ns), is neither sent nor settled and was not counted yet; how many.
    cdef uint32_t mark_stuck(self, uint64_t before) noexcept
    # While `logged`: show the handler a message that came (or is about to leave) here.
    cdef public bint logged
    cdef int show_message(self, const uint8_t* data, size_t size) except -1
    cdef int grant(self) except -1         # write the flow that want_flow asked for
    cdef int mark_ready(self) except -1    # it may be able to write queued deliveries
    cdef int forget_ready(self) except -1
    cdef int decide_no_more(self) except -1
    cdef int lost(self) except -1          # … with its session, or detached by its peer
    cdef int peer_detached(self) except -1  # the peer's detach: `answer_closed`, `detach_error` say what it said

# Deliveries first … first + count - 1, settled with an outcome that needs no words.
cdef struct Range:
    uint32_t first
    uint32_t count
    uint32_t behind            # deliveries from `first` to the next one to come: what ranges are ordered by
    uint8_t kind

# Owner: its connection.
cdef class Session(Channel):
    cdef readonly Connection connection
    cdef readonly object handler           # SessionHandler, see session.pyx
    cdef uint32_t next_incoming_id
    cdef uint32_t incoming_limit           # first transfer-id that may not come
    cdef uint32_t update_at                # the transfer-id at which the window is to be looked at
    cdef uint32_t incoming_window          # frames of a window while nothing is held up
    cdef uint32_t held_window              # … and while something is
    cdef bint strict                       # the configuration has set it: a violation is an error
    cdef bint pressed                      # streams were held up, and some of them are still here
    cdef bint window_changed
    cdef bint shut                         # it stays shut until something is taken
    cdef bint first_look
    cdef bint watched                      # … which somebody waits for: the scheduler looks at it again
    cdef uint64_t passed                   # times that some of what it holds was passed on
    cdef uint64_t watched_passed           # … when the scheduler looked last
    cdef Link went_on                      # the link that was found to go on last
    cdef uint32_t next_outgoing_id
    cdef uint32_t remote_incoming_window   # frames the peer takes
    cdef uint32_t next_delivery_id         # of outgoing deliveries
    cdef uint32_t expected_delivery_id     # of incoming ones
    cdef bint any_delivery
    cdef IdMap sent                        # delivery-id -> OutDelivery*
    cdef IdMap received                    # delivery-id -> InDelivery*
    cdef Meter* streams                    # octets held of messages in several frames, NULL before the first
    cdef Meter* whole                      # … and of messages that were stored whole
    # Links that wait for the peer's window: those that had no turn since it was open, and those that had.
    cdef ReadyList waiting
    cdef ReadyList served
    cdef bint contended                    # some do, or did and had no turn yet: nobody goes first
    cdef NumberTable by_remote_handle
    cdef list by_handle
    cdef list free_handles                 # heap of ours below len(by_handle)
    cdef readonly uint32_t handle_max      # of the peer: the highest handle that a link of ours may have
    cdef uint32_t copies                   # names that free_name made of others
    cdef set names                         # (name, incoming) of links that are attached
    cdef bint routers                      # both ends are routers
    cdef dict attaching                    # (name, incoming) -> Link that we attached and the peer has not answered
    cdef list flows                        # Links with credit to grant
    cdef readonly bint ended
    cdef uint32_t answers                  # links whose end the peer's `end` waits for
    cdef bint end_due
    # Settlements of this wake, as ranges in the order they came; written in order of their ids, neighbours as one.
    cdef Range* ranges
    cdef uint32_t range_count

    cdef int transfer(self, const uint8_t* p, const uint8_t* end) except -1
    cdef int new_delivery(self, const Transfer* t) except -1
    cdef int flow(self, const uint8_t* p, const uint8_t* end) except -1
    cdef int disposition(self, const uint8_t* p, const uint8_t* end) except -1
    cdef int apply_sent(self, uint32_t first, uint32_t count, uint8_t kind, const Slice* state, bint settled) except -1
    cdef int apply_received(self, uint32_t first, uint32_t count, uint8_t kind, const Slice* state,
                            bint settled) except -1
    cdef int attach(self, const uint8_t* p, const uint8_t* end) except -1
    cdef int take_begin(self, list begin) except -1
    cdef int detach(self, const uint8_t* p, const uint8_t* end) except -1
    cdef Link link_of(self, uint32_t handle)
    cdef int report(self, uint32_t delivery_id, uint8_t kind, const Slice* state, bint settled) except -1
    cdef int report_now(self, bint role, uint32_t first, uint32_t last, const Slice* state, bint settled) except -1
    cdef int flush_reports(self) except -1
    cdef int send_flow(self, Flow* flow) except -1
    cdef int send_whole_flow(self, Flow* flow) except -1
    cdef int window_left(self) noexcept
    cdef uint32_t window_now(self) noexcept
    cdef bint any_goes_on(self) noexcept
    cdef void open_window(self, uint32_t frames) noexcept
    cdef void set_shut(self, bint shut) noexcept
    cdef int update_window(self) except -1
    cdef int window_opened(self) except -1
    cdef int watch(self) except -1
    cdef Link fullest(self, Link most, uint64_t now)
    cdef void look_at_window(self) noexcept
    cdef Meter* streams_meter(self) except NULL
    cdef Meter* whole_meter(self) except NULL
    cdef void content_freed(self) noexcept
    cdef void want_flow(self, Link link) noexcept
    cdef int release(self, Link link) except -1
    cdef int link_gone(self, Link link) except -1
    cdef int lost_badly(self, Link link, object fault) except -1
    cdef int send_end(self) except -1
