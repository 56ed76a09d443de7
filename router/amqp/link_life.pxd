"""State machine of a link's life (AMQP 1.0 part 2, 2.6).

The order of the states is part of the design: the delivery path compares a link's state with a bound. No frame is
written for a link up to LIFE_PENDING, and none from LIFE_ROUTE_HALF on, where this side's detach was written or is not
needed.
"""
from libc.stdint cimport uint8_t

cdef enum:
    LIFE_NEW = 0                     # not in a session yet
    LIFE_ATTACHING = 1               # local attach was first, the peer has not answered
    LIFE_PENDING = 2                 # the peer's attach is being decided: its frames wait
    LIFE_ATTACHED = 3
    # States of routed links (routed/routed_link.pyx). LEFT: the peer's detach was received, and the other end has
    # to answer it. DUE: the other end has detached, and this side's detach waits until it can be written.
    LIFE_ROUTE_MADE = 4              # created for a pair; neither attach is written
    LIFE_ROUTE_ASKED = 5             # the peer has attached, this side's answer is not written
    LIFE_ROUTE_ASKED_LEFT = 6
    LIFE_ROUTE_OFFERED = 7           # local attach is written, the peer has not answered
    LIFE_ROUTED = 8                  # both attaches were exchanged
    LIFE_ROUTED_LEFT = 9
    LIFE_ROUTE_MADE_DUE = 10
    LIFE_ROUTE_ASKED_DUE = 11
    LIFE_ROUTE_ASKED_LEFT_DUE = 12
    LIFE_ROUTE_OFFERED_DUE = 13
    LIFE_ROUTED_DUE = 14
    LIFE_ROUTED_LEFT_DUE = 15
    LIFE_ROUTE_HALF = 16             # local detach is written; the peer's will be relayed to the other end
    LIFE_ROUTE_CLOSED = 17           # both detaches were exchanged; the handler is not notified yet
    # States in which the link's deliveries are being released; the handler is not notified yet.
    LIFE_LEFT = 18                   # because of the peer's detach
    LIFE_LEAVING = 19                # because this side detaches it
    LIFE_LOST = 20                   # because its session has ended
    # States in which the handler has been notified.
    LIFE_ANSWERING = 21              # the answer to the peer's detach waits for the handler
    LIFE_DETACHING = 22              # frames for the handle are absorbed until the peer's detach
    LIFE_OWED = 23                   # the answer to the peer's end waits for the handler
    LIFE_ENDED = 24

cdef enum:
    ON_OUR_ATTACH = 0                # the link joins a session; this side attaches first
    ON_PEER_ATTACH = 1
    ON_DECIDED = 2                   # the attach is answered: frames may be written
    ON_REPLACED = 3                  # another object replaces the link
    ON_ROUTE_MADE = 4                # the link joins a session, and is attached when the other end is
    ON_ROUTE_ASKED = 5               # the link replaces one whose attach was pending
    ON_ROUTE_WRITTEN = 6             # local attach on a routed link is written, first or as an answer
    ON_OTHER_DETACH = 7              # the other end has detached or ended; this side's detach waits
    ON_ROUTE_DETACH = 8              # local detach on a routed link is written
    ON_ROUTE_WITHDRAWN = 9           # a routed link that this side has not attached ends without a detach
    ON_DETACH = 10                   # detach by this side of a link that is not routed
    ON_PEER_DETACH = 11
    ON_SESSION_LOST = 12
    ON_NOTIFIED = 13                 # the handler is notified of the end
    ON_CONFIRMED = 14                # the handler no longer holds back the answer

cdef enum:
    LIFE_STATES = 25
    LIFE_EVENTS = 15

# Sets of states of routed links: after this side's attach was written, and after the peer's detach was received.
cdef enum:
    ANSWERED_STATES = 1 << LIFE_ROUTE_OFFERED | 1 << LIFE_ROUTED | 1 << LIFE_ROUTED_LEFT \
        | 1 << LIFE_ROUTE_OFFERED_DUE | 1 << LIFE_ROUTED_DUE | 1 << LIFE_ROUTED_LEFT_DUE
    LEFT_STATES = 1 << LIFE_ROUTE_ASKED_LEFT | 1 << LIFE_ROUTED_LEFT \
        | 1 << LIFE_ROUTE_ASKED_LEFT_DUE | 1 << LIFE_ROUTED_LEFT_DUE

# Return the state of a link after an event. An event that the state excludes is an error: of the peer if the peer
# caused the event, otherwise an internal one, on which the debug flavour aborts.
cdef uint8_t life_after(uint8_t life, uint8_t event, object name) except 0

# True if the state allows the event.
cdef bint life_allows(uint8_t life, uint8_t event) noexcept
