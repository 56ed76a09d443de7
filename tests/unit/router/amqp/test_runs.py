"""Settlements of one wake become few dispositions, in the order of their ids (AMQP 1.0 part 2, 2.6.12)."""

import random

import pytest

from tests.peer.frames import ACCEPTED, RELEASED
from tests.unit.engine.talk import consumer, frames, message, of, producer, settle, start, transfer


def reported(routers, states, order):
    """(first, last, state) of each disposition that the producer gets when deliveries with these outcomes are settled
    one by one, in this order, in one wake."""
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


def test_more_runs_than_are_collected(routers):
    """128 are; what comes behind is written after them."""
    found = reported(routers, [ACCEPTED] * 240, [*range(0, 240, 2), *range(239, 0, -2)])
    assert sorted(number for first, last, _ in found for number in range(first, last + 1)) == list(range(240))
    assert len(found) < 240
