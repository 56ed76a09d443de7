"""Faults in the messages of a bystander pair, and their reports."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.system.bystanders.pair import LARGE, LARGE_OCTETS, Pair

ACCEPTED = SimpleNamespace(settled=True, name="accepted")


class Line:
    """Stand-in for sender, session and receiver. The test decides what arrives."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, bool]] = []
        self.deliveries: list[Any] = []
        self.outcomes: dict[int, Any] = {}
        self.credit, self.remote_window = 10, 10
        self.session, self.peer = self, SimpleNamespace(payload_room=16_000)
        self.renewed = 0

    def send(self, payload: bytes, settled: bool) -> int:
        self.sent.append((payload, settled))
        return len(self.sent) - 1

    def flow(self, credit: int) -> None:
        self.renewed += 1

    def arrive(self, number: int, payload: bytes | None = None) -> None:
        """Let message `number` arrive and be accepted."""
        octets = self.sent[number][0] if payload is None else payload
        settled = self.sent[number][1]
        self.deliveries.append(SimpleNamespace(complete=True, payload=octets, settled=settled, settle=lambda: None))
        if not settled:
            self.outcomes[number] = ACCEPTED


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def pair(line: Line) -> Pair:
    pair = Pair("pair", line, line, b"text ")  # type: ignore[arg-type]
    for _ in range(4):
        pair.send(0.0)
    return pair


def test_all_is_well(line: Line, pair: Pair) -> None:
    for number in range(4):
        line.arrive(number)
    pair.take(0.5)
    assert (pair.fault, pair.settled_up_to(4), pair.oldest(), pair.take_worst(), pair.worst) == (
        None,
        True,
        None,
        0.5,
        0,
    )


def test_long_messages_are_among_them(line: Line, pair: Pair) -> None:
    pair.send(0.0)
    assert [len(payload) > LARGE_OCTETS // 2 for payload, _ in line.sent] == [number in LARGE for number in range(5)]
    assert {settled for _, settled in line.sent} == {True, False}


@pytest.mark.parametrize(
    ("arrivals", "fault"),
    [
        ((0, 2), "pair: message 2 arrived too early where message 1 was expected"),
        ((0, 0), "pair: message 0 arrived a second time where message 1 was expected"),
    ],
)
def test_a_message_is_missing_or_comes_again(line: Line, pair: Pair, arrivals: tuple[int, ...], fault: str) -> None:
    for number in arrivals:
        line.arrive(number)
    pair.take(0.5)
    assert pair.fault == fault


def test_other_octets_arrive(line: Line, pair: Pair) -> None:
    line.arrive(0, line.sent[0][0] + b"more")
    pair.take(0.5)
    assert "were not sent" in str(pair.fault)


def test_an_outcome_is_another_one(line: Line, pair: Pair) -> None:
    line.arrive(0)
    line.outcomes[0] = SimpleNamespace(settled=True, name="released")
    pair.take(0.5)
    assert pair.fault == "pair: message 0 was released"


def test_what_is_late_is_named(line: Line, pair: Pair) -> None:
    assert pair.oldest() == (0.0, "message 0 has no outcome")
    line.arrive(0)
    pair.take(0.5)
    assert pair.oldest() == (0.0, "message 1 has not arrived")


def test_credit_or_a_window_that_is_missing_counts_from_the_first_try(line: Line, pair: Pair) -> None:
    for number in range(4):
        line.arrive(number)
    line.credit = 0
    pair.send(1.0)
    line.credit, line.remote_window = 10, 1
    pair.send(2.0)  # a long message needs more of the window
    pair.take(2.5)
    assert pair.oldest() == (1.0, "message 4 has no credit or no window")
    assert (pair.due, pair.settled_up_to(pair.due)) == (5, False)
    line.remote_window = 10
    pair.send(3.0)
    line.arrive(4)
    pair.take(3.5)
    assert pair.take_worst() == 2.5
