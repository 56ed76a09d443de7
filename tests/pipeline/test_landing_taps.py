"""Landers that receive the copies of a tap (docs/user/tap.md)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from sluice.router.client import connect
from tests.peer import message as messages
from tests.peer.peer import AmqpPeer
from tests.pipeline.landers import LanderProcess, message, numbers, rows, send_all
from tests.system.router import SETTINGS, RouterProcess, listener, poll

pytestmark = pytest.mark.timeout(180)

TAP = ("tap", {"name": "audit", "pattern": "must/#", "address": "copies/audit", "mode": "required"})
ADDRESS = "x-opt-sluice.address"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RouterProcess]:
    router = RouterProcess(tmp_path_factory.mktemp("router"), [listener(), *SETTINGS, TAP])
    router.start()
    yield router
    router.stop()


@pytest.fixture
def url(shared: RouterProcess) -> str:
    return f"amqp://127.0.0.1:{shared.port}"


def originals(path: Path) -> set[object]:
    """Return the original addresses of the landed copies."""
    return {messages.annotation(octets, ADDRESS) for octets in rows(path)["message"].to_pylist()}


def test_tap_by_name_lands_each_accepted_message(url: str, tmp_path: Path) -> None:
    """In mode required, what the sender knows as accepted is in both folders."""
    copies, consumed = tmp_path / "copies", tmp_path / "consumed"
    with (
        LanderProcess(url, copies, "--id", "c", "--tap", "audit", address=None).ready() as tapping,
        LanderProcess(url, consumed, "--id", "d", address="must/a").ready() as consuming,
    ):
        send_all(url, map(message, range(1000)), "must/a")
        assert sorted(numbers(copies)) == sorted(numbers(consumed)) == list(range(1000))
        tapping.stop()
        consuming.stop()
    assert set(rows(copies)["address"].to_pylist()) == {"copies/audit"}
    assert originals(copies) == {"must/a"}


@pytest.mark.parametrize("size", [300_000, 3_000_000])
def test_streamed_message_is_accepted_once_its_copy_is_on_disk(url: str, tmp_path: Path, size: int) -> None:
    """The sender's outcome waits for the lander, whatever the length. A message that is not finished is not landed."""
    body = "x" * size
    address = f"must/long/{size}"
    with (
        LanderProcess(url, tmp_path, "--id", f"l{size}", "--tap", "audit", address=None).ready() as lander,
        connect(url, timeout=30) as connection,
        AmqpPeer.opened(int(url.rpartition(":")[2])) as unfinished,
    ):
        receiver = connection.receiver(address)
        aborting = unfinished.sender(address)
        aborting.send(messages.message(body)[:-100], more=True)
        aborting.abort()
        sender = unfinished.sender(address)
        number = sender.send(messages.message(body))
        receiver.receive(timeout=30).accept()
        assert sender.outcome(number).name == "accepted"
        landed = [octets for octets in rows(tmp_path)["message"].to_pylist() if len(octets) > size]
        assert [messages.body(octets) for octets in landed] == [body]
        assert messages.annotation(landed[0], ADDRESS) == address
        lander.stop()


def send_through(url: str, address: str, first: int, count: int) -> None:
    """Send numbered messages to an address, and receive them there."""
    with connect(url, timeout=30) as connection:
        receiver, sender = connection.receiver(address), connection.sender(address)
        for number in range(first, first + count):
            sender.send(message(number), settled=True)
        for _ in range(count):
            receiver.receive(timeout=30).accept()


def test_tap_for_pattern_is_made_and_lands_addresses_that_appear_later(url: str, tmp_path: Path) -> None:
    words = ("--id", "p", "--tap", "sensors/#")
    with LanderProcess(url, tmp_path, *words, address=None).ready() as lander:
        lander.wait_line(r"^made tap 'lander-p' \(copy\)")
        send_through(url, "sensors/a", 0, 50)
        send_through(url, "sensors/b/c", 50, 50)
        poll(lambda: len(numbers(tmp_path)) == 100, "all are landed")
        lander.stop()
    with LanderProcess(url, tmp_path, *words, address=None).ready() as lander:
        lander.wait_line(r"^tap 'lander-p' \(copy\) copies sensors/#")
        send_through(url, "sensors/a", 100, 10)
        poll(lambda: sorted(numbers(tmp_path)) == list(range(110)), "all are landed once")
        lander.stop()
    assert originals(tmp_path) == {"sensors/a", "sensors/b/c"}


@pytest.mark.parametrize(
    ("tap", "text"), [("nothing", "the router has no tap 'nothing'"), ("copies/*", "copies would be copied")]
)
def test_useless_tap_ends_the_lander_with_its_reason(url: str, tmp_path: Path, tap: str, text: str) -> None:
    with LanderProcess(url, tmp_path, "--id", "u", "--tap", tap, address=None) as lander:
        assert lander.wait() == 1
        assert any(text in line for line in lander.lines)
