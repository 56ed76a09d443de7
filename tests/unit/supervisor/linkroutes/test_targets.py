"""Targets of routed links: local containers, and next hops to other routers (inter-router.md 12)."""

from typing import Any

import pytest

from sluice.router.addressing.settings import AddressSettings
from sluice.router.config.entities import LinkRouteConfig
from sluice.router.log import ProcessLog
from sluice.supervisor.connections.containers import Containers
from sluice.supervisor.linkroutes.local import LocalLinkRoutes
from sluice.supervisor.linkroutes.remote import RemoteLinkRoutes
from sluice.supervisor.linkroutes.targets import LinkNextHop, LinkTargets
from sluice.supervisor.links.attach import (
    ANONYMOUS,
    NO_COORDINATOR,
    NO_EXPIRATION,
    NO_ROUTE,
    WRONG_ROLE,
    AttachAccepted,
    AttachDecider,
    AttachRefused,
    AttachRouted,
)
from sluice.supervisor.runtime.waker import Waker
from tests.unit.supervisor.harness import attach
from tests.unit.supervisor.journaled_table import JournaledTable


class FakeTargetConnection:
    """Stand-in for a connection, with the attributes that routing reads."""

    def __init__(self, number: int, container: str) -> None:
        self.number = number
        self.container = container
        self.closing = False


class FakeTargetNetwork:
    """Fake network with routers A (this one), B, C and D. Connection 20 leads to B, connections 30 and 31 to C."""

    def __init__(self) -> None:
        self.link_routes = RemoteLinkRoutes()
        self.ids = {1: "B", 2: "C", 3: "D"}
        self.links = {1: (20,), 2: (30, 31), 3: (20,)}
        self.connections = {
            20: FakeTargetConnection(20, "B"),
            30: FakeTargetConnection(30, "C"),
            31: FakeTargetConnection(31, "C"),
        }
        self.ours = True

    def id_of(self, index: int) -> str | None:
        return self.ids.get(index)

    def links_of(self, index: int) -> tuple[int, ...]:
        return self.links[index]

    def end(self, number: int) -> Any:
        connection = self.connections.get(number)
        return None if connection is None else (connection, self.ours)


class RoutedLinkRouter:
    def __init__(self) -> None:
        self.network = FakeTargetNetwork()
        self.local = LocalLinkRoutes(Containers(), Waker(), ProcessLog())
        self._targets: Any = LinkTargets("A", self.local, self.network, self.network.end)
        self.attaching = self._decider()

    def _decider(self, **options: Any) -> AttachDecider:
        settings = AddressSettings([], "balanced")
        return AttachDecider("A", "interior", settings, JournaledTable().table, self._targets, **options)

    def without_resumable_links(self) -> AttachDecider:
        """Return the decider of a router with `allowResumableLinkRoute: no`."""
        return self._decider(resumable=False)

    def announce(self, key: str, *routers: int) -> None:
        for index in routers:
            self.network.link_routes.add(key, index)

    def serve(self, prefix: str, *connections: FakeTargetConnection) -> None:
        """Add a link route of this router, active for these connections."""
        self.local.replace((route(prefix),))
        address = self.local.match("in", prefix)
        assert address is not None
        for connection in connections:
            address.serve(connection)  # type: ignore[arg-type]

    def decide(self, address: str | None, conn: int = 1, **more: Any) -> Any:
        role, usable = ("inter-router", True) if conn in self.network.connections else ("normal", False)
        return self.attaching.decide(attach(1, "in", address, conn=conn, **more), role, usable)

    def next_hop(self, address: str | None, conn: int = 1, **more: Any) -> tuple[int, list[str]]:
        """Return the connection and the route of a link to another router."""
        decision = self.decide(address, conn, **more)
        assert isinstance(decision, AttachRouted), decision
        assert decision.hop is not None
        return decision.connection.number, decision.hop.route


def route(prefix: str) -> LinkRouteConfig:
    return LinkRouteConfig(
        name=prefix, identity=prefix, prefix=prefix, pattern=None, direction="in", container_id="broker",
        connection=None, add_prefix=None, delete_prefix=None,
    )  # fmt: skip


@pytest.fixture
def router():
    return RoutedLinkRouter()


def test_routers_take_turns_by_index(router):
    router.announce("Clr", 3, 1)
    assert [router.next_hop("lr.a")[1] for _ in range(3)] == [["B", "A"], ["D", "A"], ["B", "A"]]
    router.announce("Clr", 2)
    assert [router.next_hop("lr")[1][0] for _ in range(4)] == ["C", "D", "B", "C"]
    router.network.links[2] = ()
    assert [router.next_hop("lr")[1][0] for _ in range(3)] == ["D", "B", "D"], "an unreachable router is skipped"
    router.network.link_routes.forget(1)
    router.network.link_routes.forget(3)
    assert router.decide("lr") is NO_ROUTE


# brokers-and-edge.md LR-8, LR-28.
def test_link_route_of_other_direction_is_ignored(router):
    router.announce("Dlr", 1)
    assert router.decide("lr.a").record.key == "M0lr.a"
    router.announce("Clr", 1)
    assert router.next_hop("lr.a") == (20, ["B", "A"])
    del router.network.connections[20]
    assert router.decide("lr.a") is NO_ROUTE, "the connection is lost, but the protocol does not know yet"


def test_closing_connection_is_no_target(router):
    router.announce("Clr", 1)
    router.network.connections[20].closing = True
    assert router.decide("lr.a") is NO_ROUTE


def test_links_of_connection_use_one_bundle_member(router):
    router.announce("Clr", 2)
    used = {conn: {router.next_hop("lr.a", conn)[0] for _ in range(4)} for conn in range(100, 130)}
    assert all(len(each) == 1 for each in used.values())
    assert set().union(*used.values()) == {30, 31}
    before = dict(used)
    del router.network.connections[31]
    for conn, each in before.items():
        assert router.next_hop("lr.a", conn)[0] == 30
        assert each in ({30}, {31})


# brokers-and-edge.md LR-10.
def test_local_containers_come_first(router):
    broker = FakeTargetConnection(5, "broker")
    router.announce("Clr", 1)
    router.serve("lr", broker)
    for _ in range(2):
        decision = router.decide("lr.a")
        assert (decision.connection, decision.hop) == (broker, None)
    broker.closing = True
    assert router.next_hop("lr.a") == (20, ["B", "A"])


@pytest.mark.parametrize(("key", "address", "here"), [("Elr.*.x", "lr.1.x", False), ("Elr.*.x", "lr.1.y", True)])
def test_best_pattern_wins_across_routers(router, key, address, here):
    router.serve("lr", FakeTargetConnection(5, "broker"))
    router.announce(key, 1)
    assert (router.decide(address).hop is None) == here


# brokers-and-edge.md LR-10a.
def test_attach_of_container_may_reach_the_container_itself(router):
    broker = FakeTargetConnection(5, "broker")
    router.serve("lr", broker)
    assert router.decide("lr.a", conn=5).connection is broker


# brokers-and-edge.md LR-12.
@pytest.mark.parametrize(("terminus", "refused"), [({"timeout": 1}, True), ({"expiry": "never"}, True), ({}, False)])
def test_link_that_outlives_its_connection_is_refused_if_not_allowed(router, terminus, refused):
    router.serve("lr", FakeTargetConnection(5, "broker"))
    assert isinstance(router.decide("lr.a", **terminus), AttachRouted)
    router.attaching = router.without_resumable_links()
    assert (router.decide("lr.a", **terminus) is NO_EXPIRATION) == refused
    assert router.decide("other", **terminus).record.key == "M0other", "message-routed links are not affected"


def test_better_pattern_without_container_is_no_route(router):
    router.serve("lr.special")
    router.announce("Clr", 1)
    assert router.decide("lr.special.a") is NO_ROUTE
    assert router.next_hop("lr.a") == (20, ["B", "A"])


# brokers-and-edge.md LR-9.
def test_prefixes_come_from_router_with_container(router):
    router.announce("Clr", 1)
    decision = router.decide("amqp:/lr.a")
    assert (decision.address, decision.remove, decision.put) == (None, "", "")
    router.announce("Cacme.com.lr", 1)
    assert router.decide("lr.a", tenant="acme.com/").address == "acme.com/lr.a"


def test_links_of_other_routers_are_forwarded(router):
    router.announce("Clr", 1, 2)
    broker = FakeTargetConnection(5, "broker")
    connection, trace = router.next_hop("lr.a", 20)
    assert connection in (30, 31), "either connection to C"
    assert trace == ["C", "A"]
    router.serve("lr", broker)
    decided = router.decide("lr.a", 20)
    assert decided.route.key == "Clr"
    assert decided._replace(route=None) == AttachRouted(broker, None, "", "")  # type: ignore[arg-type]


def test_links_keep_route_of_first_router(router):
    router.announce("Clr", 1, 2, 3)
    router.network.links[3] = (30, 31)
    for _ in range(3):
        connection, route_taken = router.next_hop("lr.a", 20, route=["D", "X", "B"])
        assert (connection in (30, 31), route_taken) == (True, ["D", "X", "B", "A"])
    router.network.link_routes.forget(3)
    assert router.next_hop("lr.a", 20, route=["D", "X", "B"])[1] == ["C", "X", "B", "A"]


def test_routed_links_do_not_loop(router):
    router.announce("Clr", 1, 3)
    assert router.decide("lr.a", 20) is NO_ROUTE, "both routes lead back to B"
    router.announce("Clr", 2)
    assert router.decide("lr.a", 20, route=["C", "A", "B"]) is NO_ROUTE, "the link has passed this router"
    assert router.decide("lr.a", 20, route=["B", "C"]) is NO_ROUTE, "the link has passed all of them"
    del router.network.connections[30], router.network.connections[31]
    assert router.decide("lr.a", 20) is NO_ROUTE


def test_routers_of_1_19_get_their_own_hop(router):
    router.announce("Clr", 1)
    router.network.ours = False
    assert router.decide("lr.a").hop == LinkNextHop(False, ["B", "A"])


def test_attaches_of_routers_need_link_route(router):
    refused = (router.decide("a", 20), router.decide(None, 20, dynamic=True), router.decide("", 20, dir="out"))
    assert refused == (NO_ROUTE,) * 3
    assert router.decide(None, 20) is ANONYMOUS
    assert router.attaching.decide(attach(1, "in", "lr.a", conn=20), "inter-router", usable=False) is WRONG_ROLE


def test_coordinators_and_dynamic_nodes_are_routed(router):
    assert router.decide(None, coordinator=True) is NO_COORDINATOR
    router.announce("C$coordinator", 1)
    router.announce("Clr", 1)
    assert router.next_hop(None, coordinator=True, tenant="acme.com/") == (20, ["B", "A"])
    assert router.next_hop(None, dynamic=True, dynamic_address="lr.new") == (20, ["B", "A"])
    assert isinstance(router.decide(None, dynamic=True, dynamic_address="other"), AttachRefused)


@pytest.mark.parametrize("here", [True, False])
def test_dynamic_node_of_tenant_has_prefix(router, here):
    router.serve("acme.com.lr", *([FakeTargetConnection(5, "broker")] if here else []))
    router.announce("Cacme.com.lr", 1)
    decision = router.decide(None, dynamic=True, dynamic_address="/lr.new", tenant="acme.com/")
    assert (decision.address, decision.remove, decision.put) == ("acme.com/lr.new", "", "")
    assert (decision.hop is None) == here


def test_address_attached_before_follows_added_and_removed_link_routes(router):
    assert isinstance(router.decide("lr.a"), AttachAccepted)
    router.announce("Clr", 1)
    assert router.next_hop("lr.a") == (20, ["B", "A"])
    router.network.link_routes.remove("Clr", 1)
    assert isinstance(router.decide("lr.a"), AttachAccepted)
    router.serve("lr", FakeTargetConnection(5, "broker"))
    assert router.decide("lr.a").connection.number == 5
