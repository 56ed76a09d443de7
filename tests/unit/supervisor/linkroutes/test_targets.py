"""Targets of routed links: local containers, and next hops to other routers (inter-router.md 12)."""

from typing import Any

import pytest

from router.addressing.settings import AddressSettings
from router.config.entities import LinkRouteConfig
from router.log import Log
from supervisor.addresses.table import Table
from supervisor.connections.containers import Containers
from supervisor.linkroutes.local import LinkRoutes
from supervisor.linkroutes.remote import RemoteLinkRoutes
from supervisor.linkroutes.targets import NextHop, Targets
from supervisor.links.attach import ANONYMOUS, NO_COORDINATOR, NO_ROUTE, WRONG_ROLE, Attaching, Refused, Routed
from tests.unit.supervisor.harness import attach


class Connection:
    """Stand-in for a connection, with the attributes that routing reads."""

    def __init__(self, number: int, container: str) -> None:
        self.number = number
        self.container = container
        self.closing = False


class Network:
    """Fake network with routers A (this one), B, C and D. Connection 20 leads to B, connections 30 and 31 to C."""

    def __init__(self) -> None:
        self.link_routes = RemoteLinkRoutes()
        self.ids = {1: "B", 2: "C", 3: "D"}
        self.links = {1: (20,), 2: (30, 31), 3: (20,)}
        self.connections = {20: Connection(20, "B"), 30: Connection(30, "C"), 31: Connection(31, "C")}
        self.ours = True

    def id_of(self, index: int) -> str | None:
        return self.ids.get(index)

    def links_of(self, index: int) -> tuple[int, ...]:
        return self.links[index]

    def end(self, number: int) -> Any:
        connection = self.connections.get(number)
        return None if connection is None else (connection, self.ours)


class World:
    def __init__(self) -> None:
        self.network = Network()
        self.local = LinkRoutes(Containers(), Log())
        targets: Any = Targets("A", self.local, self.network, self.network.end)
        self.attaching = Attaching("A", "interior", AddressSettings([], "balanced"), Table(100), targets)

    def announce(self, key: str, *routers: int) -> None:
        for index in routers:
            self.network.link_routes.add(key, index)

    def serve(self, prefix: str, *connections: Connection) -> None:
        """Add a link route of this router, active for these connections."""
        self.local.replace((route(prefix),))
        address = self.local.match("in", prefix)
        assert address is not None
        for connection in connections:
            address.serve(connection)  # type: ignore[arg-type]

    def decide(self, address: str | None, conn: int = 1, **more: Any) -> Any:
        role, usable = ("inter-router", True) if conn in self.network.connections else ("normal", False)
        return self.attaching.decide(attach(1, "in", address, conn=conn, **more), role, usable)

    def goes(self, address: str | None, conn: int = 1, **more: Any) -> tuple[int, list[str]]:
        """Return the connection and the route of a link to another router."""
        decision = self.decide(address, conn, **more)
        assert isinstance(decision, Routed), decision
        assert decision.hop is not None
        return decision.connection.number, decision.hop.route


def route(prefix: str) -> LinkRouteConfig:
    return LinkRouteConfig(
        name=prefix, identity=prefix, prefix=prefix, pattern=None, direction="in", container_id="broker",
        connection=None, add_prefix=None, delete_prefix=None,
    )  # fmt: skip


@pytest.fixture
def world():
    return World()


def test_routers_take_turns_in_the_order_of_their_indexes(world):
    world.announce("Clr", 3, 1)
    assert [world.goes("lr.a")[1] for _ in range(3)] == [["B", "A"], ["D", "A"], ["B", "A"]]
    world.announce("Clr", 2)
    assert [world.goes("lr")[1][0] for _ in range(4)] == ["C", "D", "B", "C"]
    world.network.links[2] = ()
    assert [world.goes("lr")[1][0] for _ in range(3)] == ["D", "B", "D"], "who cannot be reached is passed over"
    world.network.link_routes.forget(1)
    world.network.link_routes.forget(3)
    assert world.decide("lr") is NO_ROUTE


def test_no_other_direction_and_nobody_there(world):
    world.announce("Dlr", 1)
    assert world.decide("lr.a").record.key == "M0lr.a"
    world.announce("Clr", 1)
    assert world.goes("lr.a") == (20, ["B", "A"])
    del world.network.connections[20]
    assert world.decide("lr.a") is NO_ROUTE, "the way has been lost, which the protocol does not know yet"


def test_a_connection_that_is_closed_is_none(world):
    world.announce("Clr", 1)
    world.network.connections[20].closing = True
    assert world.decide("lr.a") is NO_ROUTE


def test_links_of_one_connection_keep_to_one_of_a_bundle(world):
    world.announce("Clr", 2)
    used = {conn: {world.goes("lr.a", conn)[0] for _ in range(4)} for conn in range(100, 130)}
    assert all(len(each) == 1 for each in used.values())
    assert set().union(*used.values()) == {30, 31}
    before = dict(used)
    del world.network.connections[31]
    for conn, each in before.items():
        assert world.goes("lr.a", conn)[0] == 30
        assert each in ({30}, {31})


def test_containers_that_are_here_come_first(world):
    broker = Connection(5, "broker")
    world.announce("Clr", 1)
    world.serve("lr", broker)
    for _ in range(2):
        decision = world.decide("lr.a")
        assert (decision.connection, decision.hop) == (broker, None)
    broker.closing = True
    assert world.goes("lr.a") == (20, ["B", "A"])


@pytest.mark.parametrize(("key", "address", "here"), [("Elr.*.x", "lr.1.x", False), ("Elr.*.x", "lr.1.y", True)])
def test_the_best_pattern_of_all_counts(world, key, address, here):
    world.serve("lr", Connection(5, "broker"))
    world.announce(key, 1)
    assert (world.decide(address).hop is None) == here


def test_a_better_pattern_that_nobody_serves(world):
    world.serve("lr.special")
    world.announce("Clr", 1)
    assert world.decide("lr.special.a") is NO_ROUTE
    assert world.goes("lr.a") == (20, ["B", "A"])


def test_prefixes_are_those_of_the_router_that_has_the_container(world):
    world.announce("Clr", 1)
    decision = world.decide("amqp:/lr.a")
    assert (decision.address, decision.remove, decision.put) == (None, "", "")
    world.announce("Cacme.com.lr", 1)
    assert world.decide("lr.a", tenant="acme.com/").address == "acme.com/lr.a"


def test_of_other_routers_links_go_on(world):
    world.announce("Clr", 1, 2)
    broker = Connection(5, "broker")
    connection, trace = world.goes("lr.a", 20)
    assert connection in (30, 31), "either connection to C"
    assert trace == ["C", "A"]
    world.serve("lr", broker)
    assert world.decide("lr.a", 20) == Routed(broker, None, "", "")  # type: ignore[arg-type]


def test_links_keep_the_way_that_the_first_router_has_chosen(world):
    world.announce("Clr", 1, 2, 3)
    world.network.links[3] = (30, 31)
    for _ in range(3):
        connection, way = world.goes("lr.a", 20, route=["D", "X", "B"])
        assert (connection in (30, 31), way) == (True, ["D", "X", "B", "A"])
    world.network.link_routes.forget(3)
    assert world.goes("lr.a", 20, route=["D", "X", "B"])[1] == ["C", "X", "B", "A"]


def test_links_do_not_go_round(world):
    world.announce("Clr", 1, 3)
    assert world.decide("lr.a", 20) is NO_ROUTE, "both ways lead back to B"
    world.announce("Clr", 2)
    assert world.decide("lr.a", 20, route=["C", "A", "B"]) is NO_ROUTE, "it has been here"
    assert world.decide("lr.a", 20, route=["B", "C"]) is NO_ROUTE, "it has been at all of them"
    del world.network.connections[30], world.network.connections[31]
    assert world.decide("lr.a", 20) is NO_ROUTE


def test_other_routers_get_what_they_know(world):
    world.announce("Clr", 1)
    world.network.ours = False
    assert world.decide("lr.a").hop == NextHop(False, ["B", "A"])


def test_what_other_routers_attach_without_a_link_route(world):
    refused = (world.decide("a", 20), world.decide(None, 20, dynamic=True), world.decide("", 20, dir="out"))
    assert refused == (NO_ROUTE,) * 3
    assert world.decide(None, 20) is ANONYMOUS
    assert world.attaching.decide(attach(1, "in", "lr.a", conn=20), "inter-router", usable=False) is WRONG_ROLE


def test_coordinators_and_dynamic_nodes(world):
    assert world.decide(None, coordinator=True) is NO_COORDINATOR
    world.announce("C$coordinator", 1)
    world.announce("Clr", 1)
    assert world.goes(None, coordinator=True, tenant="acme.com/") == (20, ["B", "A"])
    assert world.goes(None, dynamic=True, dynamic_address="lr.new") == (20, ["B", "A"])
    assert isinstance(world.decide(None, dynamic=True, dynamic_address="other"), Refused)


@pytest.mark.parametrize("here", [True, False])
def test_a_dynamic_node_of_a_tenant_has_the_tenants_prefix_everywhere(world, here):
    world.serve("acme.com.lr", *([Connection(5, "broker")] if here else []))
    world.announce("Cacme.com.lr", 1)
    decision = world.decide(None, dynamic=True, dynamic_address="/lr.new", tenant="acme.com/")
    assert (decision.address, decision.remove, decision.put) == ("acme.com/lr.new", "", "")
    assert (decision.hop is None) == here
