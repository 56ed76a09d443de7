"""Deliveries inside the simulated router: an incoming delivery, and its outgoing copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tests.peer import frames
from tests.peer.types import Described

#: Order in which outcomes of multicast copies are combined: the first one that any copy has.
_RANK = ("rejected", "accepted", "modified", "released")
MODIFIED = frames.modified(failed=True)


class CopyTarget(Protocol):
    """Destination of a copy: a link to another router or a local consumer."""

    def queue(self, out: Outgoing) -> None:
        """Queue a copy."""

    def on_more_octets(self, out: Outgoing) -> None:
        """Handle further octets of a copy, its end, or its abortion."""

    def settle_out(self, out: Outgoing, state: Described | None) -> None:
        """Handle a settlement or state from the origin."""

    def load(self) -> int:
        """Return the number of unsent and unsettled copies."""


class Incoming:
    """Incoming delivery. `tell(state, settled)` reports states and the settlement to the origin."""

    def __init__(
        self,
        tell: Callable[[Described | None, bool], None],
        settled: bool = False,
        source: Any = None,
        tag: bytes = b"",
    ) -> None:
        self.report = tell
        self.settled = settled
        #: Connection of origin; None for a local producer.
        self.source = source
        self.tag = tag
        #: Delivery-id of the peer.
        self.number = -1
        self.payload = bytearray()
        self.complete = False
        self.aborted = False
        self.routed = False
        self.finished = False
        self.multicast = False
        self.outs: list[Outgoing] = []

    def extend(self, octets: bytes, complete: bool) -> None:
        """Add octets. Copies that are under way get them, too."""
        self.payload += octets
        self.complete = complete
        if self.routed:
            for out in self.outs:
                out.buffer += octets
                out.complete = complete
                out.target.on_more_octets(out)

    def abort(self) -> None:
        """Abort the delivery: the rest will not arrive."""
        self.aborted = self.complete = True
        for out in self.outs:
            if not out.complete:
                out.aborted = out.complete = True
                out.target.on_more_octets(out)

    def finish(self, state: Described | None, settled: bool = True) -> None:
        """Report to the origin, unless it has settled or has had a final report."""
        if self.settled or self.finished:
            return
        self.finished = settled
        self.report(state, settled)

    def origin_settled(self, state: Described | None) -> None:
        """Record the origin's settlement, and pass it to the copies."""
        self.settled = True
        for out in self.outs:
            out.settled = True
            out.target.settle_out(out, state)

    def on_copy_changed(self) -> None:
        """Handle a state or settlement of a copy."""
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
    """Outgoing copy of a delivery."""

    def __init__(self, incoming: Incoming, target: CopyTarget, octets: bytes) -> None:
        self.incoming = incoming
        self.target = target
        #: Octets not sent yet.
        self.buffer = bytearray(octets)
        self.complete = incoming.complete
        self.aborted = incoming.aborted
        self.presettled = incoming.settled
        self.settled = incoming.settled
        self.started = False
        self.id = -1
        self.state: Described | None = None
        #: Callback for the settlement.
        self.on_settled: Callable[[], None] | None = None

    def update(self, state: Described | None, settled: bool) -> None:
        """Record a state or settlement from the receiver."""
        if self.settled:
            return
        if frames.state_name(state) == "modified" and state is not None:
            state = Described(state.descriptor, [True, *state.value[1:]])
        self.state = state if state is not None else self.state
        self.settled = settled
        if settled and self.on_settled is not None:
            self.on_settled()
        self.incoming.on_copy_changed()
