"""A link, as its session and its connection know it; the order in which links have their turns to write."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from router.amqp.codec cimport Slice
from router.amqp.frames cimport Flow, Transfer
from router.amqp.link_life cimport (
    LIFE_ANSWERING, LIFE_PENDING, LIFE_ROUTE_HALF,
)
from router.amqp.meter cimport Meter
from router.amqp.node_list cimport ListNode, NodeList
from router.amqp.survey cimport Survey

cdef enum:
    # Octets in a connection's write buffer above which links wait in their queues (Dispatch's Q3 is 512 KiB a session;
    # half of it keeps a socket busy and latency small).
    OUTPUT_HIGH = 131072
    # What one link may write before the next one has its turn.
    LINK_QUANTUM = 32768

# What a link says that had its turn to write.
cdef enum:
    TURN_DONE = 0              # nothing more now: it waits for credit or for octets, or has nothing
    TURN_MORE = 1              # it could write more
    TURN_WINDOW = 2            # it waits for the session's window

# A delivery, as the maps of a session know it: whoever implements a link has structs that begin like this.
cdef struct EntryOwner:
    void* link                 # borrowed Endpoint

cdef struct Entry:
    EntryOwner* owner

# Owner: its session.
cdef class Endpoint:
    cdef ListNode turn                     # its place in the list of its session that waits for turns to write
    cdef bint urgent                       # it has its turn before all others
    cdef size_t output_high                # octets in the write buffer above which it waits
    # Write up to `budget` octets of queued deliveries. Returns TURN_.
    cdef int pump(self, size_t budget) except -1
    # The last resort at a bound of memory: it ends, or what it holds does.
    cdef int last_resort(self, size_t held) except -1
    cdef void grant_again(self) noexcept   # the connection was too full to grant it credit, and is not any more
    cdef readonly str name
    cdef readonly uint32_t handle          # ours
    cdef readonly uint32_t remote_handle
    cdef readonly bint incoming            # the peer sends
    cdef readonly uint8_t life             # LinkLife; changes in `live` only
    cdef bint awaits_decision              # its frames wait for `decided` when both attaches are through
    cdef readonly bint initiated           # the router attached it
    cdef readonly bint answer_closed       # the link was closed, not only detached
    cdef readonly bytes detach_error       # of the peer's detach, encoded; None: there was none
    cdef bint needs_flow
    cdef uint64_t size_limit               # octets of a message that the peer may send; 0: any number
    cdef Meter* streams                    # octets held of messages in several frames, NULL before the first
    cdef Meter* whole                      # … and of messages that were stored whole
    cdef uint32_t looked_at                # `progress` when somebody looked last
    cdef uint64_t stood_since              # ms: when somebody looked and found that it had changed
    cdef int join(self, object session) except -1  # it has its handle in this session
    cdef int live(self, uint8_t event) except -1   # the event (LifeEvent) has come
    cdef int attach_came(self) except -1           # the peer's attach
    cdef int begin_life(self) except -1            # it joined its session
    cdef size_t octets_held(self) noexcept        # octets of both
    cdef size_t octets_unrouted(self) noexcept    # of these, of a message that is coming in and not routed yet
    # Octets of the deliveries that came by it and count for its connection, or that wait for its peer's outcome. None
    # of a link whose peer is a router: they are of many.
    cdef size_t octets_awaited(self) noexcept
    cdef bint holds(self) noexcept                # messages wait that came by it, or that are to leave by it
    cdef uint32_t progress(self) noexcept         # changes when some of what it holds is taken
    # Octets of the messages that the survey looks for and that are to leave by it.
    cdef size_t octets_queued(self, Survey* found) noexcept
    # The peer may send on it, and what it sends would not only wait: the session's window is to stay open.
    cdef bint goes_on(self) noexcept
    cdef int on_transfer(self, const Transfer* t) except -1
    cdef int on_limited_transfer(self, Transfer* t) except -1
    cdef int on_flow(self, const Flow* f) except -1
    # The peer's dispositions: of what we sent on it (an entry of Session.sent), of what it sent (Session.received).
    cdef int delivery_outcome(self, void* entry, uint8_t kind, const Slice* state, bint settled) except -1
    cdef int delivery_update(self, void* entry, uint8_t kind, const Slice* state, bint settled) except -1
    # The peer has settled, with this outcome, the delivery of `entry` and those with the next ids, `most` together:
    # takes some of them, one at least. Returns how many.
    cdef uint32_t deliveries_settled(self, void* entry, uint32_t most, uint8_t kind, const Slice* state) except 0
    # Deliveries refer to it.
    cdef bint has_deliveries(self) noexcept
    cdef int grant(self) except -1         # write the flow that want_flow asked for
    cdef int forget_ready(self) except -1
    # Give back some deliveries of a link that is about to be lost. True: those that are left are one piece of work.
    cdef bint shed(self) except *
    # End it because of an event: ON_DETACH, ON_PEER_DETACH or ON_SESSION_LOST.
    cdef int lost(self, uint8_t event) except -1
    cdef int confirm(self) except -1       # the handler does not hold the answer to its end back (any more)
    cdef int peer_detached(self) except -1  # the peer's detach: `answer_closed`, `detach_error` say what it said


cdef inline bint is_pending(Endpoint link) noexcept:
    """True until both attaches are through and decided: the link writes nothing, and its peer's frames wait."""
    return link.life <= LIFE_PENDING


cdef inline bint is_detached(Endpoint link) noexcept:
    """True once our side of the link is over: frames for its handle are absorbed."""
    return link.life >= LIFE_ROUTE_HALF


cdef inline bint is_open(Endpoint link) noexcept:
    """True if the link may have turns to write."""
    return link.life > LIFE_PENDING and link.life < LIFE_ROUTE_HALF


cdef inline bint is_over(Endpoint link) noexcept:
    """True once the handler was notified of the link's end."""
    return link.life >= LIFE_ANSWERING


cdef inline size_t output_bound(const NodeList* ready) noexcept:
    """Return the octets in the write buffer above which the session with these links has no turn."""
    return OUTPUT_HIGH if ready.first is NULL else (<Endpoint>ready.first.object).output_high
