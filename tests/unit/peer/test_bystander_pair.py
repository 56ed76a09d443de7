"""Faults in the messages of a bystander pair, and their reports."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.system.bystanders.pair import LARGE, LARGE_OCTETS, BystanderPair

ACCEPTED = SimpleNamespace(settled=True, name="accepted")


class StubLinks:
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
def links() -> StubLinks:
    return StubLinks()


@pytest.fixture
def pair(links: StubLinks) -> BystanderPair:
    pair = BystanderPair("pair", links, links, b"text ")  # type: ignore[arg-type]
    for _ in range(4):
        pair.send(0.0)
    return pair


def test_pair_without_faults_reports_none(links: StubLinks, pair: BystanderPair) -> None:
    for number in range(4):
        links.arrive(number)
    pair.take(0.5)
    assert (pair.fault, pair.settled_up_to(4), pair.oldest(), pair.take_worst(), pair.worst) == (
        None,
        True,
        None,
        0.5,
        0,
    )


def test_pair_sends_long_messages_too(links: StubLinks, pair: BystanderPair) -> None:
    pair.send(0.0)
    assert [len(payload) > LARGE_OCTETS // 2 for payload, _ in links.sent] == [number in LARGE for number in range(5)]
    assert {settled for _, settled in links.sent} == {True, False}


@pytest.mark.parametrize(
    ("arrivals", "fault"),
    [
        ((0, 2), "pair: message 2 arrived too early where message 1 was expected"),
        ((0, 0), "pair: message 0 arrived a second time where message 1 was expected"),
    ],
)
def test_missing_or_repeated_message_is_reported(
    links: StubLinks, pair: BystanderPair, arrivals: tuple[int, ...], fault: str
) -> None:
    for number in arrivals:
        links.arrive(number)
    pair.take(0.5)
    assert pair.fault == fault


def test_changed_message_is_reported(links: StubLinks, pair: BystanderPair) -> None:
    links.arrive(0, links.sent[0][0] + b"more")
    pair.take(0.5)
    assert "were not sent" in str(pair.fault)


def test_unexpected_outcome_is_reported(links: StubLinks, pair: BystanderPair) -> None:
    links.arrive(0)
    links.outcomes[0] = SimpleNamespace(settled=True, name="released")
    pair.take(0.5)
    assert pair.fault == "pair: message 0 was released"


def test_oldest_late_message_is_reported(links: StubLinks, pair: BystanderPair) -> None:
    assert pair.oldest() == (0.0, "message 0 has no outcome")
    links.arrive(0)
    pair.take(0.5)
    assert pair.oldest() == (0.0, "message 1 has not arrived")


def test_missing_credit_or_window_is_timed_from_first_attempt(links: StubLinks, pair: BystanderPair) -> None:
    for number in range(4):
        links.arrive(number)
    links.credit = 0
    pair.send(1.0)
    links.credit, links.remote_window = 10, 1
    pair.send(2.0)  # a long message needs more of the window
    pair.take(2.5)
    assert pair.oldest() == (1.0, "message 4 has no credit or no window")
    assert (pair.due, pair.settled_up_to(pair.due)) == (5, False)
    links.remote_window = 10
    pair.send(3.0)
    links.arrive(4)
    pair.take(3.5)
    assert pair.take_worst() == 2.5
