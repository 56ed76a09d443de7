"""Settlements with long states leave as ranges, in the order in which they were reported."""

from tests.peer.frames import ACCEPTED
from tests.peer.talk import consumer, frames, message, of, producer, settle, start, transfer
from tests.peer.types import Described, Symbol, ULong

NUMBER = 12


def rejected(text):
    return Described(ULong(0x25), [Described(ULong(0x1D), [Symbol("amqp:not-allowed"), text])])


def outcomes(routers, *settlements, workers=1):
    """Return (first, last, state) of each disposition that the producer receives for the consumer's settlements."""
    router = routers(workers) if workers > 1 else routers()
    consuming, sending = router.connect(), router.connect()
    consuming.feed(start() + consumer(0, "balanced.a"))
    router.settle()
    sending.feed(start() + producer(0, "balanced.a"))
    router.settle()
    for number in range(NUMBER):
        sending.feed(transfer(0, number, message(b"x")))
    router.settle()
    frames(consuming)
    frames(sending)
    consuming.feed(b"".join(settle(*each) for each in settlements))
    router.settle()
    return [(frame.first, frame.last, frame.state) for frame in of(frames(sending), "disposition")]


def state_by_id(found):
    """Return the state of each delivery."""
    return {
        number: state for first, last, state in found for number in range(first, (first if last is None else last) + 1)
    }


def test_equal_states_are_merged_into_one_frame(routers):
    heard = outcomes(routers, (0, NUMBER - 1, rejected("no")))
    assert [(first, last) for first, last, _ in heard] == [(0, NUMBER - 1)]
    assert state_by_id(heard) == dict.fromkeys(range(NUMBER), rejected("no"))


def test_equal_states_from_single_dispositions_are_merged(routers):
    heard = outcomes(routers, *[(number, None, rejected("no")) for number in range(NUMBER)])
    assert [(first, last) for first, last, _ in heard] == [(0, NUMBER - 1)]


def test_ranges_end_at_other_states_and_gaps(routers):
    said = {
        0: rejected("no"), 1: rejected("no"), 2: rejected("not at all"), 3: ACCEPTED, 4: rejected("no"), 5: ACCEPTED,
        6: Described(ULong(0x27), [True, False]), 7: Described(ULong(0x27), [True, False]), 9: rejected("no"),
        8: rejected("no"), 11: rejected("no"), 10: rejected("no"),
    }  # fmt: skip
    heard = outcomes(routers, *[(number, None, state) for number, state in said.items()])
    assert state_by_id(heard) == said
    assert (0, 1) in [(first, last) for first, last, _ in heard]
    assert (6, 7) in [(first, last) for first, last, _ in heard]


def test_state_too_long_to_collect_is_sent_alone(routers):
    long = rejected("n" * 2000)
    heard = outcomes(routers, (0, 1, long), (2, 3, ACCEPTED), (4, NUMBER - 1, rejected("no")))
    assert state_by_id(heard) == {
        0: long,
        1: long,
        2: ACCEPTED,
        3: ACCEPTED,
        **dict.fromkeys(range(4, 12), rejected("no")),
    }
