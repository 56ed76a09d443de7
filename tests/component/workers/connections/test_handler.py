"""Lifetime of a connection's handler and of the objects that own its parts."""

import gc
from collections.abc import Iterator

import pytest

from sluice.workers.connections.handler import ConnectionHandler
from tests.peer.frames import AMQP_HEADER, SASL_HEADER
from tests.peer.talk import consumer, producer, say, start


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def handlers() -> list[ConnectionHandler]:
    return [each for each in gc.get_objects() if isinstance(each, ConnectionHandler)]


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("end", ["close", "lost", "detached and closed", "refused login", "bad frame"])
def test_ended_connection_is_freed_without_collector(routers, end):
    router = routers(2)
    before = len(handlers())
    peer = router.connect()
    assert len(handlers()) == before + 1
    if end == "refused login":
        peer.feed(SASL_HEADER + say("sasl-init", mechanism="UNKNOWN"))
    else:
        peer.feed(start() + consumer(0, "balanced.a") + producer(1, "balanced.a") + producer(2, None))
        router.settle()
        if end == "detached and closed":
            peer.feed(say("detach", handle=0, closed=True) + say("detach", handle=1))
            router.settle()
        if end == "lost":
            peer.lose()
        else:
            peer.feed(AMQP_HEADER if end == "bad frame" else say("close"))
    router.settle()
    assert peer.gone
    del peer
    router.pass_time(60_000)
    assert len(handlers()) == before
