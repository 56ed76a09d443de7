"""Attaches at an edge router that wait for answers arriving on a connection of the same worker."""

import time

import pytest

from tests.component.engine.host import InProcessRouter
from tests.component.engine.network import (
    EDGE,
    EDGE_LISTENER,
    IgnoringObserver,
    InProcessNetwork,
    RouterConnection,
    client,
)
from tests.peer.talk import consumer, frames, of

QUESTIONS = 10
LINKS = 6 * QUESTIONS
TIME_LIMIT = 30  # seconds


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> InProcessNetwork:
    """Interior router A, and edge router E with one worker that takes few attaches before the supervisor answers."""
    monkeypatch.setattr("sluice.workers.worker.MAX_UNDECIDED_ATTACHES", QUESTIONS)
    network = InProcessNetwork("A", 1, monkeypatch=monkeypatch, more=EDGE_LISTENER)
    edge = network.routers["E"] = InProcessRouter(1, EDGE)
    (uplink,) = edge.configuration.connectors
    up = edge.initiate(0, uplink, IgnoringObserver()), network["A"].connect(0, "edges")
    network.joints.append(RouterConnection(network, *up))
    network.pass_seconds(1)
    return network


def test_attaches_beyond_undecided_limit_need_no_timeout(network: InProcessNetwork) -> None:
    edge = network["E"]
    assert edge.core.uplink is not None
    peer = client(network, "E")
    peer.feed(b"".join(consumer(handle, f"a{handle}", 0) for handle in range(LINKS)))
    network.settle()
    attached = list(of(frames(peer), "attach"))
    assert len(attached) == LINKS
    assert [each.handle for each in attached] == list(range(LINKS)), "in their order"
    assert edge.core.uplink.lookups.unanswered == 0
    assert edge.workers[0].questions == 0
    # The links of these addresses at A wait until the burst is over.
    until = time.monotonic() + TIME_LIMIT
    while len(network["A"].core.table.records) < LINKS:
        assert time.monotonic() < until
        network.settle()
