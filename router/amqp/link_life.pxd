"""Life of a link as one table of states and events (AMQP 1.0 part 2, 2.6).

The order of the states is part of the design: the delivery path compares a link's state with a bound. No frame is
written for a link up to LIFE_PENDING, and none from LIFE_ROUTE_HALF on, where our detach is written or was never due.
"""
from libc.stdint cimport uint8_t

cpdef enum LinkLife:
    LIFE_NEW = 0                     # not in a session yet
    LIFE_ATTACHING = 1               # our attach came first, the peer has not answered
    LIFE_PENDING = 2                 # the peer's attach is being decided: its frames wait
    LIFE_ATTACHED = 3
    # Routed links (linkroute/routed_link.pyx). LEFT: the peer's detach has come, the other end is to answer it.
    # DUE: the other end has detached, our detach waits until it can be written.
    LIFE_ROUTE_MADE = 4              # for a pair; neither attach is written
    LIFE_ROUTE_ASKED = 5             # the peer has attached, our answer is not written
    LIFE_ROUTE_ASKED_LEFT = 6
    LIFE_ROUTE_OFFERED = 7           # our attach is written, the peer has not answered
    LIFE_ROUTED = 8                  # both attaches are through
    LIFE_ROUTED_LEFT = 9
    LIFE_ROUTE_MADE_DUE = 10
    LIFE_ROUTE_ASKED_DUE = 11
    LIFE_ROUTE_ASKED_LEFT_DUE = 12
    LIFE_ROUTE_OFFERED_DUE = 13
    LIFE_ROUTED_DUE = 14
    LIFE_ROUTED_LEFT_DUE = 15
    LIFE_ROUTE_HALF = 16             # our detach is written; the peer's will be passed to the other end
    LIFE_ROUTE_CLOSED = 17           # both detaches are through; the handler is not notified yet
    # Its deliveries are being taken apart; the handler is not notified yet.
    LIFE_LEFT = 18                   # because of the peer's detach
    LIFE_LEAVING = 19                # because we detach it
    LIFE_LOST = 20                   # because its session has ended
    # The handler has been notified.
    LIFE_ANSWERING = 21              # the answer to the peer's detach waits for the handler
    LIFE_DETACHING = 22              # frames for the handle are absorbed until the peer's detach comes
    LIFE_OWED = 23                   # the answer to the peer's end waits for the handler
    LIFE_ENDED = 24

cpdef enum LifeEvent:
    ON_OUR_ATTACH = 0                # the link joins a session, attached by us first
    ON_PEER_ATTACH = 1
    ON_DECIDED = 2                   # the attach is answered: frames may go
    ON_REPLACED = 3                  # another object stands for the link
    ON_ROUTE_MADE = 4                # the link joins a session, to be attached when the other end is
    ON_ROUTE_ASKED = 5               # the link stands for one whose attach was pending
    ON_ROUTE_WRITTEN = 6             # our attach on a routed link is written, first or as an answer
    ON_OTHER_DETACH = 7              # the other end has detached or is gone; our detach waits
    ON_ROUTE_DETACH = 8              # our detach on a routed link is written
    ON_ROUTE_WITHDRAWN = 9           # a routed link ends without a detach: it was not attached by us
    ON_DETACH = 10                   # we detach a link that is not routed
    ON_PEER_DETACH = 11
    ON_SESSION_LOST = 12
    ON_NOTIFIED = 13                 # the handler is notified of the end
    ON_CONFIRMED = 14                # the handler no longer holds the answer back

cdef enum:
    LIFE_STATES = 25
    LIFE_EVENTS = 15

# States of routed links after our attach was written, and those after the peer's detach has come.
cdef enum:
    ANSWERED_STATES = 1 << LIFE_ROUTE_OFFERED | 1 << LIFE_ROUTED | 1 << LIFE_ROUTED_LEFT \
        | 1 << LIFE_ROUTE_OFFERED_DUE | 1 << LIFE_ROUTED_DUE | 1 << LIFE_ROUTED_LEFT_DUE
    LEFT_STATES = 1 << LIFE_ROUTE_ASKED_LEFT | 1 << LIFE_ROUTED_LEFT \
        | 1 << LIFE_ROUTE_ASKED_LEFT_DUE | 1 << LIFE_ROUTED_LEFT_DUE

# Return the state of a link after an event. An event that cannot come in that state is an error: the peer's if the peer
# caused the event, else one of the router, on which the debug flavour aborts.
cdef uint8_t life_after(uint8_t life, uint8_t event, object name) except 0

# True if the event can come in that state.
cdef bint life_allows(uint8_t life, uint8_t event) noexcept
