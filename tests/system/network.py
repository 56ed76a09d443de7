"""Several routers that are a network: their configuration, and waiting for what they come to know of each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.peer.management import Management
from tests.peer.peer import Peer
from tests.system.router import Router, Section, free_port, listener, poll

#: Seconds for routers to find each other, or to notice a loss, on a busy machine.
CONVERGENCE = 30.0


def interior(name: str, port: int | None = None, to: Iterable[int] = (), **attributes: Any) -> list[Section]:
    """The sections of an interior router: a listener for clients, one for routers on `port`, connectors to ports."""
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
    """A connector to the router that listens on `port`; its name is `toPORT`."""
    return "connector", {"name": f"to{port}", "role": "inter-router", "host": "127.0.0.1", "port": port, **attributes}


def ports(count: int) -> list[int]:
    """Ports for listeners that come back after a restart."""
    found: dict[int, None] = {}
    while len(found) < count:
        found[free_port()] = None
    return list(found)


class View:
    """What a router says of the network; each question on a connection of its own, which tests may keep waiting."""

    def __init__(self, router: Router, address: str = "$management") -> None:
        self.router = router
        self.address_asked = address

    def query(self, kind: str) -> list[dict[str, Any]]:
        """The rows of a type."""
        peer = Peer.opened(self.router.port)
        try:
            return Management(peer, self.address_asked).query(kind)
        finally:
            peer.drop()

    def nodes(self) -> dict[str, dict[str, Any]]:
        """The rows of router.node by id."""
        return {row["id"]: row for row in self.query("router.node")}

    def address(self, key: str) -> dict[str, Any] | None:
        """The row of an address."""
        return next((row for row in self.query("router.address") if row["key"] == key), None)

    def wait_nodes(self, **costs: int | None) -> dict[str, dict[str, Any]]:
        """Wait until exactly these other routers are known, at these costs (None: without a way)."""
        seen: dict[str, Any] = {}

        def known() -> bool:
            seen.clear()
            seen.update(self.nodes())
            return {name: row["cost"] for name, row in seen.items() if row["nextHop"] != "(self)"} == costs

        poll(known, f"the router in {self.router.directory.name} knows {costs}", CONVERGENCE)
        return seen

    def wait_remote(self, key: str, *routers: str) -> None:
        """Wait until exactly these routers are known to have destinations of an address."""

        def known() -> bool:
            row = self.address(key)
            return sorted(row["remoteHostRouters"] if row else ()) == sorted(routers)

        poll(known, f"{key} is at {routers}", CONVERGENCE)


class Two:
    """Routers A and B with a connection from B to A, and peers at them."""

    def __init__(self, a: Router, b: Router) -> None:
        self.a, self.b = a, b
        self.at_a, self.at_b = View(a), View(b)
        self._peers: list[Peer] = []
        self._numbers = 0

    def connect(self, router: Router) -> Peer:
        peer = Peer.opened(router.port)
        self._peers.append(peer)
        return peer

    def fresh(self, prefix: str = "") -> str:
        self._numbers += 1
        return f"{prefix}n{self._numbers}"

    def drop(self) -> None:
        for peer in self._peers:
            peer.drop()
        self._peers.clear()
