"""Base classes of producers and consumers: a drawn link over all its attaches, and one attach."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from loadtests.liveness import frames
from loadtests.liveness.draw import ConsumerSpec, ProducerSpec
from tests.peer.frames import source, target
from tests.peer.types import Described

if TYPE_CHECKING:
    from loadtests.liveness.party import PartySession
    from loadtests.liveness.round import LivenessRound

#: Seconds until a link that was refused or detached is attached again.
AGAIN = 0.04


class Role:
    """Drawn link, over all its attaches."""

    #: True if messages go from here to the router
    sends = False

    def __init__(self, round_: LivenessRound, spec: ProducerSpec | ConsumerSpec) -> None:
        self.round = round_
        self.spec = spec
        self.address = spec.address
        self.rng = random.Random(f"{round_.scenario.seed}:{spec.uid}")
        self.link: PartyLink | None = None
        self.session: PartySession | None = None
        self.attaches = 0
        #: True for a client of a neighbour, whose link the router does not attach
        self.behind = False
        #: True after it has left for good
        self.gone = False
        #: seconds for which it stays detached after leaving
        self.away = 0.0
        #: True for a party that need not be served
        self.grudge = spec.address.grudge

    @property
    def name(self) -> str:
        """Name in the history."""
        return f"{'producer' if self.sends else 'consumer'} {self.spec.uid}"

    def attach(self, session: PartySession) -> None:
        """Attach on this side's initiative."""
        self.session = session
        if self.gone or self.link is not None or not session.usable:
            return
        self.attaches += 1
        self.link = self.make(session)
        self.link.attach()

    def answer(self, session: PartySession, fields: list[Any]) -> PartyLink:
        """Answer the router's attach; return this end of the link."""
        self.session = session
        self.attaches += 1
        self.link = self.make(session)
        return self.link

    def make(self, session: PartySession) -> PartyLink:
        """Return a new link of this role."""
        raise NotImplementedError

    def ended(self, link: PartyLink, by_us: bool) -> None:
        """Forget a link that has ended, by itself or with its session; attach again later."""
        if self.link is not link:
            return
        self.link = None
        session = self.session
        if session is not None and not session.connection.spec.broker:
            self.round.loop.after(max(AGAIN, self.away) if by_us else AGAIN, lambda: self.again(session))

    def again(self, session: PartySession) -> None:
        """Attach again on the same session, if it still exists."""
        current = session.connection.current(session.spec)
        if current is not None:
            self.attach(current)


class PartyLink:
    """Attach of a role, with its state."""

    def __init__(self, role: Role, session: PartySession) -> None:
        self.role = role
        self.round = role.round
        self.session = session
        self.rng = role.rng
        self.name = f"{role.spec.uid}.{role.attaches}.{role.address.text}"
        self.handle = session.take_handle()
        self.remote_handle: int | None = None
        self.up = False
        #: our detach has been sent
        self.leaving = False
        #: ended in order: messages sent settled before are not lost
        self.clean = False
        self.ended = False
        self.count = 0
        session.links[self.handle] = self

    def __str__(self) -> str:
        return f"{self.role.name} (attach {self.role.attaches}) of {self.role.address} at {self.session}"

    def attach(self) -> None:
        """Write our attach."""
        sending = self.role.sends
        spec = self.role.spec
        anonymous = isinstance(spec, ProducerSpec) and spec.anonymous
        address = None if anonymous else spec.address.text
        self.session.write(
            "attach",
            name=self.name,
            handle=self.handle,
            role=not sending,
            source=source(None if sending else address),
            target=target(address if sending else None),
            initial_delivery_count=self.count if sending else None,
        )

    def on_attach(self, fields: list[Any]) -> None:
        """Handle the router's answer."""
        self.remote_handle = int(fields[1])
        mine = frames.field(fields, 6 if self.role.sends else 5)
        if mine is None or (isinstance(mine, Described) and mine.value == [] and not self.role.spec.address.text):
            return  # refused: the router's detach follows
        self.up = True
        self.round.progress(self.role)
        self.opened()

    def opened(self) -> None:
        """Act after the attach; overridden by subclasses."""

    def detach(self, closed: bool) -> None:
        """Send a detach."""
        if self.leaving or self.ended:
            return
        self.leaving = self.clean = True
        self.session.write("detach", handle=self.handle, closed=closed)
        self.lost()

    def on_detach(self, fields: list[Any]) -> None:
        """Handle the router's detach, or its answer to ours."""
        ours = self.leaving
        if not ours:
            self.round.detached(self, frames.field(fields, 2))
            self.session.write("detach", handle=self.handle, closed=bool(frames.field(fields, 1)))
            self.lost()
        self.end(ours)

    def end(self, by_us: bool) -> None:
        """Remove the link from its session and its role."""
        if self.ended:
            return
        self.ended = True
        self.up = False
        if self.session.links.get(self.handle) is self:
            del self.session.links[self.handle]
        if self.remote_handle is not None:
            self.session.by_remote.pop(self.remote_handle, None)
        self.role.ended(self, by_us)

    def lost(self) -> None:
        """Forget messages in flight: their outcomes will not arrive."""
