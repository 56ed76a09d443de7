"""Control messages: originated here, relayed to one router, flooded to all (inter-router.md 11.1, 11.2)."""

from collections import OrderedDict
from typing import Final

from sluice.supervisor.network.protocol.annotations import Envelope, relayed
from sluice.supervisor.network.protocol.local_router import LocalRouter
from sluice.supervisor.network.protocol.neighbour_table import NeighbourTable
from sluice.supervisor.network.protocol.nodes import RouterNode, RouterNodes
from sluice.supervisor.network.protocol.outbox import DEBUG, EngineOutbox

# Limits of remembered flooded messages and of their octets.
_MOST_SEEN: Final = 16384
_MOST_SEEN_OCTETS: Final = 16 << 20


class Flooding:
    """Sends and relays control messages. Owner: the engine.

    1.19 relays every copy of a flooded message. This router relays only the first copy and, in mixed networks, a copy
    that passed fewer routers. Each router still receives one. inter-router-protocol.md 5.9.
    """

    def __init__(
        self,
        local: LocalRouter,
        nodes: RouterNodes,
        table: NeighbourTable,
        outbox: EngineOutbox,
    ) -> None:
        self._local = local
        self._nodes = nodes
        self._table = table
        self._outbox = outbox
        # by tail: time of the first copy, and its trace entries
        self._seen: OrderedDict[bytes, tuple[float, int]] = OrderedDict()
        self._seen_octets = 0

    # -- originated here

    def to_all(self, tail: bytes) -> None:
        octets = self._local.head + tail
        for neighbour in self._table.announced.values():
            self._outbox.send(neighbour.links[0], octets)

    def to_ours(self, tail: bytes, but: str | None = None) -> None:
        """Send a message to all Sluice neighbours except `but`. They do not relay it further."""
        octets = self._local.head + tail
        for neighbour in self._table.announced.values():
            if neighbour.ours and neighbour.id != but:
                self._outbox.send(neighbour.links[0], octets)

    def to_ours_only(self, router_id: str, tail: bytes) -> None:
        """Send a message to one neighbour, if the neighbour is Sluice."""
        neighbour = self._table.announced.get(router_id)
        if neighbour is not None and neighbour.ours:
            self._outbox.send(neighbour.links[0], self._local.head + tail)

    def to_link(self, link: int, tail: bytes) -> None:
        self._outbox.send(link, self._local.head + tail)

    def to_router(self, node: RouterNode, tail: bytes) -> bool:
        """Send a message to a router. Returns False if the router is unreachable."""
        link = self.link_to(node)
        if link is None:
            return False
        self._outbox.send(link, self._local.head + tail)
        return True

    def link_to(self, node: RouterNode) -> int | None:
        """Return the connection towards a router, or None."""
        if node.path is not None and node.path.links[0] in self._table.links:
            return node.path.links[0]
        neighbour = self._table.announced.get(node.id)
        return neighbour.links[0] if neighbour is not None else None

    # -- relayed

    def first(self, envelope: Envelope, tail: bytes, now: float) -> bool:
        """Return whether a flooded message is new, or a copy that passed fewer routers."""
        found = self._seen.get(tail)
        if found is not None:
            recent = now - found[0] <= self.window()
            if recent and (envelope.trace_count >= found[1] or self._nodes.only_ours):
                return False
            self._forget(tail)
        self._seen[tail] = (now, envelope.trace_count)
        self._seen_octets += len(tail)
        while len(self._seen) > _MOST_SEEN or self._seen_octets > _MOST_SEEN_OCTETS:
            self._forget(next(iter(self._seen)))
        return True

    def window(self) -> float:
        """Return the seconds for which copies of a message are expected. A later equal message is new."""
        timers = self._local.timers
        return min(timers.flood_window, timers.ra_interval_flux / 2)

    def _forget(self, tail: bytes) -> None:
        del self._seen[tail]
        self._seen_octets -= len(tail)

    def expire(self, now: float) -> None:
        while self._seen:
            tail, (when, _) = next(iter(self._seen.items()))
            if now - when <= self.window():
                return
            self._forget(tail)

    def relay_to_all(self, envelope: Envelope, link: int) -> None:
        """Relay a flooded message, except to its sender and to routers in its trace. Raises MessageError."""
        source = self._table.links[link].peer
        visible = self._nodes.visible(envelope.ingress_id())
        others = [found for found in self._table.announced.values() if found.id != source]
        if not others:
            return
        passed = set(envelope.trace_ids())
        octets = None
        for neighbour in others:
            if neighbour.id in passed:
                continue
            if neighbour.ours:
                # Copies are recognised, so the hop limit need not end a flood.
                if envelope.trace_count > len(self._nodes) + 1:
                    continue
            elif not visible or envelope.trace_count > self._nodes.radius + 1:
                continue
            if octets is None:
                octets = relayed(envelope, self._local.node)
            self._outbox.send(neighbour.links[0], octets)

    def relay_to_router(self, envelope: Envelope, router_id: str) -> None:
        """Relay a message to another router. Raises MessageError."""
        node = self._nodes.by_id.get(router_id)
        link = self.link_to(node) if node is not None else None
        envelope.trace_ids()
        if link is None or envelope.trace_count > self._nodes.radius + 1:
            reason = "no path" if link is None else "it has passed too many routers"
            self._outbox.log("ROUTER_LS", DEBUG, f"Control message for {router_id} released: {reason}")
            return
        self._outbox.send(link, relayed(envelope, self._local.node))
