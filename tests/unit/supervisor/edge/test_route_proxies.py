"""Link-route proxies: requests to an interior router for the link routes of local containers."""

from __future__ import annotations

import re

import pytest

from sluice.router.config.load import load_text
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.connections.containers import Containers
from sluice.supervisor.edge.messages import ManagementAnswer
from sluice.supervisor.edge.route_proxies import NEVER, RETRY, TIMEOUT, RouteProxies
from sluice.supervisor.linkroutes.local import LinkAddress, LocalLinkRoutes
from sluice.supervisor.runtime.waker import Waker
from tests.unit.supervisor.adjustable_clock import AdjustableClock

CONFIGURATION = """
router {
    id: E
    mode: edge
}
listener {
    port: 0
    role: route-container
}
linkRoute {
    prefix: lr
    direction: in
    containerId: broker
}
linkRoute {
    pattern: a/*/b
    direction: out
    containerId: broker
}
"""
CREATED, NO_CONTENT, BAD_REQUEST, NOT_FOUND = 201, 204, 400, 404


class EdgeLinkRoutes:
    """Link routes of an edge router, with the requests to its interior router."""

    def __init__(self, clock: AdjustableClock) -> None:
        self.clock = clock
        self.configuration = load_text("router.conf", CONFIGURATION)
        self.link_routes = LocalLinkRoutes(
            Containers(), Waker(), ProcessLog(LogSettings({"DEFAULT": ModuleSettings(mask=0)}))
        )
        self.proxies = RouteProxies("E", self.link_routes, Waker())
        self.link_routes.watch_local(self.proxies.changed)
        self.link_routes.replace(self.configuration.link_routes)
        self.full = False  # the link to the interior router has no room
        self._sent: list[bytes] = []

    def attach(self) -> None:
        """Get an uplink."""
        self.proxies.use("reply", self._send)
        self.proxies.serve(True)

    def _send(self, octets: bytes) -> bool:
        if not self.full:
            self._sent.append(octets)
        return not self.full

    def addresses(self) -> list[LinkAddress]:
        return self.link_routes.addresses()

    def container(self, address: LinkAddress, number: int = 1) -> RegisteredConnection:
        """Let a container serve an address."""
        made = RegisteredConnection(number, self.configuration.listeners[0], "l", "p", "key")
        address.serve(made)
        self.proxies.changed(address)
        return made

    def leave(self, address: LinkAddress, container: RegisteredConnection) -> None:
        address.leave(container)
        self.proxies.changed(address)

    def requests(self) -> list[tuple[str, str]]:
        """Return the requests sent in a step: operation and name. The ids of their answers are in `ids`."""
        self._sent.clear()
        self.proxies.step()
        self.ids = [_found(rb"client-[0-9a-f]{24}", octets) for octets in self._sent]
        return [
            (_found(rb"CREATE|DELETE", octets), _found(rb"E/proxyLinkRoute/[\w/*]+", octets)) for octets in self._sent
        ]

    @property
    def octets(self) -> bytes:
        """The last request."""
        return self._sent[-1]

    def answer(self, status: int, identity: str | None = None) -> None:
        """Answer the last request."""
        self.proxies.answered(ManagementAnswer(self.ids[-1], status, identity))


def _found(pattern: bytes, octets: bytes) -> str:
    match = re.search(pattern, octets)
    assert match is not None
    return match.group().decode()


CREATE_LR = ("CREATE", "E/proxyLinkRoute/Clr")
DELETE_LR = ("DELETE", "E/proxyLinkRoute/Clr")


@pytest.fixture
def edge(monkeypatch: pytest.MonkeyPatch) -> EdgeLinkRoutes:
    clock = AdjustableClock()
    monkeypatch.setattr("sluice.supervisor.edge.route_proxies.time.monotonic", clock)
    return EdgeLinkRoutes(clock)


def created(edge: EdgeLinkRoutes) -> tuple[LinkAddress, RegisteredConnection]:
    """Create the first link route at the interior router. Return its address and container."""
    edge.attach()
    address = edge.addresses()[0]
    container = edge.container(address)
    assert edge.requests() == [CREATE_LR]
    edge.answer(CREATED, "37")
    assert edge.requests() == []
    return address, container


def test_link_route_exists_while_a_container_serves_it(edge: EdgeLinkRoutes) -> None:
    address, container = created(edge)
    other = RegisteredConnection(2, edge.configuration.listeners[0], "l", "p", "key")
    address.serve(other)
    edge.leave(address, container)
    assert edge.requests() == [], "another container serves it"
    edge.leave(address, other)
    assert edge.requests() == [DELETE_LR]
    assert b"37" in edge.octets, "the identity at the interior router"
    edge.answer(NO_CONTENT)
    assert edge.requests() == []
    edge.container(address)
    assert edge.requests() == [CREATE_LR]


@pytest.mark.parametrize(
    ("number", "pattern", "direction"), [(0, b"\x04lr/#", b"\x02in"), (1, b"\x05a/*/b", b"\x03out")]
)
def test_request_has_pattern_and_direction(edge: EdgeLinkRoutes, number: int, pattern: bytes, direction: bytes) -> None:
    edge.attach()
    edge.container(edge.addresses()[number])
    assert len(edge.requests()) == 1
    assert pattern in edge.octets
    assert direction in edge.octets


def test_request_waits_for_uplink(edge: EdgeLinkRoutes) -> None:
    edge.proxies.serve(True)
    edge.container(edge.addresses()[0])
    assert edge.requests() == []
    assert edge.proxies.deadline == NEVER


def test_present_containers_are_announced_at_new_uplink(edge: EdgeLinkRoutes) -> None:
    for number, address in enumerate(edge.addresses()):
        edge.container(address, number)
    edge.attach()
    assert edge.requests() == [CREATE_LR, ("CREATE", "E/proxyLinkRoute/Fa/*/b")]


def test_uplink_that_serves_no_longer_gets_link_routes_deleted(edge: EdgeLinkRoutes) -> None:
    created(edge)
    edge.proxies.serve(False)
    assert edge.requests() == [DELETE_LR]
    edge.answer(NO_CONTENT)
    edge.proxies.serve(True)
    assert edge.requests() == [CREATE_LR]


def test_link_routes_are_created_again_after_lost_uplink(edge: EdgeLinkRoutes) -> None:
    """The interior router deletes them with the connection."""
    address, container = created(edge)
    edge.proxies.lost()
    assert edge.requests() == []
    edge.attach()
    assert edge.requests() == [CREATE_LR]
    edge.leave(address, container)
    edge.proxies.lost()
    edge.attach()
    assert edge.requests() == []


def test_answer_to_request_on_lost_uplink_is_ignored(edge: EdgeLinkRoutes) -> None:
    edge.attach()
    edge.container(edge.addresses()[0])
    assert edge.requests() == [CREATE_LR]
    edge.proxies.lost()
    edge.attach()
    edge.answer(CREATED, "37")
    assert edge.requests() == [CREATE_LR]


# -- Failures


@pytest.mark.parametrize(("status", "identity"), [(BAD_REQUEST, None), (CREATED, None)])
def test_refused_creation_is_repeated_after_pause(edge: EdgeLinkRoutes, status: int, identity: str | None) -> None:
    edge.attach()
    edge.container(edge.addresses()[0])
    assert edge.requests() == [CREATE_LR]
    edge.answer(status, identity)
    assert edge.proxies.deadline == edge.clock.now + RETRY
    assert edge.requests() == []
    edge.clock.now += RETRY
    assert edge.requests() == [CREATE_LR]


def test_refused_deletion_is_repeated_after_pause(edge: EdgeLinkRoutes) -> None:
    edge.leave(*created(edge))
    assert edge.requests() == [DELETE_LR]
    edge.answer(BAD_REQUEST)
    assert edge.requests() == []
    edge.clock.now += RETRY
    assert edge.requests() == [DELETE_LR]
    edge.answer(NOT_FOUND)
    edge.clock.now += RETRY
    assert edge.requests() == [], "the link route is gone"


def test_unanswered_request_fails_after_timeout(edge: EdgeLinkRoutes) -> None:
    edge.attach()
    address = edge.addresses()[0]
    container = edge.container(address)
    assert edge.requests() == [CREATE_LR]
    assert edge.proxies.deadline == edge.clock.now + TIMEOUT
    edge.leave(address, container)
    assert edge.requests() == [], "one request at a time"
    edge.clock.now += TIMEOUT
    assert edge.requests() == [], "nothing is to be deleted"
    assert edge.proxies.deadline == NEVER


def test_answer_after_timeout_is_ignored(edge: EdgeLinkRoutes) -> None:
    edge.attach()
    edge.container(edge.addresses()[0])
    assert edge.requests() == [CREATE_LR]
    (late,) = edge.ids
    edge.clock.now += TIMEOUT
    assert edge.requests() == [CREATE_LR]
    edge.proxies.answered(ManagementAnswer(late, BAD_REQUEST, None))
    edge.clock.now += RETRY
    assert edge.requests() == [], "the second request is still unanswered"


def test_request_without_room_is_repeated_after_pause(edge: EdgeLinkRoutes) -> None:
    edge.attach()
    edge.full = True
    edge.container(edge.addresses()[0])
    assert edge.requests() == []
    edge.full = False
    assert edge.requests() == []
    edge.clock.now += RETRY
    assert edge.requests() == [CREATE_LR]
