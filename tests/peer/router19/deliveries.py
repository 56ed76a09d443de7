"""Deliveries inside the router: one that came in, and the copies of it that go out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tests.peer import frames
from tests.peer.types import Described

#: Combined outcome of a multicast: the first of these that any copy has.
_RANK = ("rejected", "accepted", "modified", "released")
MODIFIED = frames.modified(failed=True)


class Target(Protocol):
    """Where a copy goes: a link to another router or a consumer of this one."""

    def queue(self, out: Outgoing) -> None:
        """Take a copy to be sent."""

    def grown(self, out: Outgoing) -> None:
        """More of a copy has come, or its end, or its abortion."""

    def settle_out(self, out: Outgoing, state: Described | None) -> None:
        """The origin has settled, or told a state without an outcome of ours."""

    def load(self) -> int:
        """Unsent and unsettled copies."""


class Incoming:
    """A delivery that has come in. `tell(state, settled)` passes on what becomes of it."""

    def __init__(
        self,
        tell: Callable[[Described | None, bool], None],
        settled: bool = False,
        source: Any = None,
        tag: bytes = b"",
    ) -> None:
        self.tell = tell
        self.settled = settled
        #: the connection it came on; None: it began here
        self.source = source
        self.tag = tag
        #: delivery-id of the peer
        self.number = -1
        self.payload = bytearray()
        self.complete = False
        self.aborted = False
        self.routed = False
        self.finished = False
        self.multicast = False
        self.outs: list[Outgoing] = []

    def extend(self, octets: bytes, complete: bool) -> None:
        """More of it has come; copies that are under way get it too."""
        self.payload += octets
        self.complete = complete
        if self.routed:
            for out in self.outs:
                out.buffer += octets
                out.complete = complete
                out.target.grown(out)

    def abort(self) -> None:
        """The rest will not come."""
        self.aborted = self.complete = True
        for out in self.outs:
            if not out.complete:
                out.aborted = out.complete = True
                out.target.grown(out)

    def finish(self, state: Described | None, settled: bool = True) -> None:
        """Tell the origin, unless it has settled or has been told."""
        if self.settled or self.finished:
            return
        self.finished = settled
        self.tell(state, settled)

    def origin_settled(self, state: Described | None) -> None:
        """The origin has settled first."""
        self.settled = True
        for out in self.outs:
            out.settled = True
            out.target.settle_out(out, state)

    def heard(self) -> None:
        """A copy has been given a state or been settled."""
        if not self.multicast:
            out = self.outs[0]
            self.finish(out.state, out.settled)
            return
        names = [frames.state_name(out.state) for out in self.outs]
        if all(out.settled for out in self.outs):
            best = next((name for name in _RANK if name in names), None)
            self.finish(_PLAIN[best] if best else None)


_PLAIN = {
    "rejected": frames.REJECTED,
    "accepted": frames.ACCEPTED,
    "modified": MODIFIED,
    "released": frames.RELEASED,
}


class Outgoing:
    """One copy on its way out."""

    def __init__(self, incoming: Incoming, target: Target, octets: bytes) -> None:
        self.incoming = incoming
        self.target = target
        #: what has not been sent yet
        self.buffer = bytearray(octets)
        self.complete = incoming.complete
        self.aborted = incoming.aborted
        self.presettled = incoming.settled
        self.settled = incoming.settled
        self.started = False
        self.id = -1
        self.state: Described | None = None
        #: called when it is settled
        self.on_settled: Callable[[], None] | None = None

    def update(self, state: Described | None, settled: bool) -> None:
        """What the other side says of it."""
        if self.settled:
            return
        if frames.state_name(state) == "modified" and state is not None:
            state = Described(state.descriptor, [True, *state.value[1:]])
        self.state = state if state is not None else self.state
        self.settled = settled
        if settled and self.on_settled is not None:
            self.on_settled()
        self.incoming.heard()
