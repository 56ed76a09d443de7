"""Link as its session and its connection know it, and the order in which links get turns to write."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.amqp.codec cimport Slice
from sluice.router.amqp.frames cimport Flow, Transfer
from sluice.router.amqp.link_life cimport (
    LIFE_ANSWERING, LIFE_PENDING, LIFE_ROUTE_HALF,
)
from sluice.router.amqp.meter cimport Meter
from sluice.router.amqp.node_list cimport ListNode, NodeList
from sluice.router.amqp.survey cimport Survey

cdef enum:
    # Octets in a connection's write buffer above which links wait in their queues. Dispatch's Q3 is 512 KiB for each
    # session; a quarter of it keeps a socket busy and latency small.
    OUTPUT_HIGH = 131072
    # Octets that one link may write before the next one has its turn.
    LINK_QUANTUM = 32768

# Result of a link's turn to write.
cdef enum:
    TURN_DONE = 0              # nothing more to write now: it waits for credit or octets, or its queue is empty
    TURN_MORE = 1              # more can be written
    TURN_WINDOW = 2            # waits for the session's window

# Delivery as the maps of a session know it. Delivery structs of all kinds of links begin like this.
cdef struct DeliveryEntryOwner:
    void* link                 # borrowed Endpoint

cdef struct DeliveryEntry:
    DeliveryEntryOwner* owner

# Base class of links. Owner: its session.
cdef class Endpoint:
    cdef ListNode turn                     # place in its session's list of links that wait for turns to write
    cdef bint urgent                       # its turn comes before all others
    cdef size_t output_high                # octets in the write buffer above which the link waits
    # Write up to `budget` octets of queued deliveries. Return TURN_.
    cdef int pump(self, size_t budget) except -1
    # End the link or what it holds, as the last resort at a bound of memory.
    cdef int last_resort(self, size_t held) except -1
    cdef void grant_again(self) noexcept   # grant credit that was withheld because the connection was too full
    cdef readonly str name
    cdef readonly uint32_t handle          # the router's handle
    cdef readonly uint32_t remote_handle
    cdef readonly bint incoming            # the peer sends
    cdef readonly uint8_t life             # LinkLife; changed in `live` only
    cdef bint awaits_decision              # frames wait for `decided` after both attaches
    cdef readonly bint initiated           # the router attached the link
    cdef readonly bint answer_closed       # the link was closed, not only detached
    cdef readonly bytes detach_error       # error of the peer's detach, encoded; None: none
    cdef bint needs_flow
    cdef uint64_t size_limit               # largest message in octets that the peer may send; 0: any size
    cdef Meter* streams                    # octets held of messages in several frames; NULL before the first
    cdef Meter* whole                      # octets held of messages that were stored whole
    cdef uint32_t looked_at                # `progress` at the last survey
    cdef uint64_t stuck_since              # time in ms of the survey that last found a change of `progress`
    cdef int join(self, object session) except -1  # note that the link has its handle in this session
    cdef int live(self, uint8_t event) except -1   # apply an event (LifeEvent) to the state
    cdef int on_peer_attach(self) except -1           # handle the peer's attach
    cdef int begin_state(self) except -1            # begin the life of the link in its session
    cdef size_t octets_held(self) noexcept        # octets of `streams` and `whole`
    cdef size_t octets_unrouted(self) noexcept    # octets held of a message that is still arriving and not routed yet
    # Octets of deliveries that arrived on the link and count for its connection, or that wait for its peer's outcome.
    # 0 for a link whose peer is a router, whose deliveries belong to many clients.
    cdef size_t octets_awaited(self) noexcept
    cdef bint holds(self) noexcept                # messages are held that arrived on the link or wait to leave by it
    cdef uint32_t progress(self) noexcept         # counter that changes when some of what the link holds is taken
    # Return the octets of messages wanted by the survey that wait to leave by the link.
    cdef size_t octets_queued(self, Survey* found) noexcept
    # True if the peer may send and its transfers would not only wait, so that the session's window should stay open.
    cdef bint goes_on(self) noexcept
    cdef int on_transfer(self, const Transfer* t) except -1
    cdef int on_limited_transfer(self, Transfer* t) except -1
    cdef int on_flow(self, const Flow* f) except -1
    # Handle the peer's disposition: of a delivery that was sent on the link (an entry of Session.sent), or of one that
    # was received (Session.received).
    cdef int delivery_outcome(self, void* entry, uint8_t kind, const Slice* state, bint settled) except -1
    cdef int delivery_update(self, void* entry, uint8_t kind, const Slice* state, bint settled) except -1
    # Settle the delivery of `entry` and those with the following ids, up to `most` in all, with the same outcome. At
    # least one is settled. Return the number of ids that were handled.
    cdef uint32_t deliveries_settled(self, void* entry, uint32_t most, uint8_t kind, const Slice* state) except 0
    # True while deliveries refer to the link.
    cdef bint has_deliveries(self) noexcept
    cdef int grant(self) except -1         # write the flow that want_flow requested
    cdef int forget_ready(self) except -1
    # Release some deliveries of a link that is about to be lost. True: the others can be released with its loss.
    cdef bint release_some_deliveries(self) except *
    # End the link because of an event: ON_DETACH, ON_PEER_DETACH or ON_SESSION_LOST.
    cdef int lost(self, uint8_t event) except -1
    cdef int confirm(self) except -1  # continue an end whose answer the handler has held back, or does not hold back
    # Handle the peer's detach, after `answer_closed` and `detach_error` were set.
    cdef int peer_detached(self) except -1


cdef inline bint is_pending(Endpoint link) noexcept:
    """True until both attaches are exchanged and the link is accepted: it writes nothing, and its peer's frames wait.
    """
    return link.life <= LIFE_PENDING


cdef inline bint is_detached(Endpoint link) noexcept:
    """True after this side has detached: frames for the link's handle are absorbed."""
    return link.life >= LIFE_ROUTE_HALF


cdef inline bint is_open(Endpoint link) noexcept:
    """True if the link may have turns to write."""
    return link.life > LIFE_PENDING and link.life < LIFE_ROUTE_HALF


cdef inline bint is_over(Endpoint link) noexcept:
    """True after the handler was notified of the link's end."""
    return link.life >= LIFE_ANSWERING


cdef inline size_t output_bound(const NodeList* ready) noexcept:
    """Return the octets in the write buffer above which the session with these links gets no turn."""
    return OUTPUT_HIGH if ready.first is NULL else (<Endpoint>ready.first.object).output_high
