"""Configuration and management views of interior routers that accept edge routers, and of edge routers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.peer.peer import AmqpPeer
from tests.system.bystanders.harness import BystanderHarness
from tests.system.networks import CONVERGENCE, RouterView, connector, interior
from tests.system.router import RouterProcess, Section, listener, poll

#: Names of listeners.
BROKERS = "brokers"
EDGES = "edges"
PEERS = "peers"


def with_edges(name: str, *to: int, **attributes: Any) -> list[Section]:
    """Return the sections of an interior router for edge routers and brokers, with connectors to the ports `to`."""
    return [
        *interior(name, None, to, **attributes),
        listener(EDGES, role="edge"),
        listener(BROKERS, role="route-container"),
    ]


def edge(name: str, *interiors: RouterProcess, **attributes: Any) -> list[Section]:
    """Return the sections of an edge router that connects to `interiors`, in this order."""
    return [
        ("router", {"mode": "edge", "id": name, **attributes}),
        listener(),
        listener(BROKERS, role="route-container"),
        *(connector(router.ports[EDGES], role="edge") for router in interiors),
    ]


def peer_edge(name: str, *interiors: RouterProcess, to: Iterable[int] = (), **attributes: Any) -> list[Section]:
    """Return the sections of an edge router that accepts other edge routers and connects to the ports `to`."""
    return [
        *edge(name, *interiors, **attributes),
        listener(PEERS, role="inter-edge"),
        *(connector(port, role="inter-edge") for port in to),
    ]


class EdgeView(RouterView):
    """The network as one router reports it, with edge routers and consumers."""

    def peers(self) -> list[str]:
        """Return the container ids of the connected edge routers, one for each connection."""
        return sorted(row["container"] for row in self.query("connection") if row["role"] == "inter-edge")

    def wait_peers(self, *names: str) -> None:
        """Wait until the router is connected to exactly these edge routers."""
        poll(lambda: self.peers() == sorted(names), f"connected to {names}", CONVERGENCE)

    def consumers(self, key: str) -> int:
        """Return the number of local consumers of an address."""
        row = self.address(key)
        return 0 if row is None else int(row["subscriberCount"])

    def wait_consumers(self, key: str, count: int) -> None:
        """Wait until an address has `count` local consumers."""
        poll(lambda: self.consumers(key) == count, f"{key} has {count} consumers", CONVERGENCE)

    def containers(self, key: str) -> int:
        """Return the number of local containers of a link route's address."""
        row = self.address(key)
        return 0 if row is None else int(row["containerCount"])

    def wait_containers(self, key: str, count: int) -> None:
        """Wait until a link route's address has `count` local containers."""
        poll(lambda: self.containers(key) == count, f"{key} has {count} containers", CONVERGENCE)


class EdgeNetwork:
    """Routers by their ids, peers connected to them, and bystanders of one router after `attend`."""

    def __init__(self) -> None:
        self.routers: dict[str, RouterProcess] = {}
        self._bystanders: BystanderHarness | None = None
        self._peers: list[AmqpPeer] = []
        self._numbers = 0

    def view(self, name: str) -> EdgeView:
        return EdgeView(self.routers[name])

    def connect(self, name: str, **fields: Any) -> AmqpPeer:
        peer = AmqpPeer.opened(self.routers[name].port, **fields)
        self._peers.append(peer)
        return peer

    def fresh(self, prefix: str = "") -> str:
        """Return an address that no test has used."""
        self._numbers += 1
        return f"{prefix}e{self._numbers}"

    def drop(self) -> None:
        for peer in self._peers:
            peer.drop()
        self._peers.clear()

    def start_bystanders(self, name: str, other: str) -> None:
        """Start bystanders of router `name`. Two pairs also use router `other`. Both have `clients_sections`."""
        router = self.routers[name]
        self._bystanders = BystanderHarness(router, router.directory, other=self.routers[other])

    def check(self) -> None:
        """Raise AssertionError if the bystanders were disturbed; in this case the next test starts new ones."""
        assert self._bystanders is not None
        self._bystanders.start()
        self._bystanders.check()

    def stop(self) -> None:
        """Stop the bystanders and the routers."""
        if self._bystanders is not None:
            self._bystanders.stop()
        for router in self.routers.values():
            router.stop()

    def wait_reached(self, *edges: str) -> None:
        """Wait until all interior routers reach these edge routers."""
        for name, router in self.routers.items():
            if name in edges:
                continue
            view = EdgeView(router)
            for other in edges:

                def known(view: EdgeView = view, key: str = f"H{other}") -> bool:
                    row = view.address(key)
                    return row is not None and bool(row["subscriberCount"] or row["remoteCount"])

                poll(known, f"{name} reaches {other}", CONVERGENCE)

    def wait_reachable(self, peer: AmqpPeer, address: str) -> None:
        """Wait until a sender of this client gets credit for an address.

        From then on the client's worker has a path to the address, and forwards anonymous messages as well.
        """
        probe = peer.sender(address, credit=False)
        probe.wait_credit(timeout=CONVERGENCE)
        probe.detach()
