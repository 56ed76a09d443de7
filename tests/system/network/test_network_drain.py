"""Drain of a router in a network: others route around it, and no message is lost or released."""

from __future__ import annotations

import os
import signal
import threading

from sluice.router.client import Accepted, ClientError, Message, Outcome, UnsettledError, connect
from tests.peer import message
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Start
from tests.system.networks import RouterView, connector, interior, ports

PATIENCE = 30.0
GRACE = {"shutdownGraceSeconds": 60}


def test_network_routes_around_draining_router(start: Start, peers: list[AmqpPeer]) -> None:
    """A and C have a direct connection of higher cost than the path through B."""
    at_a, at_b = ports(2)
    a = start(interior("A", at_a))
    b = start(interior("B", at_b, [at_a], **GRACE))
    c = start([*interior("C", to=[at_b]), connector(at_a, cost=10)])
    view_a, view_c = RouterView(a), RouterView(c)
    view_a.wait_nodes(B=1, C=2)
    view_c.wait_nodes(B=1, A=2)
    holds = AmqpPeer.opened(b.port)
    peers.append(holds)
    receiver = holds.receiver("held", 1)
    peers.append(AmqpPeer.opened(b.port))
    sender = peers[-1].sender("held")
    number = sender.send(message.message("x"))
    delivery = receiver.next()
    os.kill(b.pid, signal.SIGTERM)
    view_a.wait_nodes(B=1, C=10)
    view_c.wait_nodes(B=1, A=10)
    assert b.alive
    delivery.settle()
    assert sender.outcome(number).name == "accepted"
    assert b.wait_exit(PATIENCE) == 0


class AcceptingConsumer(threading.Thread):
    """Consumer that accepts all messages until its router closes the connection, or until `stop`."""

    def __init__(self, port: int, address: str) -> None:
        super().__init__(daemon=True)
        self._connection = connect(f"127.0.0.1:{port}", timeout=PATIENCE)
        self._receiver = self._connection.receiver(address, timeout=PATIENCE)
        self._end = threading.Event()
        self.received: list[int] = []
        self.error = ""

    def run(self) -> None:
        while not self._end.is_set():
            try:
                delivery = self._receiver.receive(timeout=0.2)
            except TimeoutError:
                continue
            except ClientError as error:
                self.error = str(error)
                return
            self.received.append(delivery.message.body)
            delivery.accept()
        self._connection.close()

    def stop(self) -> None:
        self._end.set()
        self.join(PATIENCE)


def test_messages_to_leaving_consumer_of_draining_router_are_accepted(start: Start) -> None:
    """The last consumer of the address at B leaves, while the producer at A uses both routers."""
    (at_a,) = ports(1)
    a = start(interior("A", at_a), 3)
    b = start(interior("B", to=[at_a], **GRACE), 3)
    RouterView(a).wait_nodes(B=1)
    consumers = [AcceptingConsumer(a.port, "balanced/flow"), AcceptingConsumer(b.port, "balanced/flow")]
    RouterView(a).wait_remote("M0balanced/flow", "B")
    for consumer in consumers:
        consumer.start()
    outcomes: list[Outcome | UnsettledError] = []
    with connect(f"127.0.0.1:{a.port}", timeout=PATIENCE) as producing:
        sender = producing.sender("balanced/flow", timeout=PATIENCE)

        def send() -> None:
            numbers = range(len(outcomes), len(outcomes) + 50)
            outcomes.extend(sender.send_all([Message(number) for number in numbers], timeout=PATIENCE))

        while not consumers[1].received:
            send()
        os.kill(b.pid, signal.SIGTERM)
        while b.alive:
            send()
        send()
    for consumer in consumers:
        consumer.stop()
    assert {type(outcome) for outcome in outcomes} == {Accepted}
    assert sorted(consumers[0].received + consumers[1].received) == list(range(len(outcomes)))
    assert "amqp:connection:forced" in consumers[1].error
    assert b.wait_exit(PATIENCE) == 0
