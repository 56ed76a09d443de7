"""Networks of the tests: routers under test run in processes of their own, routers of 1.19 in a thread of the test."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.peer import message
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.route_container import RouteContainer
from tests.peer.router19.connection import InterRouterConnection
from tests.peer.router19.engine import Router19Timers
from tests.peer.router19.loop import Router19Loop
from tests.peer.router19.paths import compute
from tests.peer.router19.router import Router19
from tests.system.router import SETTINGS, RouterProcess, Section, listener, poll

#: Seconds for a network to converge: several intervals of HELLO on a busy machine.
CONVERGE = 20.0
#: Address settings of all routers under test.
ADDRESSES: list[Section] = [
    *SETTINGS,
    ("address", {"prefix": "wp", "waypoint": True}),
    ("address", {"prefix": "fb", "enableFallback": True}),
    ("address", {"prefix": "urgent", "distribution": "balanced", "priority": 8}),
]
#: Distribution by address prefix, for routers of 1.19.
TREATMENTS = {name: name for name in ("closest", "balanced", "multicast")}
#: Timers of a 1.19 router that sends HELLO often, so that the router under test is the slower of both.
QUICK = Router19Timers(tick=0.1, hello_interval=0.2, ra_interval=2.0, ra_flux=0.5)
#: Seconds of silence until a neighbour is lost, in tests of other things: the machine may be busy.
PATIENCE = 15
PATIENT = dataclasses.replace(QUICK, hello_max_age=float(PATIENCE))


class Sluice:
    """Interior router under test.

    Its listeners are an unnamed one for clients, `plain` without stripping, `ir` for routers, and `rc` for route
    containers.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        workers: int,
        sections: Iterable[Section] = (),
        to: Iterable[tuple[int, int]] = (),
        **attributes: Any,
    ) -> None:
        """Start the router. `to` has (port, cost) of routers to connect to; `attributes` go into the router section."""
        self.name = name
        given = {"mode": "interior", "id": name, "raIntervalFluxSeconds": 1, **attributes}
        self.router = RouterProcess(
            folder,
            [
                ("router", given),
                listener(idleTimeoutSeconds=120),
                listener("plain", idleTimeoutSeconds=120, stripAnnotations="no"),
                listener("ir", role="inter-router"),
                listener("rc", role="route-container", idleTimeoutSeconds=120),
                *ADDRESSES,
                *(connector(port, cost) for port, cost in to),
                *sections,
            ],
            workers,
        )
        self.peers: list[AmqpPeer] = []
        self.router.start()

    @property
    def ports(self) -> dict[str, int]:
        """Ports by name of the listener."""
        return self.router.ports

    def client(self, listener_name: str = "", **fields: Any) -> AmqpPeer:
        """Connect a client. Keywords are fields of its open frame."""
        peer = AmqpPeer.opened(self.ports[listener_name], **fields)
        self.peers.append(peer)
        return peer

    def container(self, container_id: str = "broker") -> RouteContainer:
        """Connect a route container to the router."""
        peer = RouteContainer.connected(self.ports["rc"], container_id)
        self.peers.append(peer)
        return peer

    def management(self, address: str = "$management") -> Management:
        """Connect a management client."""
        return Management(self.client(), address)

    def rows(self, kind: str) -> list[dict[str, Any]]:
        """Query the rows of an entity type."""
        management = self.management()
        try:
            return management.query(kind)
        finally:
            management.peer.drop()

    def wait_rows(
        self, kind: str, condition: Any, what: str, timeout: float = CONVERGE, attributes: tuple[str, ...] = ()
    ) -> list[dict[str, Any]]:
        """Wait until the rows of a type satisfy `condition`; return them. `attributes` selects columns."""
        management = self.management()

        def fitting() -> list[dict[str, Any]] | None:
            rows = management.query(kind, *attributes)
            return rows if condition(rows) else None

        try:
            found: list[dict[str, Any]] = poll(fitting, f"{what} at {self.name}", timeout)
        except AssertionError as error:
            rows = "\n".join(map(str, management.query(kind, *attributes)))
            raise AssertionError(f"{error}; rows of {kind}:\n{rows}") from None
        finally:
            management.peer.drop()
        return found

    def node(self, router_id: str) -> dict[str, Any] | None:
        """Return the row of router.node for a router, None if it is unknown."""
        return next((row for row in self.rows("router.node") if row["id"] == router_id), None)

    def wait_nodes(self, *router_ids: str, timeout: float = CONVERGE) -> dict[str, dict[str, Any]]:
        """Wait until exactly these other routers are known and have paths; return all rows by id."""

        def known(rows: list[dict[str, Any]]) -> bool:
            others = {row["id"]: row for row in rows if row["id"] != self.name}
            return set(others) == set(router_ids) and all(row["cost"] for row in others.values())

        rows = self.wait_rows("router.node", known, f"nodes are {router_ids}", timeout)
        return {row["id"]: row for row in rows}

    def address(self, key: str) -> dict[str, Any] | None:
        """Return the row of router.address with a key, None if there is none."""
        return next((row for row in self.rows("router.address") if row["key"] == key), None)

    def wait_remote(self, key: str, *router_ids: str, timeout: float = CONVERGE) -> None:
        """Wait until exactly these routers are known, in each worker, to have destinations for an address key."""

        def known(rows: list[dict[str, Any]]) -> bool:
            found = next((row for row in rows if row["key"] == key), None)
            return set(found["remoteHostRouters"] or () if found else ()) == set(router_ids)

        wanted = ("key", "remoteHostRouters")
        self.wait_rows("router.address", known, f"{key} announced by {router_ids}", timeout, wanted)
        # The attach of a consumer is answered when each worker has a table with all changes made before the attach.
        barrier = self.client()
        barrier.receiver(dynamic=True)
        barrier.drop()

    def drop_peers(self) -> None:
        """Drop the connections of all clients."""
        for peer in self.peers:
            peer.drop()
        self.peers.clear()

    def stop(self) -> None:
        """Stop the router, with all checks. Does no checks after the test has killed it."""
        self.drop_peers()
        if self.router.alive:
            self.router.stop()
        else:
            self.router.kill()


def connector(port: int, cost: int = 1, **attributes: Any) -> Section:
    """Return a connector to another router."""
    given = {"name": f"to-{port}", "host": "127.0.0.1", "port": port, "role": "inter-router", "cost": cost}
    return "connector", {**given, **attributes}


class InteropNetwork:
    """Network of routers under test and routers of 1.19, which are stopped together."""

    def __init__(self, router19_loop: Router19Loop, folder: Path, workers: int) -> None:
        self.world = router19_loop
        self.folder = folder
        self.workers = workers
        self.sluices: list[Sluice] = []
        self.routers19: list[Router19] = []
        self._numbers = itertools.count()

    def sluice(
        self, name: str, sections: Iterable[Section] = (), to: Iterable[tuple[int, int]] = (), **attributes: Any
    ) -> Sluice:
        """Start a router under test."""
        attributes.setdefault("helloMaxAgeSeconds", PATIENCE)
        folder = self.folder / f"{name}-{next(self._numbers)}"
        folder.mkdir()
        made = Sluice(folder, name, self.workers, sections, to, **attributes)
        self.sluices.append(made)
        return made

    def router19(self, name: str, timers: Router19Timers = PATIENT, **keywords: Any) -> Router19:
        """Start a router of 1.19."""
        keywords.setdefault("addresses", TREATMENTS)
        keywords.setdefault("fallbacks", ("fb",))
        made = Router19(self.world, name, timers, **keywords)
        self.routers19.append(made)
        return made

    def wait_converged(self) -> None:
        """Wait until each router knows all others and their link states: only then are valid origins right."""
        names = {one.name for one in self.sluices} | {one.id for one in self.routers19}
        for sluice in self.sluices:
            sluice.wait_nodes(*(names - {sluice.name}))
            sluice.wait_rows("router.node", lambda rows: all(row["linkState"] for row in rows), "all link states")
        for original in self.routers19:
            self._known(original, names - {original.id})

    def _known(self, original: Router19, others: set[str]) -> None:
        """Wait until a 1.19 router has the link states of all others, and has computed paths with them."""
        nodes = original.engine.nodes

        def known() -> bool:
            states = {one.id: one.peers for one in nodes.values() if one.peers}
            computed = compute(original.id, {**states, original.id: original.engine.peers})
            return set(states) == others and original.engine.paths == computed

        self.world.wait(known, f"{original.id} knows {others}", CONVERGE)

    def stop(self) -> None:
        """Stop all routers. Raises the first error after all have been stopped."""
        errors: list[BaseException] = []
        for sluice in self.sluices:
            try:
                sluice.stop()
            except AssertionError as error:
                errors.append(error)
        for original in self.routers19:
            original.stop()
        if errors:
            raise errors[0]


def full_mesh(count: int, rows: list[dict[str, Any]]) -> bool:
    """True if rows of router.node show `count` fully connected routers, with paths computed from that state.

    Link states are known before paths are computed with them; until then no router can tell which copies are redundant.
    """
    others = [row for row in rows if row["nextHop"] != "(self)"]
    return (
        len(rows) == count
        and all(len(row["linkState"]) == count - 1 and row["validOrigins"] == [] for row in rows)
        and all(row["nextHop"] is None for row in others)
    )


def router_annotations(payload: bytes) -> dict[str, Any]:
    """Return the router annotations of a message, by name without the prefix."""
    found = message.annotations_of(payload)
    if found is None:
        return {}
    return {str(key)[9:]: value for key, value in found.items() if str(key).startswith("x-opt-qd.")}


__all__ = [
    "CONVERGE",
    "QUICK",
    "InterRouterConnection",
    "InteropNetwork",
    "Sluice",
    "connector",
    "full_mesh",
    "router_annotations",
]
