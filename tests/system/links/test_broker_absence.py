"""brokerAbsenceSeconds: what waits for a broker that is lost is sent when it returns, and released when it does not."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.peer import frames
from tests.peer.container import Container, ScriptedBroker
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.management import Management
from tests.peer.message import message
from tests.peer.peer import AmqpPeer
from tests.peer.types import Described, ULong
from tests.system.fixtures import Start
from tests.system.router import RouterProcess, Section, listener

WORKER_COUNTS = (1, 3)
QUEUE = "queue"
#: Seconds for which a broker is awaited in tests in which it returns.
LONG = 60
#: Delivery state of a message in a transaction.
TRANSACTION = Described(ULong(0x34), [b"t1", None])
TEXTS = [f"message {number}".encode() for number in range(5)]


class AbsenceRouter:
    """A router with a connector to a scripted broker, an auto link to its queue, and a client for each worker."""

    def __init__(self, router: RouterProcess, broker: ScriptedBroker, workers: int) -> None:
        self.router = router
        self.broker = broker
        self.container: Container | None = None
        self.clients = [
            AmqpPeer.opened(router.ports["clients"], container_id=f"client{number}") for number in range(workers)
        ]

    def connect(self) -> PeerReceiver:
        """Let the router connect, and accept its link to the queue."""
        self.container = self.broker.serve()
        link = self.container.link_attached()
        assert isinstance(link, PeerReceiver)
        return link

    def drop(self) -> None:
        """Lose the connection, as when the broker's process ends."""
        assert self.container is not None
        self.container.drop()

    def senders(self) -> list[PeerSender]:
        """Return a sender of each client with credit."""
        senders = [client.sender(QUEUE) for client in self.clients]
        for sender in senders:
            sender.wait_credit()
        return senders

    def wait_logged(self, text: str) -> None:
        self.router.wait_log(text)


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    broker = ScriptedBroker()
    yield broker
    broker.close()


@pytest.fixture
def start_router(start: Start, workers: int, broker: ScriptedBroker) -> Callable[..., AbsenceRouter]:
    """Return a function that starts a router. seconds: brokerAbsenceSeconds."""

    def begin(seconds: int = LONG, *, waypoint: bool = True) -> AbsenceRouter:
        sections: list[Section] = [
            listener("clients"),
            ("connector", {"name": "broker", "host": "127.0.0.1", "port": broker.port, "role": "route-container"}),
            ("address", {"prefix": QUEUE, "waypoint": waypoint}),
            (
                "autoLink",
                {"address": QUEUE, "direction": "out", "connection": "broker", "brokerAbsenceSeconds": seconds},
            ),
        ]
        return AbsenceRouter(start(sections, workers), broker, workers)

    return begin


def queue_up(senders: list[PeerSender]) -> list[int]:
    """Send the texts from each sender while the broker grants no credit. Return the delivery-ids of the first."""
    ids = [[sender.send(message(text)) for text in TEXTS] for sender in senders]
    return ids[0]


def bodies(link: PeerReceiver, count: int) -> list[bytes]:
    """Receive and accept deliveries."""
    received = link.receive(count)
    for delivery in received:
        delivery.settle()
    return [bytes(delivery.payload) for delivery in received]


def test_lost_broker_returns_and_gets_what_waited_in_order(start_router: Callable[..., AbsenceRouter]) -> None:
    own = start_router()
    own.connect()
    senders = own.senders()
    queue_up(senders)
    own.drop()
    own.wait_logged("wait up to")
    late = [sender.send(message(b"late")) for sender in senders]  # with credit that it was granted before
    link = own.connect()
    link.flow(100)
    received = bodies(link, len(senders) * (len(TEXTS) + 1))
    expected = [message(text) for text in [*TEXTS, b"late"]]
    assert sorted(received) == sorted(expected * len(senders))
    first = [payload for payload in received if payload in expected]
    if len(senders) == 1:
        assert first == expected, "the order of one sender"
    for sender, delivery in zip(senders, late, strict=True):
        assert sender.outcome(delivery).name == "accepted"
    own.wait_logged("is back after")


def test_senders_of_absent_broker_get_no_credit_until_it_returns(start_router: Callable[..., AbsenceRouter]) -> None:
    own = start_router()
    own.connect()
    senders = own.senders()
    own.drop()
    for sender in senders:
        sender.peer.until(lambda sender=sender: sender.credit == 0, "no credit")  # type: ignore[misc]
        assert not sender.draining
    explained = Management(own.clients[0]).ask("EXPLAIN", address=QUEUE).body
    assert any("wait for it up to" in finding for finding in explained["findings"]), explained
    newcomer = own.clients[0].sender(QUEUE, credit=False)
    own.clients[0].barrier()
    assert newcomer.credit == 0
    link = own.connect()
    link.flow(100)
    for sender in [*senders, newcomer]:
        sender.wait_credit()
        outcome = sender.send(message(b"again"))
        link.next().settle()
        assert sender.outcome(outcome).name == "accepted"


def test_broker_that_does_not_return_in_time_releases_what_waited(start_router: Callable[..., AbsenceRouter]) -> None:
    own = start_router(seconds=1)
    own.connect()
    senders = own.senders()
    ids = queue_up(senders)
    own.drop()
    own.broker.refuse()
    for delivery in ids:
        assert senders[0].outcome(delivery).name == "released"
    own.wait_logged("is not back after 1 s")
    own.broker.listen()
    link = own.connect()
    link.flow(10)
    senders[0].wait_credit()
    delivery = senders[0].send(message(b"new"))
    assert bodies(link, 1) == [message(b"new")]
    assert senders[0].outcome(delivery).name == "accepted"


def test_messages_that_broker_had_are_modified_and_transactions_end(start_router: Callable[..., AbsenceRouter]) -> None:
    own = start_router()
    link = own.connect()
    (sender, *_) = own.senders()
    link.flow(1)
    seen = sender.send(message(b"seen"))
    link.next()
    waiting = sender.send(message(b"waits"))
    transactional = sender.send(message(b"transactional"), state=TRANSACTION)
    own.clients[0].barrier()
    own.drop()
    assert sender.outcome(seen).name == "modified", "the broker may have it or not"
    assert sender.outcome(transactional).name == "released", "its transaction is gone"
    link = own.connect()
    link.flow(10)
    assert bodies(link, 1) == [message(b"waits")]
    assert sender.outcome(waiting).name == "accepted"


def test_presettled_messages_wait_as_well(start_router: Callable[..., AbsenceRouter]) -> None:
    own = start_router()
    own.connect()
    (sender, *_) = own.senders()
    for text in TEXTS:
        sender.send(message(text), settled=True)
    own.clients[0].barrier()
    own.drop()
    link = own.connect()
    link.flow(10)
    assert [bytes(each.payload) for each in link.receive(len(TEXTS))] == [message(text) for text in TEXTS]


def test_queue_that_is_missing_for_a_while_gets_what_waited(start_router: Callable[..., AbsenceRouter]) -> None:
    own = start_router()
    link = own.connect()
    senders = own.senders()
    delivery = senders[-1].send(message(b"waits"))
    link.send_detach(error=frames.error("amqp:resource-deleted", "the queue is gone"))
    own.wait_logged("wait up to")
    assert own.container is not None
    again = own.container.link_attached(timeout=10)
    assert isinstance(again, PeerReceiver)
    again.flow(10)
    assert bodies(again, 1) == [message(b"waits")]
    assert senders[-1].outcome(delivery).name == "accepted"


def test_consumer_beside_lost_broker_ends_wait(start_router: Callable[..., AbsenceRouter]) -> None:
    own = start_router(waypoint=False)
    own.connect()
    senders = own.senders()
    delivery = senders[0].send(message(b"waits"))
    own.broker.refuse()
    own.drop()
    own.wait_logged("wait up to")
    receiver = own.clients[-1].receiver(QUEUE, credit=10)
    assert senders[0].outcome(delivery).name == "released"
    for sender in senders:
        sender.wait_credit()
        again = sender.send(message(b"again"))
        receiver.next().settle()
        assert sender.outcome(again).name == "accepted"


def test_lost_worker_of_broker_ends_wait(start_router: Callable[..., AbsenceRouter], workers: int) -> None:
    if workers == 1:
        pytest.skip("the only worker has the clients as well")
    own = start_router()
    own.connect()
    broker_worker = own.router.worker_of(own.broker.port)
    own.broker.refuse()
    own.drop()
    own.wait_logged("wait up to")
    os.kill(broker_worker, signal.SIGKILL)
    own.broker.listen()
    link = own.connect()
    link.flow(10)
    client = AmqpPeer.opened(own.router.ports["clients"])
    sender = client.sender(QUEUE)
    sender.wait_credit()
    delivery = sender.send(message(b"new"))
    assert bodies(link, 1) == [message(b"new")]
    assert sender.outcome(delivery).name == "accepted"


def test_broker_without_absence_releases_messages_at_once(start_router: Callable[..., AbsenceRouter]) -> None:
    own = start_router(seconds=0)
    own.connect()
    senders = own.senders()
    ids = queue_up(senders)
    own.drop()
    for delivery in ids:
        assert senders[0].outcome(delivery).name == "released"


def test_broker_that_is_lost_again_and_again_loses_and_releases_nothing(
    start_router: Callable[..., AbsenceRouter],
) -> None:
    own = start_router()
    link = own.connect()
    senders = own.senders()
    sent: dict[tuple[int, int], bytes] = {}
    seen: list[bytes] = []
    for turn in range(3):
        link.flow(15)
        for number, sender in enumerate(senders):
            sender.wait_credit()
            for count in range(20):
                text = message(f"{number} {turn} {count}".encode())
                sent[number, sender.send(text)] = text
        for delivery in link.receive(10):
            delivery.settle()
            seen.append(bytes(delivery.payload))
        own.drop()
        link = own.connect()
    link.flow(1000)
    # Of the 15 messages of each turn, 5 have no outcome and are modified. All others arrive.
    for got in link.receive(len(sent) - 3 * 15):
        got.settle()
        seen.append(bytes(got.payload))
    outcomes = {text: senders[number].outcome(delivery).name for (number, delivery), text in sent.items()}
    assert Counter(outcomes.values()) == {"accepted": len(sent) - 15, "modified": 15}
    assert {text for text, outcome in outcomes.items() if outcome == "accepted"} <= set(seen)
    assert len(set(seen)) == len(seen), "none is sent twice"
