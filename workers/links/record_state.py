"""State machine of link records as one table (docs/internals/links.md, "Records of a worker").

The engine's link has the state of its frames (`Endpoint.life`). The record has the state of the decision about it.
"""

from collections.abc import Mapping
from typing import Final, Literal

# States and events are strings, because members of an enum cost several times as much for each attach.
RecordState = Literal[
    "new",  # in no session yet
    "asked",  # the peer's attach waits for the supervisor's decision
    "postponed",  # the supervisor's decision waits for another router
    "routable",  # to be routed, as soon as the container's link exists
    "answered",  # decided; the answer waits for those to earlier attaches
    "attaching",  # the router has attached, and the peer's attach is awaited
    "accepted",  # the peer has answered the router's attach, and the supervisor chooses the address
    "in use",  # attached by both sides
    "refused",  # refused by the router, and a detach follows
    "declined",  # refused by the peer, and its detach follows
    "routed",  # replaced by a RoutedEnd
    "ended",
]
RecordEvent = Literal[
    "ask",  # the supervisor is asked about the peer's attach
    "attach",  # the router attaches the link
    "postpone",
    "route",
    "answer",  # the supervisor's decision arrives
    "peer attach",  # the peer's attach arrives, and the supervisor is to choose the address
    "use",
    "refuse",
    "decline",  # the peer's attach has no terminus
    "replace",  # a RoutedEnd takes over the link
    "end",  # the link was detached or lost
]

#: Next state by state and event.
TRANSITIONS: Final[Mapping[RecordState, Mapping[RecordEvent, RecordState]]] = {
    # Attaches of other routers for links between routers are answered without the supervisor.
    "new": {"ask": "asked", "attach": "attaching", "use": "in use", "refuse": "refused"},
    "asked": {"postpone": "postponed", "route": "routable", "answer": "answered", "end": "ended"},
    "postponed": {"postpone": "postponed", "route": "routable", "answer": "answered", "end": "ended"},
    "routable": {"answer": "answered", "end": "ended"},
    "answered": {"use": "in use", "refuse": "refused", "replace": "routed", "end": "ended"},
    "attaching": {"peer attach": "accepted", "use": "in use", "decline": "declined", "end": "ended"},
    "accepted": {"use": "in use", "end": "ended"},
    "in use": {"end": "ended"},
    "refused": {"end": "ended"},
    "declined": {"end": "ended"},
    "routed": {},
    "ended": {},
}
