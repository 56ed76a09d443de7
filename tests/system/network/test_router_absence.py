"""Messages that wait for the only path to their destination (routerAbsenceSeconds): a line A-B-C whose B is away."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.peer import message
from tests.peer.links import PeerSender
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Start
from tests.system.networks import CONVERGENCE, RouterView, interior, ports
from tests.system.router import RouterProcess

WORKER_COUNTS = (1, 3)
ADDRESS = "away"
KEY = f"M0{ADDRESS}"
LONG = 60  # seconds of the wait in tests in which the router returns
#: Messages of one record and of several records between workers, and one that leaves by a link for streams.
BODIES = [b"first", b"x" * 3_000, b"y" * 100_000, b"last"]


class LineOfRouters:
    """Routers A, B and C in a line, a sender for each worker of A, and a receiver at C."""

    def __init__(self, start: Start, workers: int, seconds: int) -> None:
        net = ports(2)
        common: dict[str, Any] = {"routerAbsenceSeconds": seconds, "shutdownGraceSeconds": 30}
        self.a: RouterProcess = start(interior("A", net[0], **common), workers)
        self.c: RouterProcess = start(interior("C", net[1], **common), workers)
        self.b: RouterProcess = start(interior("B", to=net, **common), workers)
        self.wait_line()
        self.peers = [AmqpPeer.opened(self.a.port, container_id=f"sender{at}") for at in range(workers)]
        self.at_c = AmqpPeer.opened(self.c.port)
        self.receiver = self.at_c.receiver(ADDRESS, 1000)
        RouterView(self.a).wait_remote(KEY, "C")
        self.senders = [peer.sender(ADDRESS) for peer in self.peers]
        for sender in self.senders:
            sender.wait_credit()

    def wait_line(self) -> None:
        RouterView(self.a).wait_nodes(B=1, C=2)
        RouterView(self.c).wait_nodes(B=1, A=2)

    def lose(self, *, drained: bool) -> None:
        """End router B, and wait until A knows."""
        if drained:
            self.b.stop(signal.SIGTERM)
        else:
            self.b.kill()
        self.a.wait_log("is not reachable", CONVERGENCE)

    def send(self) -> list[tuple[PeerSender, int]]:
        """Send each body by each sender. Return the deliveries."""
        return [(sender, sender.send(message.message(body))) for sender in self.senders for body in BODIES]

    def receive(self, count: int) -> list[bytes]:
        """Receive and accept messages at C; return their bodies."""
        received = self.receiver.receive(count, CONVERGENCE)
        for delivery in received:
            delivery.settle()
        return [message.body(delivery.payload) for delivery in received]

    def close(self) -> None:
        for peer in (*self.peers, self.at_c):
            peer.drop()


@pytest.fixture
def line(start: Start, workers: int) -> Iterator[LineOfRouters]:
    made = LineOfRouters(start, workers, LONG)
    yield made
    made.close()


@pytest.mark.parametrize("drained", [True, False], ids=["drained", "killed"])
def test_messages_wait_for_router_that_restarts_on_the_only_path(line: LineOfRouters, drained: bool) -> None:
    line.lose(drained=drained)
    sent = line.send()
    for peer in line.peers:
        peer.barrier()
    explained = Management(line.peers[0]).ask("EXPLAIN", address=ADDRESS).body
    assert any("Messages wait for a path up to" in finding for finding in explained["findings"]), explained
    line.b.start()
    assert sorted(line.receive(len(sent))) == sorted(BODIES * len(line.senders))
    assert {sender.outcome(number, timeout=CONVERGENCE).name for sender, number in sent} == {"accepted"}
    line.a.wait_log("Router 'C' is reachable after")
    later = line.send()
    assert sorted(line.receive(len(later))) == sorted(BODIES * len(line.senders))
    assert {sender.outcome(number).name for sender, number in later} == {"accepted"}


def test_messages_are_released_after_router_absence(start: Start, workers: int) -> None:
    line = LineOfRouters(start, workers, seconds=1)
    try:
        line.lose(drained=False)
        sent = line.send()
        assert {sender.outcome(number, timeout=CONVERGENCE).name for sender, number in sent} == {"released"}
        line.a.wait_log(r"\(warning\) No path to router 'C' within 1 s: messages that waited for it are released")
    finally:
        line.close()


def test_consumer_of_this_router_gets_new_messages_while_others_wait(line: LineOfRouters) -> None:
    line.lose(drained=False)
    waiting = line.send()
    line.peers[0].barrier()
    receiver = line.peers[0].receiver(ADDRESS, 100)
    sender = line.senders[-1]
    new = sender.send(message.message(b"new"))
    got = receiver.next()
    assert message.body(got.payload) == b"new"
    got.settle()
    assert sender.outcome(new).name == "accepted"
    line.b.start()
    assert sorted(line.receive(len(waiting))) == sorted(BODIES * len(line.senders))
    assert {sender.outcome(number, timeout=CONVERGENCE).name for sender, number in waiting} == {"accepted"}
