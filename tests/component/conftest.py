"""Hooks and fixtures for tests of routers in one process, without sockets."""

from collections.abc import Iterator

import pytest

import sluice.router.testing.engine as engine
from sluice.router.control.messages import Limits
from sluice.supervisor.connections.admission import Admit
from sluice.supervisor.connections.registry import Connections
from sluice.supervisor.policy.policy import Policy
from tests.component.engine.host import InProcessRouter, configuration
from tests.component.engine.network import InProcessNetwork
from tests.in_process import (
    bound_descriptors,
    descriptor_bound,
    fail_on_process_start,
    pytest_collection_modifyitems,
    start_recorder,
)
from tests.peer.talk import start

__all__ = [
    "bound_descriptors",
    "descriptor_bound",
    "fail_on_process_start",
    "pytest_collection_modifyitems",
    "start_recorder",
]


@pytest.fixture(autouse=True)
def abandon_open_routers(bound_descriptors: None) -> Iterator[None]:
    """Abandon the routers that a test has left open. `bound_descriptors` then finds their descriptors closed."""
    before = set(InProcessRouter.all_open)
    yield
    for router in InProcessRouter.all_open - before:
        router.abandon()


@pytest.fixture
def routers():
    """Return a factory of routers. At the end all peers disconnect and nothing may be left behind."""
    before = engine.live_objects()
    made = []

    def make(*arguments, **options):
        made.append(InProcessRouter(*arguments, **options))
        return made[-1]

    yield make
    for one in made:
        one.check_quiet()
        for peer in list(one.peers):
            peer.lose()
        one.settle()
        one.check_empty()
        one.close()
    assert engine.live_objects() == before


@pytest.fixture
def networks(monkeypatch):
    """Return a factory of router networks. At the end nothing may be left behind."""
    made = []

    def make(*arguments, **options):
        made.append(InProcessNetwork(*arguments, monkeypatch=monkeypatch, **options))
        return made[-1]

    yield make
    for network in made:
        network.close()


@pytest.fixture(params=[(1, (0, 0)), (2, (1, 0))], ids=["one-worker", "two-workers"])
def router_pair(request, networks):
    """Return a network of two routers, A and B. With two workers each, A's clients and the connection to B are on
    different workers."""
    workers, ends = request.param
    network = networks("AB", workers)
    network.join("A", "B", workers=ends)
    network.converge()
    return network


@pytest.fixture
def decide(monkeypatch):
    """Function that sets the decision about each open."""

    def use(decision):
        monkeypatch.setattr(Policy, "decide", lambda admission, connection, message: decision)
        monkeypatch.setattr(Connections, "worker_admits", lambda connections, connection: False)

    return use


@pytest.fixture
def connect_limited(routers, decide):
    """Function that connects a client under these limits and begins its session. Returns (router, client)."""

    def make(**limits):
        decide(Admit(Limits(**limits)))
        router = routers(text=configuration(listener="maxFrameSize: 4096\nmaxSessions: 100"))
        peer = router.connect()
        peer.feed(start())
        router.settle()
        return router, peer

    return make
