"""Router networks: their configuration, waiting for convergence, and a message flow that continues during changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from tests.peer import message
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.system.router import RouterProcess, Section, free_port, listener, poll

#: Seconds for routers to find each other, or to detect a loss, on a busy machine.
CONVERGENCE = 30.0


def interior(name: str, port: int | None = None, to: Iterable[int] = (), **attributes: Any) -> list[Section]:
    """Return the sections of an interior router: listeners for clients and (on `port`) routers, connectors to `to`."""
    return [
        ("router", {"mode": "interior", "id": name, **attributes}),
        listener(),
        *([listener("net", role="inter-router") if port is None else _at(port)]),
        *(connector(other) for other in to),
    ]


def _at(port: int) -> Section:
    name, attributes = listener("net", role="inter-router")
    return name, {**attributes, "port": port}


def connector(port: int, **attributes: Any) -> Section:
    """Return a connector to the router that listens on `port`; its name is `toPORT`."""
    return "connector", {"name": f"to{port}", "role": "inter-router", "host": "127.0.0.1", "port": port, **attributes}


def ports(count: int) -> list[int]:
    """Return distinct ports for listeners that keep their port across a restart."""
    found: dict[int, None] = {}
    while len(found) < count:
        found[free_port()] = None
    return list(found)


class RouterView:
    """The network as one router reports it. Each query uses its own connection, because tests may block."""

    def __init__(self, router: RouterProcess, address: str = "$management") -> None:
        self.router = router
        self.management_address = address

    def query(self, kind: str, *attributes: str) -> list[dict[str, Any]]:
        """Return the rows of a type with these attributes, by default all."""
        peer = AmqpPeer.opened(self.router.port)
        try:
            return Management(peer, self.management_address).query(kind, *attributes)
        finally:
            peer.drop()

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Return the rows of router.node by id."""
        return {row["id"]: row for row in self.query("router.node")}

    def address(self, key: str) -> dict[str, Any] | None:
        """Return the row of an address, None if there is none."""
        return next((row for row in self.query("router.address") if row["key"] == key), None)

    def wait_nodes(self, **costs: int | None) -> dict[str, dict[str, Any]]:
        """Wait until the router knows exactly these other routers, at these costs (None: no path)."""
        seen: dict[str, Any] = {}

        def known() -> bool:
            seen.clear()
            seen.update(self.nodes())
            return {name: row["cost"] for name, row in seen.items() if row["nextHop"] != "(self)"} == costs

        poll(known, f"the router in {self.router.directory.name} knows {costs}", CONVERGENCE)
        return seen

    def wait_remote(self, key: str, *routers: str) -> None:
        """Wait until the router lists exactly these routers as destinations of an address."""

        def known() -> bool:
            row = self.address(key)
            return sorted(row["remoteHostRouters"] if row else ()) == sorted(routers)

        poll(known, f"{key} is at {routers}", CONVERGENCE)


class TwoRouterNetwork:
    """Routers A and B with a connection from B to A, and peers connected to them."""

    def __init__(self, a: RouterProcess, b: RouterProcess) -> None:
        self.a, self.b = a, b
        self.at_a, self.at_b = RouterView(a), RouterView(b)
        self._peers: list[AmqpPeer] = []
        self._numbers = 0

    def connect(self, router: RouterProcess) -> AmqpPeer:
        peer = AmqpPeer.opened(router.port)
        self._peers.append(peer)
        return peer

    def fresh(self, prefix: str = "") -> str:
        self._numbers += 1
        return f"{prefix}n{self._numbers}"

    def drop(self) -> None:
        for peer in self._peers:
            peer.drop()
        self._peers.clear()


class MessageFlow:
    """A sender and a receiver of one address at two routers. Messages are sent one after the other until `stop`."""

    def __init__(self, into: RouterProcess, out: RouterProcess, address: str) -> None:
        self.receiver_peer = AmqpPeer.opened(out.port)
        self.receiver = self.receiver_peer.receiver(address, 100)
        self.sender_peer = AmqpPeer.opened(into.port)
        self.sender = self.sender_peer.sender(address, credit=False)
        self.sender.wait_credit(timeout=CONVERGENCE)
        self.accepted: list[int] = []
        self.others: list[tuple[int, str | None]] = []
        self.received: list[int] = []
        self._stop = threading.Event()
        self._over = threading.Event()  # set after the last message
        self._error: BaseException | None = None
        self._threads = [threading.Thread(target=self._run, args=(work,)) for work in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again where the test waits
            self._error = error
            self._stop.set()
        finally:
            if work == self._send:
                self._over.set()

    def _send(self) -> None:
        number = 0
        while not self._stop.is_set():
            self.sender.wait_credit(timeout=CONVERGENCE)
            outcome = self.sender.outcome(self.sender.send(message.message(number)), timeout=CONVERGENCE)
            if outcome.name == "accepted":
                self.accepted.append(number)
            else:
                self.others.append((number, outcome.name))
            number += 1
        self.sender_peer.drop()

    def _receive(self) -> None:
        while not self._over.is_set():
            try:
                delivery = self.receiver.next(timeout=0.2)
            except AssertionError:
                continue  # check whether to stop
            self.received.append(message.body(delivery.payload))
            delivery.settle()
            self.receiver.flow(100)

    def wait_more(self, count: int = 20) -> None:
        """Wait until `count` further messages were accepted."""
        goal = len(self.accepted) + count
        poll(lambda: self._error is not None or len(self.accepted) >= goal, f"{count} more messages", CONVERGENCE)
        assert self._error is None, self._error

    def stop(self, *, late: bool = False) -> None:
        """Stop, and check that each accepted message has arrived exactly once and in order.

        late: messages that were not accepted may arrive out of order, because some still travel on an old path.
        """
        self._stop.set()
        for thread in self._threads:
            thread.join(CONVERGENCE)
        self.receiver_peer.drop()
        assert self._error is None, self._error
        assert set(self.accepted) <= set(self.received)
        assert len(set(self.received)) == len(self.received), "some have come twice"
        accepted = set(self.accepted)
        kept = [number for number in self.received if not late or number in accepted]
        wrong = [pair for pair in pairwise(kept) if pair[0] >= pair[1]]
        assert not wrong, f"{wrong} have come out of order; not accepted: {self.others}"
        assert {name for _, name in self.others} <= {"modified", "released"}
