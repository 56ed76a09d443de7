"""Bounds of buffered octets for a connection and a worker (maxBufferedMegabytes), and eviction at a worker's bound."""

from __future__ import annotations

import pytest

from tests.peer import message
from tests.peer.links import PeerLink
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Connect, Fresh, Start
from tests.system.http import WEB, scrape, wait_page
from tests.system.router import RouterProcess, Section, listener, poll

pytestmark = pytest.mark.adversarial

SECTIONS: list[Section] = [listener("bounded", maxBufferedMegabytes=1)]
#: Octets of a message; more than a session window admits.
ENDLESS = 40_000_000
#: Seconds without progress after which a sender counts as blocked.
BLOCKED_SECONDS = 1.0
#: Bound of a worker in octets, the smallest that can be configured.
LIMIT = 16 << 20
#: Octets of a message in one frame, and the number of messages of each producer; together more than LIMIT.
PART = 15_000
MESSAGES_PER_PRODUCER = (440, 240, 240, 240)
#: Seconds that suffice for the eviction of a link and for the messages that use the freed memory.
EVICTION_SECONDS = 30.0


def test_connection_at_its_bound_loses_only_the_filling_link(
    connect: Connect, fresh: Fresh, router: RouterProcess
) -> None:
    stuck, alive = fresh(), fresh()
    silent = connect()
    silent.begin(incoming_window=0).receiver(stuck, credit=5)
    receiver = connect().receiver(alive, 5)
    peer = connect("bounded")
    filling, sender = peer.sender(stuck), peer.sender(alive)
    assert not filling.send_some(message.data(bytes(ENDLESS)), BLOCKED_SECONDS)
    condition = filling.wait_detached()
    assert condition is not None
    assert condition[0] == "amqp:resource-limit-exceeded"
    number = sender.send(message.message("goes on"))
    receiver.next().settle()
    assert sender.outcome(number).name == "accepted"
    poll(lambda: "that no receiver took: the link was closed" in router.log, "a line in the log says so")


class WorkerConnections:
    """Connections to workers that the test chooses."""

    def __init__(self, router: RouterProcess, peers: list[AmqpPeer]) -> None:
        self.router = router
        self.peers = peers
        self.all = router.worker_pids()

    def connect(self, pid: int, listener: str = "") -> AmqpPeer:
        """Return a connection of worker `pid`. Each new connection goes to the worker that has the fewest."""
        for _ in range(2 * len(self.all)):
            peer = AmqpPeer.opened(self.router.ports[listener])
            self.peers.append(peer)
            if self.router.worker_of(peer.socket.getsockname()[1]) == pid:
                return peer
        raise AssertionError(f"no connection has come to worker {pid}")


def test_worker_at_its_bound_evicts_only_the_filling_link(start: Start, workers: int, peers: list[AmqpPeer]) -> None:
    """Several connections hold messages that the consumers of one worker do not take.

    With several workers the producers are at another worker, so the messages come through a ring.
    """
    router = start(
        [("router", {"maxBufferedMegabytes": LIMIT >> 20}), WEB, listener(), listener("small", maxSessionFrames=20)],
        workers,
    )
    placed = WorkerConnections(router, peers)
    crowded, other = placed.all[0], placed.all[-1]
    silent = placed.connect(crowded).begin(incoming_window=0)
    consumers = [silent.receiver(f"deaf{number}", credit=5) for number in range(len(MESSAGES_PER_PRODUCER))]
    silent.receiver("little", credit=5)
    receiver = placed.connect(crowded).receiver("taken", 5)
    innocent = placed.connect(crowded, "small")
    little, sender = innocent.sender("little"), innocent.sender("taken")
    assert little.send_some(message.data(bytes(10 * PART)), EVICTION_SECONDS)
    producers = [placed.connect(other).sender(f"deaf{number}") for number in range(len(MESSAGES_PER_PRODUCER))]
    for producer, messages in zip(producers, MESSAGES_PER_PRODUCER, strict=True):
        for _ in range(messages):
            producer.send(message.data(bytes(PART)))
    web = router.ports["web"]
    poll(lambda: scrape(web).sum("sluice_worker_buffered_bytes") >= LIMIT, "the worker is full")
    assert sender.send_some(message.data(bytes(40 * PART)), EVICTION_SECONDS)
    receiver.next(EVICTION_SECONDS).settle()
    ended: PeerLink = (producers if crowded == other else consumers)[0]
    condition = ended.wait_detached()
    assert condition is not None
    assert condition[0] == "amqp:resource-limit-exceeded"
    page = wait_page(web, "one link is evicted", sluice_worker_given_up_total=1, sluice_worker_windows_shut=0)
    assert page.sum("sluice_worker_buffered_bytes") < LIMIT
    for link in [little, sender, *producers[1:], *consumers[1:]]:
        link.session.peer.read_available()
        assert not link.detached
