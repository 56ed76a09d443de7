"""Settlements of one wake become few dispositions, in the order of their ids (AMQP 1.0 part 2, 2.6.12)."""

import random

import pytest

from tests.peer.frames import ACCEPTED, RELEASED
from tests.peer.talk import consumer, frames, message, of, producer, say, settle, start, transfer


def reported(routers, states, order):
    """Return (first, last, state) of each disposition that the producer receives when deliveries with these outcomes
    are settled one by one, in this order, in one wake."""
    router = routers()
    receiving = router.connect()
    receiving.feed(start() + consumer(0, "balanced.a"))
    router.settle()
    sending = router.connect()
    sending.feed(start() + producer(0, "balanced.a"))
    sending.feed(b"".join(transfer(0, number, message(b"x")) for number in range(len(states))))
    router.settle()
    frames(sending)
    receiving.feed(b"".join(settle(number, state=states[number]) for number in order))
    router.settle()
    found = of(frames(sending), "disposition")
    assert all(frame.settled for frame in found)
    return [(frame.first, frame.first if frame.last is None else frame.last, frame.state) for frame in found]


@pytest.mark.parametrize(
    "order",
    [range(100), range(99, -1, -1), [*range(0, 100, 2), *range(1, 100, 2)], random.Random(1).sample(range(100), 100)],
    ids=["as-they-came", "backwards", "every-other-one", "any"],
)
def test_equal_outcomes_are_one_disposition(routers, order):
    assert reported(routers, [ACCEPTED] * 100, order) == [(0, 99, ACCEPTED)]


def test_different_outcomes_of_neighbours_stay_apart(routers):
    states = [ACCEPTED, ACCEPTED, RELEASED, ACCEPTED, RELEASED, RELEASED]
    expected = [(0, 1, ACCEPTED), (2, 2, RELEASED), (3, 3, ACCEPTED), (4, 5, RELEASED)]
    assert reported(routers, states, [5, 0, 3, 1, 4, 2]) == expected


def test_alternate_settlements_are_merged_with_the_rest(routers):
    assert reported(routers, [ACCEPTED] * 240, [*range(0, 240, 2), *range(239, 0, -2)]) == [(0, 239, ACCEPTED)]


@pytest.mark.parametrize("first", [0, 2**32 - 1500])
def test_ids_far_apart_are_settled_in_order(routers, first):
    """Settlements within 2,048 ids are collected; others are written after them."""
    router = routers()
    receiving = router.connect()
    receiving.feed(start() + consumer(0, "balanced.a"))
    router.settle()
    sending = router.connect(0, "main")
    sending.feed(start() + producer(0, "balanced.a"))
    router.settle()
    numbers = [(first + number) % 2**32 for number in range(3000)]
    for at in range(0, 3000, 200):
        sending.feed(b"".join(transfer(0, number, message(b"x")) for number in numbers[at : at + 200]))
        if at < 2800:
            # The producer settles most itself, so that their credit returns.
            kept = 10 if at == 0 else 0
            sending.feed(settle(numbers[at + kept], numbers[at + 199], role=False))
        router.settle()
    frames(sending)
    receiving.feed(b"".join(settle(number) for number in (2999, 3, 2998, 4)))
    router.settle()
    said = [one.first for one in of(frames(sending), "disposition") if one.last in (None, one.first)]
    assert said == [numbers[2999], numbers[3], numbers[2998], numbers[4]]


def test_settlements_of_lost_session_reach_no_other_session(routers):
    """Its memory is reused."""
    router = routers()
    worker = router.workers[0]
    receiving = router.connect()
    receiving.feed(start() + consumer(0, "balanced.a"))
    router.settle()
    for number in range(10):
        lost, staying = router.connect(), router.connect()
        for peer in (lost, staying):
            peer.feed(start() + producer(0, "balanced.a"))
            router.settle()
            frames(peer)
        lost.feed(b"".join(transfer(0, each, message(b"x")) for each in range(5)))
        staying.feed(b"".join(transfer(0, each, message(b"x")) for each in range(5)))
        router.settle()
        receiving.put(settle(10 * number, 10 * number + 4, state=ACCEPTED))
        lost.put(say("end"))
        router.wake(worker)
        lost.lose()
        receiving.feed(settle(10 * number + 7, state=RELEASED))
        router.settle()
        assert [(frame.first, frame.last) for frame in of(frames(staying), "disposition")] == [(2, None)]
        receiving.feed(settle(10 * number + 5, 10 * number + 9, state=ACCEPTED))
        router.settle()
        staying.lose()
