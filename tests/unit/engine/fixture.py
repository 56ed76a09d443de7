"""Fixtures for in-process routers without sockets."""

import pytest

import router.testing.engine as engine
from tests.unit.engine.host import InProcessRouter
from tests.unit.engine.network import InProcessNetwork


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
