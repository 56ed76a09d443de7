"""Delivery-ids that wrap around to a delivery still unsettled: the connection closes, and no stale pointer is left."""

from typing import Any

import pytest

import sluice.router.testing.engine as engine
from tests.peer.frames import ACCEPTED
from tests.peer.talk import consumer, frames, message, messages, of, producer, settle, start, transfer

LIMIT = "amqp:resource-limit-exceeded"
LAST = 0xFFFFFFFF


def session_of(peer: Any) -> Any:
    (record,) = peer.client.links.by_number.values()
    return record.link.session


def pair(router: Any, workers: int) -> tuple[Any, Any]:
    """Connect a consumer to the first worker and a producer to the last one."""
    receiving, sending = router.connect(0), router.connect(workers - 1)
    receiving.feed(start() + consumer(0, "balanced.a"))
    router.settle()
    sending.feed(start() + producer(0, "balanced.a"))
    router.settle()
    frames(receiving)
    frames(sending)
    return receiving, sending


@pytest.fixture(params=[True, False], ids=["fast-path", "slow-path"])
def _fast_and_slow_path(request: pytest.FixtureRequest) -> Any:
    engine.use_fast_paths(request.param)
    yield
    engine.use_fast_paths(True)


@pytest.mark.usefixtures("_fast_and_slow_path")
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("size", [10, 40_000], ids=["one-frame", "several-frames"])
def test_delivery_ids_wrap_when_all_are_settled(routers: Any, workers: int, size: int) -> None:
    router = routers(workers)
    receiving, sending = pair(router, workers)
    engine.set_delivery_ids(session_of(receiving), LAST - 1, 0)
    for number in (LAST - 1, LAST, 0, 1):
        sending.feed(transfer(0, number, message(b"x" * size)))
        router.settle()
        (first, *_) = of(frames(receiving), "transfer")
        assert first.delivery_id == number
        receiving.feed(settle(number, state=ACCEPTED))
        router.settle()
        assert of(frames(sending), "disposition")[-1].first == number


@pytest.mark.usefixtures("_fast_and_slow_path")
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("size", [10, 40_000], ids=["one-frame", "several-frames"])
def test_outgoing_delivery_id_in_use_closes_consumer(routers: Any, workers: int, size: int) -> None:
    """The consumer's deliveries are modified, as for any lost consumer. The producer continues."""
    router = routers(workers)
    receiving, sending = pair(router, workers)
    sending.feed(transfer(0, 0, message(b"x" * size)) + transfer(0, 1, message(b"x" * size)))
    router.settle()
    assert len(messages(frames(receiving))) == 2
    engine.set_delivery_ids(session_of(receiving), 1, 0)
    sending.feed(transfer(0, 2, message(b"y" * size)))
    router.settle()
    (close,) = of(frames(receiving), "close")
    assert close.error.value[0] == LIMIT
    reports = of(frames(sending), "disposition")
    assert {number for report in reports for number in range(report.first, (report.last or report.first) + 1)} == {
        0,
        1,
        2,
    }
    assert {report.state.descriptor for report in reports} == {0x27}
    other = router.connect(0)
    other.feed(start() + consumer(0, "balanced.a"))
    router.settle()
    sending.feed(transfer(0, 3, message(b"z")))
    router.settle()
    assert messages(frames(other)) == [message(b"z")]
    other.feed(settle(0, state=ACCEPTED))
    router.settle()


@pytest.mark.usefixtures("_fast_and_slow_path")
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("size", [10, 40_000], ids=["one-frame", "several-frames"])
def test_incoming_delivery_id_in_use_closes_producer(routers: Any, workers: int, size: int) -> None:
    router = routers(workers)
    receiving, sending = pair(router, workers)
    sending.feed(transfer(0, 0, message(b"x" * size)) + transfer(0, 1, message(b"x" * size)))
    router.settle()
    assert len(messages(frames(receiving))) == 2
    engine.set_delivery_ids(session_of(sending), 0, 1)
    sending.feed(transfer(0, 1, message(b"y" * size)))
    router.settle()
    (close,) = of(frames(sending), "close")
    assert close.error.value[0] == LIMIT
    frames(receiving)
    receiving.feed(settle(0, 2, state=ACCEPTED))
    router.settle()
    assert not of(frames(receiving), "close")
