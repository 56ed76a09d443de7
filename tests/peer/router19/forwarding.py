"""Forwarding of users' messages: treatments, annotations, hop limit, fallback (inter-router.md 10 and 11)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.peer import frames
from tests.peer.router19 import keys, message_head
from tests.peer.router19.deliveries import CopyTarget, Incoming, Outgoing
from tests.peer.router19.message_head import MessageHead
from tests.peer.router19.transport import CAPACITY, Router19Link

if TYPE_CHECKING:
    from tests.peer.router19.connection import InterRouterConnection
    from tests.peer.router19.engine import Router19Node
    from tests.peer.router19.router import Router19

#: Octets after which an incomplete message is forwarded as a stream.
STREAMING = 256 * 512


@dataclass
class Router19Address:
    """Local record of an address key."""

    key: str
    treatment: int
    consumers: deque[CopyTarget] = field(default_factory=deque)
    turn: int = 0


class Forwarder:
    """Address table and message forwarding."""

    def __init__(self, router: Router19) -> None:
        self.router = router
        self.table: dict[str, Router19Address] = {}
        #: Messages received on data links, as (connection, link, head) in order, for tests.
        self.seen: list[tuple[Any, Router19Link | None, MessageHead]] = []

    # --- table -------------------------------------------------------------------------------------------------------

    def address(self, key: str, hint: int | None = None) -> Router19Address:
        """Return the record of a key, created if necessary."""
        found = self.table.get(key)
        if found is None:
            found = self.table[key] = Router19Address(key, self._treatment(key, hint))
        return found

    def _treatment(self, key: str, hint: int | None) -> int:
        if key[0] in "CDEF":
            return keys.LINK_BALANCED
        if key[0] == "M":
            configured = self.router.distribution(key[2:])
            if configured is not None:
                return configured
        return hint if hint is not None else keys.BALANCED

    def learn(self) -> None:
        """Create records for new keys of other routers."""
        for node in self.router.engine.nodes.values():
            for key, hint in node.keys.items():
                self.address(key, hint)

    def remotes(self, key: str) -> list[Router19Node]:
        """Return the routers that have announced a key."""
        return [node for node in self.router.engine.nodes.values() if key in node.keys]

    # --- messages ----------------------------------------------------------------------------------------------------

    def handle_delivery(self, incoming: Incoming, link: Router19Link | None) -> None:
        """Handle a new or grown delivery."""
        if incoming.routed or incoming.aborted:
            return
        head: MessageHead | None = None
        try:
            if incoming.complete:
                head = message_head.read(bytes(incoming.payload))
            else:
                head = message_head.complete_head(bytes(incoming.payload))
                if head is not None and not head.stream and len(incoming.payload) < STREAMING:
                    return
        except message_head.InvalidAnnotationsError as error:
            incoming.routed = True
            incoming.finish(frames.rejected("amqp:invalid-field", str(error)))
            return
        if head is None:
            return
        self.seen.append((incoming.source, link, head))
        self.forward(incoming, head)

    def forward(self, incoming: Incoming, head: MessageHead) -> None:
        """Route a delivery by its head."""
        incoming.routed = True
        where = head.address()
        if where is None:
            text = "Routing failure: no address present"
            incoming.finish(frames.rejected("amqp:precondition-failed", text))
        elif len(head.trace) > self.router.engine.paths.radius + 1:
            incoming.finish(frames.RELEASED)
        else:
            key = keys.key_of(where[0], where[1], self.router.id)
            if not self._send(incoming, head, key) and not self._fall_back(incoming, head, key, where[0]):
                incoming.finish(frames.RELEASED)

    def _fall_back(self, incoming: Incoming, head: MessageHead, key: str, text: str) -> bool:
        if not key.startswith("M") or key[1] == "F" or not self.router.has_fallback(key[2:]):
            return False
        head.to, head.phase = text, keys.FALLBACK_PHASE
        return self._send(incoming, head, "MF" + key[2:])

    def _send(self, incoming: Incoming, head: MessageHead, key: str) -> bool:
        """Send to the destinations chosen by the treatment of a key. Return False if there are none."""
        if key[0] == "R":
            node = self.router.engine.nodes.get(key[1:])
            connection = self.router.connection_towards(node) if node is not None else None
            return self._over(incoming, head, [connection] if connection is not None else [], None)
        address = self.table.get(key)
        if address is None or key[0] in "TA" or key in ("Lqdhello", "Lqdrouter", "Lqdrouter.ma"):
            return False
        if address.treatment in (keys.MULTICAST, keys.MULTICAST_FLOOD):
            return self._multicast(incoming, head, address)
        if address.treatment == keys.CLOSEST:
            return self._closest(incoming, head, address)
        return self._balanced(incoming, head, address)

    def _copy(self, incoming: Incoming, head: MessageHead, target: CopyTarget) -> Outgoing:
        """Return a copy with the head rewritten for the next hop."""
        router = self.router
        notes = message_head.compose(
            head.user,
            head.phase,
            head.stream,
            head.to,
            head.ingress if head.ingress is not None else f"0/{router.id}",
            [*head.trace, f"0/{router.id}"],
        )
        out = Outgoing(incoming, target, head.before + notes + bytes(incoming.payload[head.rest :]))
        incoming.outs.append(out)
        return out

    def _local(self, incoming: Incoming, head: MessageHead, targets: list[CopyTarget]) -> None:
        for target in targets:
            target.queue(self._copy(incoming, head, target))

    def _over(
        self,
        incoming: Incoming,
        head: MessageHead,
        connections: list[InterRouterConnection],
        key: str | None,
        pool: bool = True,
    ) -> bool:
        """Send one copy over each connection that has a link. key: address key under which the copy counts as
        outstanding."""
        sent = False
        for connection in connections:
            link = connection.data_link(head.priority)
            if link is None:
                continue
            if not incoming.complete and pool:
                link = connection.stream_link()
            out = self._copy(incoming, head, link)
            if key is not None and not incoming.settled:
                connection.outstanding[key] = connection.outstanding.get(key, 0) + 1
                out.on_settled = lambda connection=connection: _less(connection, key)
            link.queue(out)
            sent = True
        return sent

    def _multicast(self, incoming: Incoming, head: MessageHead, address: Router19Address) -> bool:
        incoming.multicast = True
        connections: list[InterRouterConnection] = []
        origin = head.ingress.partition("/")[2] if head.ingress is not None else None
        if origin is None or origin in self.router.engine.nodes:
            excluded = self.router.neighbours_in_trace(head.trace)
            for node in self.remotes(address.key):
                connection = self.router.connection_towards(node)
                if connection is not None and connection not in connections and connection not in excluded:
                    connections.append(connection)
        # All copies must exist before the first of them can be settled.
        targets = list(address.consumers)
        copies = [(target, self._copy(incoming, head, target)) for target in targets]
        sent = self._over(incoming, head, connections, None)
        for target, out in copies:
            target.queue(out)
        return bool(copies) or sent

    def _closest(self, incoming: Incoming, head: MessageHead, address: Router19Address) -> bool:
        if address.consumers:
            target = address.consumers[0]
            address.consumers.rotate(-1)
            self._local(incoming, head, [target])
            return True
        nodes = [node for node in self.remotes(address.key) if self.router.connection_towards(node) is not None]
        if not nodes:
            return False
        lowest = min(node.cost for node in nodes)
        nearest = [node for node in nodes if node.cost == lowest]
        address.turn += 1
        connection = self.router.connection_towards(nearest[(address.turn - 1) % len(nearest)])
        return self._over(incoming, head, [connection] if connection is not None else [], None)

    def _balanced(self, incoming: Incoming, head: MessageHead, address: Router19Address) -> bool:
        #: ((ineligible, value), destination); the first of the lowest wins.
        candidates: list[tuple[tuple[bool, int], Any]] = []
        for target in address.consumers:
            load = target.load()
            candidates.append(((load >= CAPACITY, load), target))
        if not any(value == (False, 0) for value, _where in candidates):
            candidates += self._remote_candidates(head, address)
        if not candidates:
            return False
        value, where = min(candidates, key=lambda one: one[0])
        if where in address.consumers:
            if value == (False, 0):
                address.consumers.rotate(-1)
            self._local(incoming, head, [where])
            return True
        pool = "qd.streaming-links" in (where.remote_open.offered_capabilities or ())
        return self._over(incoming, head, [where], address.key, pool)

    def _remote_candidates(self, head: MessageHead, address: Router19Address) -> list[tuple[tuple[bool, int], Any]]:
        engine = self.router.engine
        origin = head.ingress.partition("/")[2] if head.ingress is not None else self.router.id
        local = origin == self.router.id or origin not in engine.nodes
        found: list[tuple[tuple[bool, int], Any]] = []
        for node in self.remotes(address.key):
            connection = self.router.connection_towards(node)
            if connection is not None and (local or origin in node.valid_origins):
                load = connection.outstanding.get(address.key, 0)
                found.append(((load >= CAPACITY, load + node.cost), connection))
        return found


def _less(connection: InterRouterConnection, key: str) -> None:
    connection.outstanding[key] -= 1
