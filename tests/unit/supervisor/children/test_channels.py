"""Supervisor's ends of the control channels: batches, full sockets, malformed messages, and workers that exit."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sluice.router.control.codec import decode_orders, encode
from sluice.router.control.framing import FrameDecoder, pack
from sluice.router.control.messages import Ack, Gone, Order
from sluice.supervisor.children.channels import MESSAGES_A_WAKE, WorkerChannels, make_keys
from sluice.supervisor.children.private_directory import PrivateDirectory
from tests.unit.supervisor.harness import PATIENCE
from tests.unit.supervisor.listeners.test_acceptor import until

ORDERS = 100


class ChannelsWithWorkers:
    """Channels with the workers' ends of them."""

    def __init__(self) -> None:
        # messages of each wake: identity, epoch of an acknowledgement
        self.wakes: list[list[tuple[bytes, int]]] = [[]]
        self.refused: list[tuple[bytes, str]] = []
        self.to_send: list[tuple[bytes, int]] = []
        self.directory = PrivateDirectory()
        self.channels = WorkerChannels(asyncio.get_running_loop(), str(self.directory.path), make_keys(), self)

    def receive(self, identity: bytes, messages: list[tuple[Any, bytes | None]]) -> None:
        self.wakes[-1] += [(identity, message.epoch) for message, _ in messages]

    def subscribed(self, topic: bytes) -> None:
        """Ignore subscriptions."""

    def refuse(self, identity: bytes, text: str) -> None:
        self.refused.append((identity, text))

    def flush(self) -> None:
        self.wakes.append([])
        for identity, count in self.to_send:
            self.channels.send(identity, [Gone(number) for number in range(count)])
        self.to_send.clear()

    def worker(self, identity: bytes) -> socket.socket:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self.channels.connect(identity, ours)
        return theirs

    @property
    def received(self) -> list[tuple[bytes, int]]:
        return [each for wake in self.wakes for each in wake]


Scenario = Callable[[ChannelsWithWorkers], Awaitable[None]]


@pytest.fixture
def run() -> Callable[[Scenario], None]:
    def run_scenario(scenario: Scenario) -> None:
        async def body() -> None:
            setup = ChannelsWithWorkers()
            try:
                async with asyncio.timeout(PATIENCE):
                    await scenario(setup)
            finally:
                setup.channels.close()
                setup.directory.remove()

        asyncio.run(body())

    return run_scenario


def acks(first: int, count: int) -> bytes:
    return b"".join(pack([encode([Ack(number)])]) for number in range(first, first + count))


def test_workers_are_read_in_turn(run: Callable[[Scenario], None]) -> None:
    """A worker with many messages delays another by as many messages as that one has sent."""

    async def scenario(setup: ChannelsWithWorkers) -> None:
        much, little = setup.worker(b"w0"), setup.worker(b"w1")
        much.send(acks(0, 2 * MESSAGES_A_WAKE))
        little.send(acks(0, 3))
        await until(lambda: len(setup.received) == 2 * MESSAGES_A_WAKE + 3)
        assert max(map(len, setup.wakes)) == MESSAGES_A_WAKE
        assert [number for number, (name, _) in enumerate(setup.received) if name == b"w1"][-1] < 6
        for name in (b"w0", b"w1"):
            epochs = [epoch for own, epoch in setup.received if own == name]
            assert epochs == list(range(len(epochs)))
        much.close()
        little.close()

    run(scenario)


def test_orders_beyond_socket_buffer_are_sent_later(run: Callable[[Scenario], None]) -> None:
    async def scenario(setup: ChannelsWithWorkers) -> None:
        worker, other = setup.worker(b"w0"), setup.worker(b"w1")
        setup.to_send = [(b"w0", ORDERS)] * 1000 + [(b"w1", 1)]
        setup.channels.wake()
        frames = FrameDecoder()
        taken: list[Order] = []
        frames.feed(other.recv(65536))
        assert frames.take() is not None, "other workers do not wait"
        setup.to_send = [(b"w0", 1)]
        setup.channels.wake()
        while len(taken) < 1000 * ORDERS + 1:
            frames.feed(await asyncio.get_running_loop().sock_recv(worker, 1 << 20))
            while (parts := frames.take()) is not None:
                taken += decode_orders(parts[0])
        assert taken == [Gone(number) for number in range(ORDERS)] * 1000 + [Gone(0)]
        worker.close()
        other.close()

    run(scenario)


def test_last_messages_of_worker_are_received(run: Callable[[Scenario], None]) -> None:
    """Messages sent to the worker afterwards are dropped."""

    async def scenario(setup: ChannelsWithWorkers) -> None:
        worker = setup.worker(b"w0")
        worker.send(acks(0, 1))
        worker.close()
        await until(lambda: setup.received == [(b"w0", 0)])
        setup.to_send = [(b"w0", 1)]
        setup.channels.wake()
        setup.channels.disconnect(b"w0")
        setup.to_send = [(b"w0", 1)]
        setup.channels.wake()
        assert not setup.refused

    run(scenario)


@pytest.mark.parametrize("octets", [b"\xff" * 4, pack([]), pack([b"[{}]"])], ids=["length", "empty", "message"])
def test_malformed_messages_are_refused(run: Callable[[Scenario], None], octets: bytes) -> None:
    async def scenario(setup: ChannelsWithWorkers) -> None:
        worker, other = setup.worker(b"w0"), setup.worker(b"w1")
        worker.send(octets)
        other.send(acks(0, 1))
        await until(lambda: bool(setup.refused) and bool(setup.received))
        assert [name for name, _ in setup.refused] == [b"w0"]
        assert setup.received == [(b"w1", 0)]
        worker.close()
        other.close()

    run(scenario)
