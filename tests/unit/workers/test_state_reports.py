"""Unsettled states on their way to the other end: the latest one of each delivery, within the bound of the buffer."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.testing.output import octets_waiting
from tests.peer.frames import ACCEPTED, RELEASED, modified, rejected
from tests.peer.types import Described, ULong
from tests.unit.engine.host import Peer, Router, configuration
from tests.unit.engine.talk import consumer, frames, message, of, producer, settle, start, transfer

OUTPUT_HIGH = 131_072  # octets of a write buffer above which nothing more is put into it (router/amqp/endpoint.pxd)
FRAME = 16_384  # octets of the longest frame
DELIVERIES = 8_000
LISTENER = f"linkCapacity: {DELIVERIES}; maxSessionFrames: {2 * DELIVERIES}"
PLAIN_MODIFIED = Described(ULong(0x27), [])
PRIVATE = Described(ULong(0x99), [])
STATES = [ACCEPTED, RELEASED, PLAIN_MODIFIED, PRIVATE, modified(True, False), rejected("a:b", "c")]


def pair(router: Router, worker: int, address: str) -> tuple[Peer, Peer]:
    """Return a consumer on worker 0 and a producer on the given one."""
    receiving, sending = router.connect(0), router.connect(worker)
    receiving.feed(start() + consumer(0, address))
    router.settle()
    sending.feed(start() + producer(0, address))
    router.settle()
    return receiving, sending


def send(router: Router, sending: Peer, count: int) -> None:
    for first in range(0, count, 500):
        last = min(first + 500, count)
        sending.feed(b"".join(transfer(0, number, message(b"x")) for number in range(first, last)))
        router.settle()


def reported(peer: Peer, *, settled: bool = False) -> dict[int, Any]:
    """Return the last state that the peer has received of each delivery."""
    found = {}
    for report in of(frames(peer), "disposition"):
        if bool(report.settled) == settled:
            last = report.first if report.last is None else report.last
            found.update(dict.fromkeys(range(report.first, last + 1), report.state))
    return found


def flood(first_role: bool) -> bytes:
    """Return frames that change the state of every delivery a hundred times; odd and even ones differ."""
    once = b"".join(
        settle(number, state=STATES[number % 2], settled=False, role=first_role) for number in range(0, DELIVERIES, 16)
    )
    return b"".join(
        settle(0, DELIVERIES - 1, rejected("a:b", f"{time}"), settled=False, role=first_role) + once
        for time in range(20)
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_states_for_a_producer_that_does_not_read_wait_outside_its_buffer(routers, workers: int) -> None:
    router = routers(workers, configuration(LISTENER))
    receiving, sending = pair(router, workers - 1, "balanced.a")
    send(router, sending, DELIVERIES)
    reported(sending)
    sending.blocked = True
    receiving.feed(flood(True))
    router.settle()
    assert octets_waiting(sending.connection) <= OUTPUT_HIGH + FRAME
    sending.blocked = False
    router.settle()
    last = reported(sending)
    expected = {number: STATES[number % 2] if number % 16 == 0 else rejected("a:b", "19") for number in last}
    assert len(last) == DELIVERIES
    assert last == expected
    assert octets_waiting(sending.connection) == 0


def test_states_for_a_consumer_that_does_not_read_wait_outside_its_buffer(routers) -> None:
    router = routers(1, configuration(LISTENER))
    receiving, sending = pair(router, 0, "balanced.a")
    send(router, sending, DELIVERIES)
    reported(receiving)
    receiving.blocked = True
    sending.feed(flood(False))
    router.settle()
    assert octets_waiting(receiving.connection) <= OUTPUT_HIGH + FRAME
    receiving.blocked = False
    router.settle()
    last = reported(receiving)
    assert len(last) == DELIVERIES
    assert last[DELIVERIES - 1] == rejected("a:b", "19")


def test_state_that_repeats_the_last_one_is_not_written(routers) -> None:
    router = routers(1)
    receiving, sending = pair(router, 0, "balanced.a")
    send(router, sending, 100)
    receiving.feed(settle(0, 99, ACCEPTED, settled=False))
    router.settle()
    assert reported(sending) == dict.fromkeys(range(100), ACCEPTED)
    receiving.feed(settle(0, 99, ACCEPTED, settled=False) * 10)
    router.settle()
    assert reported(sending) == {}


def test_outcome_behind_an_unsettled_state_is_the_last_report(routers) -> None:
    router = routers(1)
    receiving, sending = pair(router, 0, "balanced.a")
    send(router, sending, 10)
    receiving.feed(settle(0, 9, ACCEPTED, settled=False) + settle(0, 9, RELEASED))
    router.settle()
    reports = [(r.first, r.last, bool(r.settled), r.state) for r in of(frames(sending), "disposition")]
    assert reports == [(0, 9, True, RELEASED)]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("address", ["balanced.a", "multicast.a"])
@given(st.lists(st.sampled_from(STATES), min_size=2, max_size=12), st.booleans())
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_outcomes_settled_in_one_wake_stay_what_they_are(routers, workers, address, states, two_steps) -> None:
    """Outcomes of four octets were taken by their kind alone, unless they were the first ones of a wake."""
    if address == "multicast.a":
        states = [state for state in states if state is not PRIVATE] or [ACCEPTED]
    router = routers(workers)
    receiving, sending = pair(router, workers - 1, address)
    send(router, sending, len(states))
    if two_steps:
        receiving.feed(b"".join(settle(n, state=state, settled=False) for n, state in enumerate(states)))
        router.settle()
        assert reported(sending) == dict(enumerate(states))
    receiving.feed(b"".join(settle(n, state=state) for n, state in enumerate(states)))
    router.settle()
    assert reported(sending, settled=True) == dict(enumerate(states))
    for peer in (receiving, sending):
        peer.lose()
    router.settle()
