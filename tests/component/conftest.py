"""Hooks and fixtures for tests of routers in one process, without sockets."""

from collections.abc import Iterator

import pytest

import router.testing.engine as engine
from tests.component.engine.host import InProcessRouter
from tests.component.engine.network import InProcessNetwork
from tests.in_process import (
    bound_descriptors,
    descriptor_bound,
    fail_on_process_start,
    pytest_collection_modifyitems,
    start_recorder,
)

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
