"""Scoped addresses at an edge router are unknown to the interior, and their messages stay (docs/user/edge.md)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peer import message
from tests.peer.management import Management
from tests.system.edges import EdgeNetwork, edge, with_edges
from tests.system.networks import CONVERGENCE
from tests.system.router import SETTINGS, RouterProcess, Section, poll

WORKER_COUNTS = (1, 3)
SCOPES: list[Section] = [
    *SETTINGS,
    ("address", {"prefix": "here", "scope": "local"}),
    ("address", {"prefix": "these", "scope": "site", "distribution": "multicast"}),
]


@pytest.fixture(scope="module")
def _scoped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeNetwork]:
    created = EdgeNetwork()

    def start(name: str, sections: list[Section]) -> RouterProcess:
        router = created.routers[name] = RouterProcess(
            tmp_path_factory.mktemp(f"router{name}-"), sections, request.param
        )
        router.start()
        return router

    try:
        a = start("A", [*with_edges("A"), *SETTINGS])
        start("E", [*edge("E", a), *SCOPES])
        created.wait_reached("E")
        yield created
    finally:
        for router in created.routers.values():
            router.stop()


@pytest.fixture
def scoped(_scoped: EdgeNetwork, request: pytest.FixtureRequest) -> Iterator[EdgeNetwork]:
    """Yield the routers A and E, shared by a test module."""
    request.node.routers = list(_scoped.routers.values())
    yield _scoped
    _scoped.drop()


def is_announced(scoped: EdgeNetwork, address: str) -> bool:
    """Return whether the interior knows an address, after all announcements so far."""
    known = scoped.fresh("balanced/")
    peer = scoped.connect("E")
    peer.receiver(known, 1)
    peer.sender(known)
    scoped.view("A").wait_consumers(f"M0{known}", 1)  # earlier announcements have arrived as well
    return scoped.view("A").address(f"M0{address}") is not None


@pytest.mark.parametrize("prefix", ["here/", "these/"])
def test_scoped_address_is_not_announced(scoped: EdgeNetwork, prefix: str) -> None:
    address = scoped.fresh(prefix)
    client = scoped.connect("E")
    receiver = client.receiver(address, 10)
    sender = client.sender(address)
    assert not is_announced(scoped, address)
    number = sender.send(message.message("x"))
    receiver.next().settle()
    assert sender.outcome(number).name == "accepted"


@pytest.mark.parametrize("prefix", ["here/", "these/"])
@pytest.mark.parametrize("known", [False, True], ids=["unknown", "with a consumer before"])
def test_scoped_messages_stay_at_edge(scoped: EdgeNetwork, prefix: str, known: bool) -> None:
    """A consumer at the interior gets no messages, and no copies of multicast messages to local consumers."""
    address = scoped.fresh(prefix)
    above = scoped.connect("A").receiver(address, 10)
    client = scoped.connect("E")
    here = client.receiver(address, 10) if known else None
    anonymous = client.sender()
    number = anonymous.send(message.message("x", to=address))
    if here is not None:
        here.next().settle()
    assert anonymous.outcome(number).name == ("released" if here is None else "accepted")
    targeted = client.sender(address, credit=False)
    client.barrier()
    assert bool(targeted.credit) is known
    assert not is_announced(scoped, address) or scoped.view("A").consumers(f"M0{address}") == 1
    above.session.peer.barrier()
    assert not above.deliveries


def test_changed_scope_applies_at_once(scoped: EdgeNetwork) -> None:
    address = scoped.fresh("wide/")
    management = Management(scoped.connect("E"))
    client = scoped.connect("E")
    client.receiver(address, 10)
    scoped.view("A").wait_consumers(f"M0{address}", 1)
    management.create("router.config.address", "wide", prefix="wide", scope="local")
    poll(lambda: scoped.view("A").address(f"M0{address}") is None, "the interior forgets it", CONVERGENCE)
    management.delete("router.config.address", "wide")
    scoped.view("A").wait_consumers(f"M0{address}", 1)
