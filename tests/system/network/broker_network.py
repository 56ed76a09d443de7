"""A network of several routers, with listeners for clients, brokers and each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.route_container import RouteContainer
from tests.system.fixtures import Start
from tests.system.router import RouterProcess, Section, listener, poll

#: Seconds for a change to reach the whole network.
CONVERGED = 20.0


class BrokerNetwork:
    """Routers by their ids. Every router but the first is started with connectors to earlier routers."""

    def __init__(self, start: Start, workers: int, peers: list[AmqpPeer]) -> None:
        self.routers: dict[str, RouterProcess] = {}
        self.workers = workers
        self.peers = peers
        self._start = start
        self._sections: dict[str, list[Section]] = {}
        self._management: dict[str, Management] = {}

    def add(
        self, name: str, neighbours: Iterable[str] = (), sections: Iterable[Section] = (), **router: Any
    ) -> RouterProcess:
        """Start another router. neighbours: ids of routers to connect to; an id given twice makes two connections."""
        own: list[Section] = [
            ("router", {"id": name, "mode": "interior", **router}),
            listener("clients"),
            listener("brokers", role="route-container"),
            listener("routers", role="inter-router"),
        ]
        for number, other in enumerate(neighbours):
            port = self.routers[other].ports["routers"]
            place = {"name": f"{other}{number}", "host": "127.0.0.1", "port": port, "role": "inter-router"}
            own.append(("connector", place))
        self._sections[name] = [*own, *sections]
        started = self.routers[name] = self._start(self._sections[name], self.workers)
        return started

    def start_chain(self, names: str, sections: Mapping[str, Sequence[Section]] | None = None) -> None:
        """Start routers in a row, and wait until each reaches all others."""
        for number, name in enumerate(names):
            self.add(name, names[number - 1 : number], (sections or {}).get(name, ()))
        self.wait_converged()

    def wait_converged(self, *names: str) -> None:
        """Wait until each of the routers has a path to all others."""
        wanted = set(names or self.routers)
        for name in wanted:
            poll(lambda name=name: self.reachable_from(name) >= wanted, f"{name} reaches {wanted}", CONVERGED)  # type: ignore[misc]

    def reachable_from(self, name: str) -> set[str]:
        """Return the ids of the routers that router `name` has a path to, itself included."""
        rows = self.management(name).query("router.node")
        return {row["id"] for row in rows if row["id"] == name or row["cost"] is not None}

    def wait_announced(self, name: str, key: str, *routers: str) -> None:
        """Wait until router `name` lists exactly these routers as destinations of a key."""

        def known() -> bool:
            rows = self.management(name).query("router.address")
            return any(row["key"] == key and set(row["remoteHostRouters"] or ()) == set(routers) for row in rows) or (
                not routers and not any(row["key"] == key and row["remoteCount"] for row in rows)
            )

        poll(known, f"{name} has {key} at {routers}", CONVERGED)

    def management(self, name: str) -> Management:
        """Return the management client of a router."""
        if name not in self._management:
            self._management[name] = Management(self.client(name, "management"))
        return self._management[name]

    def client(self, name: str, container_id: str = "client", **fields: Any) -> AmqpPeer:
        """Open a client connection to a router."""
        return self._add(AmqpPeer.opened(self.routers[name].ports["clients"], container_id=container_id, **fields))

    def clients(self, name: str) -> list[AmqpPeer]:
        """Open one client connection for each worker of a router."""
        return [self.client(name, f"client{number}") for number in range(self.workers)]

    def broker(self, name: str, container_id: str = "broker") -> RouteContainer:
        """Connect a route container to a router."""
        port = self.routers[name].ports["brokers"]
        broker = RouteContainer.connected(port, container_id)
        self._add(broker)
        return broker

    def drop_peers(self) -> None:
        """Drop all clients and containers."""
        for peer in self.peers:
            peer.drop()
        self.peers.clear()
        self._management.clear()

    def _add(self, peer: AmqpPeer) -> AmqpPeer:
        self.peers.append(peer)
        return peer
