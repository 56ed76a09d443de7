"""Routed links at a router in the middle of their path (inter-router.md 12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.peer import frames
from tests.peer.frames import Frame
from tests.peer.router19.deliveries import Incoming, Outgoing
from tests.peer.router19.encoding import attach_octets
from tests.peer.router19.keys import plain
from tests.peer.router19.transport import Router19Link
from tests.peer.types import Described

if TYPE_CHECKING:
    from tests.peer.router19.connection import InterRouterConnection
    from tests.peer.router19.router import Router19

NO_ROUTE = ("qd:no-route-to-dest", "No route to the destination node")
LOST = ("qd:routed-link-lost", "Connectivity to the peer container was lost")


class LinkRouting:
    """Routing of links to their next hop."""

    def __init__(self, router: Router19) -> None:
        self.router = router
        self.pairs: list[RelayedLinkPair] = []
        self._turns: dict[str, int] = {}

    def route(self, connection: InterRouterConnection, link: Router19Link, frame: Frame) -> None:
        """Attach a link of another router to the next hop, or refuse it."""
        terminus = frames.terminus(frame.target if link.receiver else frame.source)
        address = _address(terminus)
        key = self._key(plain(address), "CE" if link.receiver else "DF") if address is not None else None
        hop = self._next(key) if key is not None else None
        if hop is None:
            connection.refuse(link, *NO_ROUTE)
            return
        onward = hop.routed_link(link.name, not link.receiver, frame.source, frame.target)
        self.pairs.append(RelayedLinkPair(connection, link, hop, onward))

    def _key(self, address: str, classes: str) -> str | None:
        """Return the key of the longest pattern that matches the address."""
        known = {key for node in self.router.engine.nodes.values() for key in node.keys if key[0] in classes}
        fitting = [key for key in known if _matches(address, key)]
        return max(fitting, key=len) if fitting else None

    def _next(self, key: str) -> InterRouterConnection | None:
        nodes = self.router.forward.remotes(key)
        turn = self._turns.get(key, 0)
        self._turns[key] = turn + 1
        return self.router.connection_towards(nodes[turn % len(nodes)])


def _address(terminus: dict[str, Any]) -> str | None:
    if terminus.get("dynamic"):
        properties = terminus.get("dynamic_node_properties") or {}
        return next((value for key, value in properties.items() if key == "x-opt-qd.address"), None)
    return terminus.get("address")


def _matches(address: str, key: str) -> bool:
    words = address.replace("/", ".").split(".")
    pattern = key[1:].replace("/", ".").split(".")
    if key[0] in "CD":
        return words[: len(pattern)] == pattern
    return _fits(words, pattern)


def _fits(words: list[str], pattern: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(_fits(words[at:], pattern[1:]) for at in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and _fits(words[1:], pattern[1:])


class RelayedLinkPair:
    """Both links of a routed link at this router. `link` came from the client's side, `onward` was attached by this
    router."""

    def __init__(
        self, connection: InterRouterConnection, link: Router19Link, hop: InterRouterConnection, onward: Router19Link
    ) -> None:
        self.ends = {id(link): (hop, onward), id(onward): (connection, link)}
        self.first, self.answer_relayed = link, False
        #: Credit limit last granted to the sending side.
        self.limit = 0
        link.routed = onward.routed = self

    def _other(self, link: Router19Link) -> tuple[InterRouterConnection, Router19Link]:
        return self.ends[id(link)]

    def relay_attach(self, link: Router19Link, frame: Frame) -> None:
        """Relay the remote answer to the onward attach."""
        connection, other = self._other(link)
        self.answer_relayed = True
        octets = attach_octets(other.name, other.handle, other.receiver, frame.source, frame.target)
        connection.send(octets, other.session.channel)

    def relay_flow(self, link: Router19Link, frame: Frame) -> None:
        """Relay the credit of a receiver, or the drain of a sender."""
        connection, other = self._other(link)
        if connection.lost or other.detached:
            return
        if link.receiver:
            # The sender has returned credit: its delivery-count tells how much.
            gone = (frame.delivery_count or 0) - link.delivery_count
            if gone > 0:
                link.delivery_count += gone
                other.delivery_count += gone
                other.credit = 0
                other.session.flow(handle=other.handle, delivery_count=other.delivery_count, link_credit=0, drain=True)
            return
        link.pump()
        limit = (frame.delivery_count or 0) + (frame.link_credit or 0)
        if limit > self.limit or frame.drain:
            self.limit = max(self.limit, limit)
            other.grant(max(0, self.limit - other.delivery_count), drain=bool(frame.drain))

    def relay_delivery(self, link: Router19Link, incoming: Incoming) -> None:
        """Relay a new or grown delivery."""
        _connection, other = self._other(link)
        if incoming.routed:
            return
        incoming.routed = True
        out = RelayedCopy(incoming, other, bytes(incoming.payload))
        incoming.outs.append(out)
        other.queue(out)

    def relay_detach(self, link: Router19Link, frame: Frame) -> None:
        """Relay a detach, or the answer to one."""
        _connection, other = self._other(link)
        error = frame.error
        closed = bool(frame.fields.get("closed"))
        if frame.name == "end":
            error, closed = frames.error(*LOST), True
        if other.detached:
            if not link.detached:
                link.detach(closed=closed)
            return
        other.detach(error, closed)
        self._pending = link
        if frame.name != "detach":
            link.detached = True

    def end_after_loss(self, link: Router19Link) -> None:
        """Detach the other side after a connection is lost."""
        connection, other = self._other(link)
        if other.detached or connection.lost:
            return
        if not self.answer_relayed and other is self.first:
            connection.refuse(other, *LOST)
        else:
            other.detach(frames.error(*LOST))


class RelayedCopy(Outgoing):
    """Copy on a routed link. Its states are relayed unchanged."""

    def update(self, state: Described | None, settled: bool) -> None:
        if self.settled:
            return
        self.state, self.settled = state if state is not None else self.state, settled
        self.incoming.finish(state, settled)
