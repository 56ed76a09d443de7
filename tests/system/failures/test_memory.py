"""Memory that an idle worker returns to the operating system."""

from __future__ import annotations

import psutil

from tests.peer import message
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import CAPACITY, Start
from tests.system.router import listener, poll

MIB = 1 << 20
SENDERS = 3
OCTETS = 100_000  # octets of a message, which the worker stores completely
#: Seconds from the last use of much memory to its release (workers/loop.pyx), on a busy machine.
RELEASE_SECONDS = 20.0


def test_memory_of_idle_worker_is_returned(start: Start, peers: list[AmqpPeer]) -> None:
    router = start([listener(maxFrameSize=1 << 20)])
    (pid,) = router.worker_pids()
    worker = psutil.Process(pid)

    def resident() -> int:
        return int(worker.memory_info().rss)

    def connect() -> AmqpPeer:
        peers.append(AmqpPeer.opened(router.port))
        return peers[-1]

    receiver = connect().receiver("a", 0)
    senders = [connect().sender("a") for _ in range(SENDERS)]
    before = resident()
    body = message.message(bytes(OCTETS))
    sent = {sender: [sender.send(body) for _ in range(CAPACITY)] for sender in senders}
    poll(lambda: resident() - before > SENDERS * CAPACITY * OCTETS * 0.9, "all messages are stored in the worker")
    receiver.flow(SENDERS * CAPACITY)
    for delivery in receiver.receive(SENDERS * CAPACITY):
        delivery.settle()
    for sender, numbers in sent.items():
        assert {sender.outcome(number).name for number in numbers} == {"accepted"}
    poll(lambda: resident() - before < 8 * MIB, "the worker is as small as before", RELEASE_SECONDS)
