"""Multicast copies for very many consumers of one worker, made in batches by records from the worker to itself."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

import sluice.router.testing.engine as engine
from sluice.router.amqp.scheduler import UNITS_PER_SLICE
from sluice.router.testing.output import octets_held
from tests.component.engine.host import InProcessPeer, InProcessRouter, configuration
from tests.peer.frames import ACCEPTED
from tests.peer.talk import (
    MANY,
    consumer,
    flow,
    frames,
    message,
    messages,
    of,
    producer,
    say,
    settle,
    start,
    transfer,
)

ADDRESS = "multicast.crowd"
CROWD = 10_000
#: Number of consumers from which copies are spread, and most copies of one turn.
LEAST = 2048
#: Cost units of a wake. A copy made at once is charged at least one unit.
UNITS_A_WAKE = 2 * 2 * UNITS_PER_SLICE


@pytest.fixture
def spread_from_three() -> Iterator[None]:
    """Spread copies from three consumers on."""
    engine.use_spread(3)
    yield
    engine.use_spread()


def connected(router: InProcessRouter, octets: bytes, worker: int = 0) -> InProcessPeer:
    peer = router.connect(worker)
    peer.feed(start() + octets)
    router.settle()
    frames(peer)
    return peer


def receivers(count: int, credit: int = MANY) -> bytes:
    return b"".join(consumer(handle, ADDRESS, credit) for handle in range(count))


def test_delivery_for_ten_thousand_consumers_takes_many_wakes(routers: Any) -> None:
    router = routers(1, links=2 * CROWD)
    crowd = connected(router, receivers(CROWD))
    bystander = connected(router, consumer(0, "balanced.quiet"))
    quiet = connected(router, producer(0, "balanced.quiet"))
    sending = connected(router, producer(0, ADDRESS))
    scheduler = router.workers[0].loop.scheduler
    sending.put(transfer(0, 0, message(b"x"), settled=True))
    number = copies = wakes = 0
    while copies < CROWD:
        units = scheduler.charged + scheduler.work
        quiet.put(transfer(0, number, message(b"%d" % number)))
        router.wake(router.workers[0])
        assert scheduler.charged + scheduler.work - units <= UNITS_A_WAKE
        assert messages(frames(bystander)) == [message(b"%d" % number)]
        came = len(of(frames(crowd), "transfer"))
        assert came <= 2 * LEAST
        copies += came
        number += 1
        wakes += copies > 0
    assert copies == CROWD
    assert wakes >= CROWD // LEAST
    router.settle()
    assert not of(frames(crowd), "transfer")


def test_exchange_copies_for_many_addresses_take_many_wakes(routers: Any) -> None:
    """Each address has few consumers."""
    hops, each = 30, 1000
    bindings = "".join(
        f"binding {{ name: h{hop}; exchangeName: ex; bindingKey: many; nextHopAddress: multicast.{hop} }}\n"
        for hop in range(hops)
    )
    router = routers(1, configuration(more=bindings), links=hops * each + 100)
    crowds = [
        connected(router, b"".join(consumer(handle, f"multicast.{hop}") for handle in range(each)))
        for hop in range(hops)
    ]
    sending = connected(router, producer(0, "exchange"))
    scheduler = router.workers[0].loop.scheduler
    sending.put(b"".join(transfer(0, number, message(b"x", subject="many")) for number in range(3)))
    copies = wakes = 0
    while copies < 3 * hops * each:
        units = scheduler.charged + scheduler.work
        router.wake(router.workers[0])
        assert scheduler.charged + scheduler.work - units <= UNITS_A_WAKE
        copies += sum(len(of(frames(crowd), "transfer")) for crowd in crowds)
        wakes += 1
    assert copies == 3 * hops * each
    assert wakes >= copies // (2 * LEAST)
    router.settle()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("settled", [True, False], ids=["settled", "unsettled"])
def test_spread_copies_arrive_once_and_in_order(
    routers: Any, spread_from_three: None, workers: int, settled: bool
) -> None:
    router = routers(workers)
    crowds = [connected(router, receivers(20), worker) for worker in range(workers)]
    sending = connected(router, producer(0, ADDRESS))
    sending.put(b"".join(transfer(0, number, message(b"%d" % number), settled=settled) for number in range(50)))
    router.settle()
    for crowd in crowds:
        by_handle: dict[int, list[bytes]] = {}
        for sent in of(frames(crowd), "transfer"):
            by_handle.setdefault(sent.handle, []).append(sent.payload)
        assert sorted(by_handle) == list(range(20))
        assert all(got == [message(b"%d" % number) for number in range(50)] for got in by_handle.values())
        crowd.feed(settle(0, 999, ACCEPTED))
    router.settle()
    if not settled:
        told = of(frames(sending), "disposition")
        assert sum((one.first if one.last is None else one.last) - one.first + 1 for one in told) == 50
        assert {str(one.state) for one in told} == {str(ACCEPTED)}


@pytest.mark.parametrize("seed", range(10))
def test_order_is_kept_when_spreading_ends(routers: Any, spread_from_three: None, seed: int) -> None:
    """Copies in the ring arrive before copies made directly."""
    choose = Random(seed)
    router = routers(1)
    staying = connected(router, consumer(0, ADDRESS))
    leaving = connected(router, receivers(3))
    sending = connected(router, producer(0, ADDRESS))
    number = 0
    for turn in range(20):
        for _ in range(choose.randrange(4)):
            sending.put(transfer(0, number, message(b"%d" % number), settled=True))
            number += 1
        if turn == 10:
            leaving.put(b"".join(say("detach", handle=handle, closed=True) for handle in range(3)))
        for _ in range(choose.randrange(3)):
            router.wake(router.workers[0])
        if choose.random() < 0.3:
            router.supervise()
    router.settle()
    assert messages(frames(staying)) == [message(b"%d" % each) for each in range(number)]


@pytest.mark.parametrize("who", ["producer", "crowd"])
@pytest.mark.parametrize("octets", [10, 40_000, 300_000])
def test_interrupted_spreading_leaves_nothing_behind(
    routers: Any, spread_from_three: None, who: str, octets: int
) -> None:
    router = routers(1)
    crowd = connected(router, receivers(20, 2))
    sending = connected(router, producer(0, ADDRESS))
    whole = b"".join(transfer(0, number, message(bytes(octets))) for number in range(4))
    sending.put(whole[: len(whole) * 7 // 8])
    router.wake(router.workers[0])
    (sending if who == "producer" else crowd).lose()
    router.settle()
    for peer in (sending, crowd):
        peer.lose()
    router.settle()
    router.check_empty()


def test_waiting_copies_count_for_producer(routers: Any, spread_from_three: None) -> None:
    router = routers(1)
    crowd = connected(router, receivers(20, 0))
    sending = connected(router, producer(0, ADDRESS))
    sending.feed(b"".join(transfer(0, number, message(b"x")) for number in range(50)))
    router.settle()
    assert octets_held(sending.connection) >= 50 * 20 * 256
    crowd.feed(b"".join(flow(handle, 100) for handle in range(20)) + settle(0, 999, ACCEPTED))
    router.settle()
    crowd.feed(settle(0, 999, ACCEPTED))
    router.settle()
    assert octets_held(sending.connection) == 0


def test_copy_for_one_consumer_keeps_no_meter(routers: Any) -> None:
    engine.use_spread(1)
    try:
        router = routers(1)
        crowd = connected(router, receivers(1))
        sending = connected(router, producer(0, ADDRESS))
        sending.feed(b"".join(transfer(0, number, message(b"x"), settled=True) for number in range(50)))
        router.settle()
        assert len(messages(frames(crowd))) == 50
    finally:
        engine.use_spread()
    for peer in (sending, crowd):
        peer.lose()
    router.settle()
    router.check_empty()
