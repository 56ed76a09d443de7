"""Take-over of a router in a network: neighbours and edge routers find the new process, and no message is lost."""

from __future__ import annotations

import threading
from collections import Counter

from sluice.router.client import Accepted, ClientError, Message, Outcome, UnsettledError, connect
from tests.system.edges import EDGES, edge
from tests.system.fixtures import Start
from tests.system.networks import RouterView, interior, ports
from tests.system.router import RouterProcess, Section, listener, poll

WORKER_COUNTS = (1, 3)
PATIENCE = 60.0
GRACE = {"shutdownGraceSeconds": 30}


def take_over(start: Start, old: RouterProcess, sections: list[Section], workers: int) -> RouterProcess:
    return start(sections, workers, options=("--take-over", str(old.pid)))


def times_of(router: RouterProcess, text: str) -> list[str]:
    """Return the times of the lines of a router's log with a text; times compare as text."""
    return [line[:26] for line in router.lines if text in line]


class AcceptingReceiver(threading.Thread):
    """Receiver at one router that accepts all messages until `stop`. Its connection must not be lost."""

    def __init__(self, port: int, address: str) -> None:
        super().__init__(daemon=True)
        self._connection = connect(f"127.0.0.1:{port}", timeout=PATIENCE)
        self._receiver = self._connection.receiver(address, timeout=PATIENCE)
        self._end = threading.Event()
        self.received: list[int] = []
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            while not self._end.is_set():
                try:
                    delivery = self._receiver.receive(timeout=0.2)
                except TimeoutError:
                    continue
                self.received.append(delivery.message.body)
                delivery.accept()
            self._connection.close()
        except ClientError as error:
            self.error = error

    def stop(self) -> list[int]:
        self._end.set()
        self.join(PATIENCE)
        assert self.error is None
        return self.received


class Sending(threading.Thread):
    """Sender at one router that sends numbered messages until `stop`, and keeps their outcomes."""

    def __init__(self, port: int, address: str) -> None:
        super().__init__(daemon=True)
        self._connection = connect(f"127.0.0.1:{port}", timeout=PATIENCE)
        self._sender = self._connection.sender(address, timeout=PATIENCE)
        self._end = threading.Event()
        self.outcomes: list[Outcome | UnsettledError] = []
        self.accepted = 0
        self.start()

    def run(self) -> None:
        while not self._end.is_set():
            numbers = range(len(self.outcomes), len(self.outcomes) + 20)
            self.outcomes.extend(self._sender.send_all([Message(number) for number in numbers], timeout=PATIENCE))
            self.accepted = sum(isinstance(each, Accepted) for each in self.outcomes)
        self._connection.close()

    def stop(self) -> list[Outcome | UnsettledError]:
        self._end.set()
        self.join(PATIENCE)
        return self.outcomes


def test_take_over_of_transit_router_loses_no_accepted_message(start: Start, workers: int) -> None:
    """The sender is at A, one receiver at C and one at an edge router E; all messages pass B, which is taken over."""
    at_a, at_b, for_edges = ports(3)
    a = start(interior("A", at_a), workers)
    sections = [*interior("B", at_b, [at_a], **GRACE), listener(EDGES, role="edge")]
    sections[-1][1]["port"] = for_edges
    b = start(sections, workers)
    c = start(interior("C", to=[at_b]), workers)
    e = start(edge("E", b))
    RouterView(a).wait_nodes(B=1, C=2)
    receivers = [AcceptingReceiver(c.port, "balanced/flow"), AcceptingReceiver(e.port, "balanced/flow")]
    RouterView(a).wait_remote("M0balanced/flow", "B", "C")
    sender = Sending(a.port, "balanced/flow")
    poll(lambda: all(receiver.received for receiver in receivers), "both receivers get messages", PATIENCE)
    new = take_over(start, b, sections, workers)
    assert b.wait_exit(PATIENCE) == 0
    RouterView(a).wait_nodes(B=1, C=2)
    before = [len(receiver.received) for receiver in receivers]
    poll(
        lambda: all(len(each.received) > count for each, count in zip(receivers, before, strict=True)),
        "both receivers get messages through the new process",
        PATIENCE,
    )
    outcomes = sender.stop()
    received = Counter(number for receiver in receivers for number in receiver.stop())
    accepted = {number for number, outcome in enumerate(outcomes) if isinstance(outcome, Accepted)}
    assert set(received.values()) == {1}
    assert accepted <= received.keys()
    assert "of routers with" not in b.log
    assert max(times_of(b, "Connection Closed")) < min(times_of(new, "Listening on"))


def test_take_over_of_edge_router_replaces_its_uplink(start: Start, workers: int) -> None:
    a = start([*interior("A"), listener(EDGES, role="edge")])
    sections = edge("E", a, **GRACE)
    old = start(sections, workers)
    receiver = AcceptingReceiver(a.port, "closest/up")
    with connect(f"127.0.0.1:{old.port}", timeout=PATIENCE) as client:
        outcomes = client.sender("closest/up", timeout=PATIENCE).send_all([Message(0)], timeout=PATIENCE)
        new = take_over(start, old, sections, workers)
        assert new.ports == old.ports
    assert old.wait_exit(PATIENCE) == 0
    with connect(f"127.0.0.1:{new.port}", timeout=PATIENCE) as client:
        outcomes += client.sender("closest/up", timeout=PATIENCE).send_all([Message(1)], timeout=PATIENCE)
    assert outcomes == [Accepted(), Accepted()]
    assert receiver.stop() == [0, 1]
    assert [row["container"] for row in RouterView(a).query("connection") if row["role"] == "edge"] == ["E"]
    assert max(times_of(old, "to interior lost")) < min(times_of(new, "Configured Connector"))
