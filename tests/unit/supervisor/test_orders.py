"""Messages to a worker at the end of a wake: orders in bounded frames, then messages of the router itself."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from sluice.router.control.messages import MESSAGES_A_PART, Control, Gone, Order
from sluice.router.control.ops import AddressGone, Op, UnawaitedOp
from sluice.supervisor.children.worker import WorkerProcess, WorkerStage
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.service import Supervisor


class RecordingChannels:
    """Control channels that record the frames sent."""

    def __init__(self) -> None:
        self.parts: list[tuple[list[int], list[bytes]]] = []

    def send(self, identity: bytes, messages: Sequence[Order], octets: Sequence[bytes] = ()) -> None:
        self.parts.append(([getattr(message, "conn", 0) for message in messages], list(octets)))


@pytest.fixture
def channels() -> RecordingChannels:
    return RecordingChannels()


@pytest.fixture
def worker() -> WorkerProcess:
    made = WorkerProcess(0, 1)
    made.stage = WorkerStage.LIVE
    return made


def send(channels: RecordingChannels, worker: WorkerProcess) -> list[tuple[list[int], list[bytes]]]:
    supervisor: Any = SimpleNamespace(_channels=channels)
    Supervisor._send_orders(supervisor, worker)
    sent, channels.parts = channels.parts, []
    return sent


def fill(worker: WorkerProcess, orders: int, own: int) -> None:
    worker.outbox += [Gone(number) for number in range(orders)]
    worker.sends.extend((Control(1000 + number), b"%d" % number) for number in range(own))


def test_empty_outbox_sends_nothing(channels: RecordingChannels, worker: WorkerProcess) -> None:
    assert send(channels, worker) == []


def test_orders_and_sends_share_one_frame(channels: RecordingChannels, worker: WorkerProcess) -> None:
    fill(worker, 2, 2)
    assert send(channels, worker) == [([0, 1, 1000, 1001], [b"0", b"1"])]
    assert (worker.outbox, list(worker.sends)) == ([], [])


@pytest.mark.parametrize("orders", [0, 1, MESSAGES_A_PART - 1, MESSAGES_A_PART, 2 * MESSAGES_A_PART + 1])
def test_order_frames_are_bounded(channels: RecordingChannels, worker: WorkerProcess, orders: int) -> None:
    fill(worker, orders, MESSAGES_A_PART + 2)
    parts = send(channels, worker)
    assert all(len(messages) == MESSAGES_A_PART for messages, _ in parts[:-1])
    numbers = [number for messages, _ in parts for number in messages]
    assert numbers == [*range(orders), *range(1000, 1000 + MESSAGES_A_PART + 2)]
    for messages, octets in parts:
        assert octets == [b"%d" % (number - 1000) for number in messages if number >= 1000]


def test_starting_worker_gets_orders_alone(channels: RecordingChannels, worker: WorkerProcess) -> None:
    worker.stage = WorkerStage.STARTING
    fill(worker, 1, 1)
    assert send(channels, worker) == [([0], [])]
    assert len(worker.sends) == 1


def test_unawaited_epoch_is_acknowledged_later() -> None:
    journal = Journal()
    journal.join(0, 1)
    published: list[tuple[int, list[Op]]] = []
    supervisor: Any = SimpleNamespace(
        _channels=SimpleNamespace(publish=lambda epoch, ops: published.append((epoch, ops))),
        _core=SimpleNamespace(journal=journal),
        _lag=SimpleNamespace(published=lambda epoch: None),
        _pool=SimpleNamespace(watch=lambda: None),
    )
    journal.await_all(2)
    Supervisor._publish(supervisor, 2, [AddressGone(1)])
    Supervisor._publish(supervisor, 3, [AddressGone(2)])
    assert published == [(2, [AddressGone(1)]), (3, [AddressGone(2), UnawaitedOp()])]
