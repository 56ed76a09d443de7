"""State machine of a link's life as one table (AMQP 1.0 part 2, 2.6; docs/internals/links.md)."""
from enum import IntEnum

from sluice.router.amqp.errors import INTERNAL_ERROR, NOT_ALLOWED, LocalError, RemoteError

cdef extern from *:
    """
    #include <stdio.h>
    #include <stdlib.h>

    /* The debug flavour aborts if the router itself causes an event that the state excludes. */
    #ifdef SLUICE_DEBUG
    static inline void impossible_event(void) { fputs("an event that a link's state excludes\\n", stderr); abort(); }
    #else
    static inline void impossible_event(void) { }
    #endif
    """
    void impossible_event() noexcept nogil

# The states and events by name, for Python.
LinkLife = IntEnum("LinkLife", {
    "LIFE_NEW": LIFE_NEW, "LIFE_ATTACHING": LIFE_ATTACHING, "LIFE_PENDING": LIFE_PENDING,
    "LIFE_ATTACHED": LIFE_ATTACHED, "LIFE_ROUTE_MADE": LIFE_ROUTE_MADE, "LIFE_ROUTE_ASKED": LIFE_ROUTE_ASKED,
    "LIFE_ROUTE_ASKED_LEFT": LIFE_ROUTE_ASKED_LEFT, "LIFE_ROUTE_OFFERED": LIFE_ROUTE_OFFERED,
    "LIFE_ROUTED": LIFE_ROUTED, "LIFE_ROUTED_LEFT": LIFE_ROUTED_LEFT, "LIFE_ROUTE_MADE_DUE": LIFE_ROUTE_MADE_DUE,
    "LIFE_ROUTE_ASKED_DUE": LIFE_ROUTE_ASKED_DUE, "LIFE_ROUTE_ASKED_LEFT_DUE": LIFE_ROUTE_ASKED_LEFT_DUE,
    "LIFE_ROUTE_OFFERED_DUE": LIFE_ROUTE_OFFERED_DUE, "LIFE_ROUTED_DUE": LIFE_ROUTED_DUE,
    "LIFE_ROUTED_LEFT_DUE": LIFE_ROUTED_LEFT_DUE, "LIFE_ROUTE_HALF": LIFE_ROUTE_HALF,
    "LIFE_ROUTE_CLOSED": LIFE_ROUTE_CLOSED, "LIFE_LEFT": LIFE_LEFT, "LIFE_LEAVING": LIFE_LEAVING,
    "LIFE_LOST": LIFE_LOST, "LIFE_ANSWERING": LIFE_ANSWERING, "LIFE_DETACHING": LIFE_DETACHING,
    "LIFE_OWED": LIFE_OWED, "LIFE_ENDED": LIFE_ENDED,
}, module=__name__)
LifeEvent = IntEnum("LifeEvent", {
    "ON_OUR_ATTACH": ON_OUR_ATTACH, "ON_PEER_ATTACH": ON_PEER_ATTACH, "ON_DECIDED": ON_DECIDED,
    "ON_REPLACED": ON_REPLACED, "ON_ROUTE_MADE": ON_ROUTE_MADE, "ON_ROUTE_ASKED": ON_ROUTE_ASKED,
    "ON_ROUTE_WRITTEN": ON_ROUTE_WRITTEN, "ON_OTHER_DETACH": ON_OTHER_DETACH, "ON_ROUTE_DETACH": ON_ROUTE_DETACH,
    "ON_ROUTE_WITHDRAWN": ON_ROUTE_WITHDRAWN, "ON_DETACH": ON_DETACH, "ON_PEER_DETACH": ON_PEER_DETACH,
    "ON_SESSION_LOST": ON_SESSION_LOST, "ON_NOTIFIED": ON_NOTIFIED, "ON_CONFIRMED": ON_CONFIRMED,
}, module=__name__)

# Next state by state and event.
cdef dict transitions = {
    LIFE_NEW: {
        ON_OUR_ATTACH: LIFE_ATTACHING,
        ON_PEER_ATTACH: LIFE_PENDING,
        ON_ROUTE_MADE: LIFE_ROUTE_MADE,
        ON_ROUTE_ASKED: LIFE_ROUTE_ASKED,
    },
    LIFE_ATTACHING: {
        ON_PEER_ATTACH: LIFE_PENDING,
        ON_DETACH: LIFE_LEAVING,
        ON_SESSION_LOST: LIFE_LOST,
    },
    LIFE_PENDING: {
        ON_DECIDED: LIFE_ATTACHED,
        ON_REPLACED: LIFE_ENDED,
        ON_DETACH: LIFE_LEAVING,
        ON_PEER_DETACH: LIFE_PENDING,         # the frame waits for the decision
        ON_SESSION_LOST: LIFE_LOST,
    },
    LIFE_ATTACHED: {
        ON_DETACH: LIFE_LEAVING,
        ON_PEER_DETACH: LIFE_LEFT,
        ON_SESSION_LOST: LIFE_LOST,
    },

    LIFE_ROUTE_MADE: {
        ON_ROUTE_WRITTEN: LIFE_ROUTE_OFFERED,
        ON_OTHER_DETACH: LIFE_ROUTE_MADE_DUE,
        ON_ROUTE_WITHDRAWN: LIFE_ROUTE_CLOSED,
        ON_SESSION_LOST: LIFE_LOST,
    },
    LIFE_ROUTE_ASKED: {
        ON_ROUTE_WRITTEN: LIFE_ROUTED,
        ON_OTHER_DETACH: LIFE_ROUTE_ASKED_DUE,
        ON_ROUTE_DETACH: LIFE_ROUTE_HALF,
        ON_ROUTE_WITHDRAWN: LIFE_ROUTE_CLOSED,
        ON_PEER_DETACH: LIFE_ROUTE_ASKED_LEFT,
        ON_SESSION_LOST: LIFE_LOST,
    },
    LIFE_ROUTE_ASKED_LEFT: {
        ON_ROUTE_WRITTEN: LIFE_ROUTED_LEFT,
        ON_OTHER_DETACH: LIFE_ROUTE_ASKED_LEFT_DUE,
        ON_ROUTE_DETACH: LIFE_ROUTE_CLOSED,
        ON_ROUTE_WITHDRAWN: LIFE_ROUTE_CLOSED,
        ON_SESSION_LOST: LIFE_LOST,
    },
    LIFE_ROUTE_OFFERED: {
        ON_PEER_ATTACH: LIFE_ROUTED,
        ON_OTHER_DETACH: LIFE_ROUTE_OFFERED_DUE,
        ON_ROUTE_DETACH: LIFE_ROUTE_HALF,
        ON_SESSION_LOST: LIFE_LOST,
    },
    LIFE_ROUTED: {
        ON_OTHER_DETACH: LIFE_ROUTED_DUE,
        ON_ROUTE_DETACH: LIFE_ROUTE_HALF,
        ON_PEER_DETACH: LIFE_ROUTED_LEFT,
        ON_SESSION_LOST: LIFE_LOST,
    },
    LIFE_ROUTED_LEFT: {
        ON_OTHER_DETACH: LIFE_ROUTED_LEFT_DUE,
        ON_ROUTE_DETACH: LIFE_ROUTE_CLOSED,
        ON_SESSION_LOST: LIFE_LOST,
    },

    LIFE_ROUTE_MADE_DUE: {
        ON_OTHER_DETACH: LIFE_ROUTE_MADE_DUE,
        ON_ROUTE_WITHDRAWN: LIFE_ROUTE_CLOSED,
        ON_SESSION_LOST: LIFE_LOST,
    },
    LIFE_ROUTE_ASKED_DUE: {
        ON_OTHER_DETACH: LIFE_ROUTE_ASKED_DUE,
        ON_ROUTE_DETACH: LIFE_ROUTE_HALF,
        ON_ROUTE_WITHDRAWN: LIFE_ROUTE_CLOSED,
        ON_PEER_DETACH: LIFE_ROUTE_ASKED_LEFT_DUE,
        ON_SESSION_LOST: LIFE_LOST,
    },
    LIFE_ROUTE_ASKED_LEFT_DUE: {
        ON_OTHER_DETACH: LIFE_ROUTE_ASKED_LEFT_DUE,
        ON_ROUTE_DETACH: LIFE_ROUTE_CLOSED,
        ON_ROUTE_WITHDRAWN: LIFE_ROUTE_CLOSED,
        ON_SESSION_LOST: LIFE_LOST,
    },
    LIFE_ROUTE_OFFERED_DUE: {
        ON_OTHER_DETACH: LIFE_ROUTE_OFFERED_DUE,
        ON_PEER_ATTACH: LIFE_ROUTED_DUE,
        ON_ROUTE_DETACH: LIFE_ROUTE_HALF,
        ON_SESSION_LOST: LIFE_LOST,
    },
    LIFE_ROUTED_DUE: {
        ON_OTHER_DETACH: LIFE_ROUTED_DUE,
        ON_ROUTE_DETACH: LIFE_ROUTE_HALF,
        ON_PEER_DETACH: LIFE_ROUTED_LEFT_DUE,
        ON_SESSION_LOST: LIFE_LOST,
    },
    LIFE_ROUTED_LEFT_DUE: {
        ON_OTHER_DETACH: LIFE_ROUTED_LEFT_DUE,
        ON_ROUTE_DETACH: LIFE_ROUTE_CLOSED,
        ON_SESSION_LOST: LIFE_LOST,
    },

    LIFE_ROUTE_HALF: {
        ON_PEER_ATTACH: LIFE_ROUTE_HALF,      # crosses this side's detach
        ON_PEER_DETACH: LIFE_ROUTE_CLOSED,
        ON_SESSION_LOST: LIFE_LOST,
        ON_NOTIFIED: LIFE_DETACHING,
    },
    LIFE_ROUTE_CLOSED: {
        ON_SESSION_LOST: LIFE_LOST,
        ON_NOTIFIED: LIFE_ENDED,
    },

    LIFE_LEFT: {
        ON_SESSION_LOST: LIFE_LOST,
        ON_NOTIFIED: LIFE_ANSWERING,
    },
    LIFE_LEAVING: {
        ON_SESSION_LOST: LIFE_LOST,
        ON_NOTIFIED: LIFE_DETACHING,
    },
    LIFE_LOST: {
        ON_SESSION_LOST: LIFE_LOST,           # an exception has interrupted the loss
        ON_NOTIFIED: LIFE_OWED,
    },
    LIFE_ANSWERING: {
        ON_SESSION_LOST: LIFE_OWED,
        ON_CONFIRMED: LIFE_ENDED,
    },
    LIFE_DETACHING: {
        ON_PEER_ATTACH: LIFE_DETACHING,       # crosses this side's detach
        ON_PEER_DETACH: LIFE_ENDED,
        ON_SESSION_LOST: LIFE_ENDED,
        ON_CONFIRMED: LIFE_DETACHING,         # no answer of this side waits
    },
    LIFE_OWED: {
        ON_CONFIRMED: LIFE_ENDED,
    },
    LIFE_ENDED: {
        ON_SESSION_LOST: LIFE_ENDED,
        ON_CONFIRMED: LIFE_ENDED,             # no answer of this side waits
    },
}

TRANSITIONS = {
    LinkLife(life): {LifeEvent(event): LinkLife(after) for event, after in events.items()}
    for life, events in transitions.items()
}

# The table as octets. 0 stands for an excluded event, since LIFE_NEW follows no event.
cdef uint8_t[LIFE_STATES][LIFE_EVENTS] following


cdef int fill() except -1:
    for life, events in transitions.items():
        for event, after in events.items():
            following[<int>life][<int>event] = <uint8_t>after
    return 0


fill()


cdef uint8_t life_after(uint8_t life, uint8_t event, object name) except 0:
    cdef uint8_t after = following[life][event]
    if not after:
        excluded(life, event, name)
    return after


cdef bint life_allows(uint8_t life, uint8_t event) noexcept:
    return following[life][event] != 0


cdef int excluded(uint8_t life, uint8_t event, object name) except -1:
    text = f"link {name}: {LifeEvent(event).name} is not allowed in state {LinkLife(life).name}"
    if event == ON_PEER_ATTACH or event == ON_PEER_DETACH:
        raise RemoteError("link", NOT_ALLOWED, text)
    impossible_event()
    raise LocalError("link", INTERNAL_ERROR, text)
