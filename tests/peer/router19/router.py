"""Simulated router of version 1.19: its connections, its table, and its interface for tests."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterable
from typing import Any

from tests.peer import frames, message
from tests.peer.router19 import control, keys, message_head
from tests.peer.router19.connection import InterRouterConnection
from tests.peer.router19.control import Router19Control
from tests.peer.router19.deliveries import Incoming, Outgoing
from tests.peer.router19.engine import Router19Engine, Router19Node, Router19Timers
from tests.peer.router19.forwarding import Forwarder
from tests.peer.router19.loop import Router19Loop
from tests.peer.router19.routed import LinkRouting
from tests.peer.router19.transport import Router19Link
from tests.peer.types import Described
from tests.peer.wire import TIMEOUT

#: Ticks of the original between attempts of a connector.
RETRY = 2
HINTS = {"multicast": keys.MULTICAST, "closest": keys.CLOSEST, "balanced": keys.BALANCED}


class Injection:
    """Message of a local producer, with its reported states."""

    def __init__(self, world: Router19Loop) -> None:
        self.world = world
        self.steps: list[tuple[Described | None, bool]] = []
        self.incoming = Incoming(lambda state, settled: self.steps.append((state, settled)))

    def outcome(self, timeout: float = TIMEOUT) -> str | None:
        """Wait until the message is settled. Return the name of the outcome."""
        self.world.wait(lambda: self.settled, "an outcome", timeout)
        return frames.state_name(self.state)

    @property
    def settled(self) -> bool:
        """True if the message has been settled."""
        return any(settled for _state, settled in self.steps)

    @property
    def state(self) -> Described | None:
        """Last reported state."""
        return next((state for state, _settled in reversed(self.steps) if state is not None), None)

    def extend(self, octets: bytes, complete: bool = True) -> None:
        """Add octets to the message."""
        self.world.call(self.incoming.extend, octets, complete)

    def abort(self) -> None:
        """Abort the message."""
        self.world.call(self.incoming.abort)


class Arrival:
    """Message at a local consumer."""

    def __init__(self, consumer: Router19Consumer, out: Outgoing) -> None:
        self.consumer = consumer
        self.out = out
        self.payload = b""
        self.settled_by_origin = False

    @property
    def body(self) -> Any:
        """Body of the message."""
        return message.body(self.payload)

    @property
    def complete(self) -> bool:
        """True if all of it has arrived."""
        return self.out.complete

    @property
    def presettled(self) -> bool:
        """True if it arrived settled."""
        return self.out.presettled

    def settle(self, state: Described | None = frames.ACCEPTED, settled: bool = True) -> None:
        """Report a state or settlement as the consumer."""
        self.consumer.router.world.call(self.consumer.settle, self, state, settled)


class Router19Consumer:
    """Local consumer under the test's control. accept: accept every message automatically."""

    def __init__(self, router: Router19, key: str, credit: int | None, accept: bool) -> None:
        self.router = router
        self.key = key
        #: None: unlimited.
        self.credit = credit
        self.accept = accept
        self.waiting: list[Arrival] = []
        self.arrivals: list[Arrival] = []
        self.unsettled: list[Arrival] = []
        self.taken = 0

    # --- as a target -------------------------------------------------------------------------------------------------

    def load(self) -> int:
        """Return the number of unsent and unsettled copies."""
        return len(self.waiting) + len(self.unsettled)

    def queue(self, out: Outgoing) -> None:
        """Queue a copy for this consumer."""
        self.waiting.append(Arrival(self, out))
        self._pump()

    def on_more_octets(self, out: Outgoing) -> None:
        """Handle further octets of a copy."""
        for arrival in self.arrivals:
            if arrival.out is out:
                self._take(arrival)

    def settle_out(self, out: Outgoing, state: Described | None) -> None:
        """Handle the origin's settlement."""
        for arrival in self.unsettled:
            if arrival.out is out:
                arrival.settled_by_origin = True
        self.unsettled = [one for one in self.unsettled if one.out is not out]

    def _pump(self) -> None:
        while self.waiting and self.credit != 0:
            arrival = self.waiting.pop(0)
            if self.credit is not None:
                self.credit -= 1
            self.arrivals.append(arrival)
            if not arrival.presettled:
                self.unsettled.append(arrival)
            self._take(arrival)

    def _take(self, arrival: Arrival) -> None:
        arrival.payload += bytes(arrival.out.buffer)
        arrival.out.buffer.clear()
        if arrival.complete and self.accept and arrival in self.unsettled:
            self.settle(arrival, frames.ACCEPTED, True)

    def settle(self, arrival: Arrival, state: Described | None, settled: bool) -> None:
        """Settle an arrival. Runs in the loop's thread."""
        if settled and arrival in self.unsettled:
            self.unsettled.remove(arrival)
        arrival.out.update(state, settled)

    # --- for tests ---------------------------------------------------------------------------------------------------

    def next(self, timeout: float = TIMEOUT) -> Arrival:
        """Return the next message that has arrived completely."""

        def come() -> bool:
            return len(self.arrivals) > self.taken and self.arrivals[self.taken].complete

        self.router.world.wait(come, f"a message for {self.key} at {self.router.id}", timeout)
        self.taken += 1
        return self.arrivals[self.taken - 1]

    def wait_arrivals(self, count: int, timeout: float = TIMEOUT) -> None:
        """Wait until `count` messages have at least begun to arrive."""
        self.router.world.wait(lambda: len(self.arrivals) >= count, f"{count} messages for {self.key}", timeout)

    def grant(self, credit: int) -> None:
        """Grant `credit` additional credits."""

        def more() -> None:
            self.credit = (self.credit or 0) + credit
            self._pump()

        self.router.world.call(more)

    def close(self) -> None:
        """Remove the consumer."""
        self.router.world.call(self.router.remove_consumer, self)


class Router19:
    """Simulated interior router of 1.19. addresses: configured treatment by address prefix."""

    def __init__(
        self,
        world: Router19Loop,
        router_id: str,
        timers: Router19Timers | None = None,
        instance: int | None = None,
        addresses: dict[str, str] | None = None,
        fallbacks: Iterable[str] = (),
        mute: Iterable[str] = (),
    ) -> None:
        self.world = world
        self.id = router_id
        self.timers = timers or Router19Timers()
        self.addresses = addresses or {}
        self.fallbacks = tuple(fallbacks)
        self.idle_ms = 8000
        self.failover: list[dict[str, str]] | None = None
        self.instance = int(time.time()) if instance is None else instance
        self.engine = Router19Engine(router_id, self.instance, self.timers, self._originate, self._learn)
        self.engine.mute.update(mute)
        self.forward = Forwarder(self)
        self.links = LinkRouting(self)
        self.connections: list[InterRouterConnection] = []
        #: All received control messages, each with its connection.
        self.received: list[tuple[InterRouterConnection, Router19Control]] = []
        #: Octets of control messages that could not be parsed.
        self.unreadable: list[bytes] = []
        #: Handlers by router id. They get the control messages for phantom routers, which the test plays behind this
        #: one.
        self.phantoms: dict[str, Callable[[Router19Control], None]] = {}
        self._numbers = 0
        self._tags = 0
        self._server: asyncio.Server | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self._running = True
        world.call(self._tick)

    # --- life --------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        with self.world.entered():
            self.engine.tick(time.monotonic())
        if self._running:
            self._ticking = self.world.loop.call_later(self.timers.tick, self._tick)

    def listen(self, port: int = 0, cost: int = 1, tls: ssl.SSLContext | None = None) -> int:
        """Listen for routers. Return the port. With `tls` they log in by certificate."""

        async def start() -> int:
            self._server = await self.world.loop.create_server(
                lambda: self._connection(False, None, cost, tls), "127.0.0.1", port, ssl=tls
            )
            return int(self._server.sockets[0].getsockname()[1])

        return asyncio.run_coroutine_threadsafe(start(), self.world.loop).result(TIMEOUT)

    def connect(self, port: int, cost: int = 1, tls: ssl.SSLContext | None = None) -> InterRouterConnection:
        """Connect once, as a connector does. With `tls`, to host `localhost` and with a certificate."""
        host = "127.0.0.1" if tls is None else "localhost"

        async def start() -> InterRouterConnection:
            _transport, made = await self.world.loop.create_connection(
                lambda: self._connection(True, host, cost, tls), host, port, ssl=tls
            )
            return made

        return asyncio.run_coroutine_threadsafe(start(), self.world.loop).result(TIMEOUT)

    def _connection(
        self, connector: bool, hostname: str | None, cost: int, tls: ssl.SSLContext | None
    ) -> InterRouterConnection:
        self._numbers += 1
        mechanism = "ANONYMOUS" if tls is None else "EXTERNAL"
        connection = InterRouterConnection(self, connector, hostname, cost, self._numbers, mechanism)
        self.connections.append(connection)
        return connection

    def connection_lost(self, connection: InterRouterConnection) -> None:
        """Handle the loss of a connection."""
        self.engine.connection_lost(connection)
        if connection in self.connections:
            self.connections.remove(connection)

    def stop(self) -> None:
        """Close all sockets at once, like a killed process."""

        def end() -> None:
            self._running = False
            if self._ticking is not None:
                self._ticking.cancel()
            if self._server is not None:
                self._server.close()
            for connection in list(self.connections):
                connection.drop()

        self.world.call(end)

    # --- tables ------------------------------------------------------------------------------------------------------

    def distribution(self, text: str) -> int | None:
        """Return the configured treatment of an address."""
        found = [prefix for prefix in self.addresses if text.split("/")[0].split(".")[0] == prefix or text == prefix]
        return HINTS[self.addresses[found[0]]] if found else None

    def has_fallback(self, text: str) -> bool:
        """Return True if fallback is configured for an address."""
        return any(text.startswith(prefix) for prefix in self.fallbacks)

    def next_tag(self) -> bytes:
        """Return the next delivery tag."""
        self._tags += 1
        return (self._tags - 1).to_bytes(8, "little")

    def connection_towards(self, node: Router19Node) -> InterRouterConnection | None:
        """Return the connection towards a router."""
        if node.connection is None and node.next_hop is not None:
            hop = self.engine.nodes.get(node.next_hop)
            return hop.connection if hop is not None else None
        found: InterRouterConnection | None = node.connection
        return found

    def neighbours_in_trace(self, trace: Iterable[str]) -> list[InterRouterConnection]:
        """Return the connections to neighbours named in a trace."""
        ids = [one.partition("/")[2] for one in trace]
        nodes = [self.engine.nodes[one] for one in ids if one in self.engine.nodes]
        return [node.connection for node in nodes if node.connection is not None]

    def _learn(self) -> None:
        self.forward.learn()

    # --- control -----------------------------------------------------------------------------------------------------

    def _originate(self, destination: str, octets: bytes) -> None:
        """Send a control message of the engine."""
        if destination == "hello":
            self._out(octets, [one for one in self.connections if one.control_out is not None])
        elif destination.startswith("all"):
            self._out(octets, self._everybody([]))
        else:
            node = self.engine.nodes.get(destination)
            hop = self.connection_towards(node) if node is not None else None
            self._out(octets, [hop] if hop is not None else [])

    def _everybody(self, trace: list[str]) -> list[InterRouterConnection]:
        """Return the next-hop connections of all known routers, once each, without those that lead back."""
        excluded = self.neighbours_in_trace(trace)
        found: list[InterRouterConnection] = []
        for node in self.engine.nodes.values():
            hop = self.connection_towards(node)
            if hop is not None and hop not in found and hop not in excluded:
                found.append(hop)
        return found

    def _out(self, octets: bytes, connections: list[InterRouterConnection]) -> None:
        for connection in connections:
            if connection.control_out is not None:
                incoming = Incoming(lambda _state, _settled: None, settled=True)
                incoming.complete = True
                connection.control_out.queue(Outgoing(incoming, connection.control_out, octets))

    def handle_control_delivery(self, connection: InterRouterConnection, incoming: Incoming) -> None:
        """Handle a message on a control link."""
        if not incoming.complete or incoming.aborted:
            return
        octets = bytes(incoming.payload)
        try:
            head = message_head.read(octets)
        except ValueError:
            self.unreadable.append(octets)
            return
        incoming.finish(frames.ACCEPTED)
        where = head.address()
        if where is None or len(head.trace) > self.engine.paths.radius + 1:
            return
        key = keys.key_of(where[0], where[1], self.id)
        self._pass_on(key, head, octets)
        if key[1:] in ("qdhello", "qdrouter", "qdrouter.ma") and key[0] in "LT":
            self._consume(connection, octets)

    def _pass_on(self, key: str, head: message_head.MessageHead, octets: bytes) -> None:
        notes = message_head.compose(
            head.user, head.phase, head.stream, head.to, head.ingress, [*head.trace, f"0/{self.id}"]
        )
        onward = head.before + notes + octets[head.rest :]
        if key[0] == "R":
            if key[1:] in self.phantoms:
                self.phantoms[key[1:]](control.read(octets))
                return
            node = self.engine.nodes.get(key[1:])
            hop = self.connection_towards(node) if node is not None else None
            self._out(onward, [hop] if hop is not None else [])
        elif key in ("Tqdrouter", "Tqdrouter.ma"):
            origin = head.ingress.partition("/")[2] if head.ingress is not None else None
            if key == "Tqdrouter.ma" and origin is not None and origin not in self.engine.nodes:
                return
            self._out(onward, self._everybody(head.trace))

    def _consume(self, connection: InterRouterConnection, octets: bytes) -> None:
        try:
            found = control.read(octets)
        except control.MalformedControlError:
            self.unreadable.append(octets)
            return
        self.received.append((connection, found))
        self.engine.handle(found, connection, connection.cost, time.monotonic())

    # --- for tests ---------------------------------------------------------------------------------------------------

    def emit(self, octets: bytes, connection: InterRouterConnection | None = None) -> None:
        """Send any octets on the control link of a connection (default: the first). Runs in the loop's thread."""
        self._out(octets, [connection if connection is not None else self.connections[0]])

    def send_control(self, octets: bytes, connection: InterRouterConnection | None = None) -> None:
        """Send any octets on the control link of a connection (default: the first)."""
        self.world.call(self.emit, octets, connection)

    def send_on(self, link: Router19Link, octets: bytes, settled: bool = False) -> Injection:
        """Send any octets on a link, unchanged."""
        injection = Injection(self.world)

        def send() -> None:
            incoming = injection.incoming
            incoming.settled, incoming.complete, incoming.routed = settled, True, True
            incoming.outs.append(Outgoing(incoming, link, octets))
            link.queue(incoming.outs[0])

        self.world.call(send)
        return injection

    def control(self, opcode: str, sender: str | None = None, **where: Any) -> list[Router19Control]:
        """Return the received control messages of an opcode and sender with these values in their bodies."""
        with self.world.lock:
            return [
                found
                for _connection, found in self.received
                if found.opcode == opcode
                and (sender is None or found.id == sender)
                and all(found.body.get(key) == value for key, value in where.items())
            ]

    def consumer(
        self, address: str, credit: int | None = None, accept: bool = True, phase: int = 0, hint: str | None = None
    ) -> Router19Consumer:
        """Add a consumer of an address text. It is announced at the next tick."""

        def add() -> Router19Consumer:
            key = keys.key_of(address, phase, self.id)
            record = self.forward.address(key, None if hint is None else HINTS[hint])
            consumer = Router19Consumer(self, key, credit, accept)
            record.consumers.append(consumer)
            if len(record.consumers) == 1 and key[0] in keys.PROPAGATED:
                self.engine.announce(key, record.treatment)
            return consumer

        return self.world.call(add)

    def remove_consumer(self, consumer: Router19Consumer) -> None:
        """Remove a consumer from the table. Runs in the loop's thread."""
        record = self.forward.table[consumer.key]
        record.consumers.remove(consumer)
        if not record.consumers:
            self.engine.withdraw(consumer.key)
        for arrival in consumer.waiting:
            arrival.out.update(frames.RELEASED, True)
        for arrival in list(consumer.unsettled):
            arrival.out.update(frames.modified(failed=True), True)

    def send(
        self,
        to: str | None,
        payload: bytes,
        settled: bool = False,
        complete: bool = True,
        phase: int = 0,
        override: bool = True,
    ) -> Injection:
        """Send a message of a local producer, on a link with this target (`override`) or anonymously."""
        injection = Injection(self.world)

        def inject() -> None:
            incoming = injection.incoming
            incoming.settled = settled
            incoming.payload += payload
            incoming.complete = complete
            head = message_head.read(payload) if complete else message_head.complete_head(payload)
            assert head is not None
            if override:
                head.to, head.phase = to, phase
            elif to is not None:
                head.properties_to = to
            self.forward.forward(incoming, head)

        self.world.call(inject)
        return injection

    def wait_neighbour(self, router_id: str, timeout: float = TIMEOUT) -> InterRouterConnection:
        """Wait until another router is a neighbour. Return the connection."""
        found: InterRouterConnection = self.world.wait(
            lambda: (node := self.engine.nodes.get(router_id)) and node.connection,
            f"{router_id} is a neighbour of {self.id}",
            timeout,
        )
        return found

    def wait_reach(self, *router_ids: str, timeout: float = TIMEOUT) -> None:
        """Wait until these routers are reachable."""
        self.world.wait(
            lambda: set(router_ids) <= set(self.engine.paths.costs), f"{self.id} reaches {router_ids}", timeout
        )

    def wait_key(self, key: str, *router_ids: str, timeout: float = TIMEOUT) -> None:
        """Wait until exactly these routers announce a key."""
        self.world.wait(
            lambda: {node.id for node in self.forward.remotes(key)} == set(router_ids),
            f"{key} announced to {self.id} by {router_ids}",
            timeout,
        )
