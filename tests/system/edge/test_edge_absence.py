"""Messages that wait at an edge router for another uplink (routerAbsenceSeconds), with scripted interior routers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.peer import message
from tests.peer.container import ScriptedBroker
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.neighbour import properties
from tests.peer.peer import AmqpPeer
from tests.system.edges import EdgeView
from tests.system.fixtures import Start
from tests.system.networks import CONVERGENCE
from tests.system.router import RouterProcess, listener, poll

WORKER_COUNTS = (1, 3)
ADDRESS = "a.c"
KEY = f"M0{ADDRESS}"
TO_ADDRESS = {"x-opt-qd.to": ADDRESS}
TRACKING = "_$qd.edge_addr_tracking"
#: A message of several records between workers.
LONG = b"x" * 100_000


class InteriorLinks:
    """Links of the edge router at a scripted interior router, which answers no look-ups."""

    def __init__(self, broker: ScriptedBroker, name: str) -> None:
        self.peer = broker.serve(CONVERGENCE, container_id=name, properties=properties())
        self._links: dict[str | None, PeerReceiver] = {}  # on which the edge router sends, by target address
        self._tracking: PeerSender | None = None
        self.sources: set[str | None] = set()  # addresses that the edge router receives from
        self.anonymous = self.next(None)

    def next(self, address: str | None) -> PeerReceiver:
        """Accept links until the edge router has one for an address; None: the anonymous link."""
        while address not in self._links or self._tracking is None:
            self._accept()
        return self._links[address]

    def wait_source(self, address: str) -> None:
        """Accept links until the edge router has a receiver for an address."""
        while address not in self.sources:
            self._accept()

    def _accept(self) -> None:
        link = self.peer.link_attached(timeout=CONVERGENCE)
        remote: Any = link.remote
        if isinstance(link, PeerReceiver):
            self._links[remote.target.value[0]] = link
            return
        address = remote.source.value[0]
        self.sources.add(address)
        if address == TRACKING:
            self._tracking = link

    def track(self, key: str) -> None:
        """Report that there are destinations."""
        assert self._tracking is not None
        self._tracking.send(message.value([key, True]), settled=True)


class AwaitedUplinks:
    """An edge router with two uplinks, each to a scripted interior router, and a client that sends."""

    def __init__(self, start: Start, workers: int, seconds: int) -> None:
        self.brokers = [ScriptedBroker(), ScriptedBroker()]
        connectors = [
            ("connector", {"name": f"up{at}", "host": "127.0.0.1", "port": broker.port, "role": "edge"})
            for at, broker in enumerate(self.brokers)
        ]
        router = ("router", {"mode": "edge", "id": "E", "routerAbsenceSeconds": seconds})
        self.router: RouterProcess = start([router, listener(), *connectors], workers)
        self.interior = self.connect(0)
        self.client = AmqpPeer.opened(self.router.port)

    def connect(self, at: int) -> InteriorLinks:
        """Open the connection to an interior router, which becomes the uplink."""
        return InteriorLinks(self.brokers[at], "AB"[at])

    def sender(self) -> PeerSender:
        """Attach a client's sender, whose link at the interior router has no credit."""
        sender = self.client.sender(ADDRESS, credit=False)
        self.interior.next(ADDRESS)
        self.interior.track(KEY)
        sender.wait_credit()
        return sender

    def lose(self) -> None:
        """Lose the uplink, and wait until the edge router knows."""
        self.interior.peer.drop()
        self.router.wait_log("Edge connection .* to interior lost")

    def close(self) -> None:
        self.client.drop()
        for broker in self.brokers:
            broker.close()


@pytest.fixture
def uplinks(start: Start, workers: int) -> Iterator[AwaitedUplinks]:
    made = AwaitedUplinks(start, workers, seconds=60)
    yield made
    made.close()


def bodies(proxy: PeerReceiver, count: int, annotations: Any) -> list[Any]:
    """Receive and accept messages with these annotations; return their bodies."""
    deliveries = proxy.receive(count, CONVERGENCE)
    for each in deliveries:
        assert message.section_of(each.payload, message.MESSAGE_ANNOTATIONS) == annotations
        if not each.settled:
            each.settle()
    return [message.body(each.payload) for each in deliveries]


def test_waiting_messages_leave_by_other_uplink_in_order(uplinks: AwaitedUplinks) -> None:
    sender = uplinks.sender()
    proxy = uplinks.interior.next(ADDRESS)
    proxy.flow(1)
    sent = [sender.send(message.message(number)) for number in range(3)]
    sender.send(message.message(3), settled=True)
    sent.append(sender.send(message.message(LONG, subject="long")))
    proxy.receive(1)
    uplinks.lose()
    assert sender.outcome(sent[0]).name == "modified", "the interior router may have forwarded it"
    other = uplinks.connect(1)
    proxy = other.next(ADDRESS)
    other.track(KEY)
    proxy.flow(10)
    assert bodies(proxy, 4, TO_ADDRESS) == [1, 2, 3, LONG]
    assert [sender.outcome(number).name for number in sent[1:]] == ["accepted"] * 3
    last = sender.send(message.message("later"))
    assert bodies(proxy, 1, TO_ADDRESS) == ["later"]
    assert sender.outcome(last).name == "accepted"


def test_messages_of_anonymous_sender_wait_for_other_uplink(uplinks: AwaitedUplinks) -> None:
    sender = uplinks.client.sender(None)
    sent = [sender.send(message.message(number, to="far.away")) for number in range(2)]
    uplinks.client.barrier()
    uplinks.lose()
    anonymous = uplinks.connect(1).anonymous
    anonymous.flow(10)
    assert bodies(anonymous, 2, None) == [0, 1]
    assert [sender.outcome(number).name for number in sent] == ["accepted"] * 2


def test_messages_are_released_after_uplink_absence(start: Start, workers: int) -> None:
    uplinks = AwaitedUplinks(start, workers, seconds=1)
    try:
        sender = uplinks.sender()
        sent = sender.send(message.message("x"))
        uplinks.client.barrier()
        uplinks.lose()
        assert sender.outcome(sent, timeout=CONVERGENCE).name == "released"
        uplinks.router.wait_log(rf"\(warning\) No other uplink for messages to '{ADDRESS}' within 1 s: those that")
    finally:
        uplinks.close()


def test_new_local_consumer_gets_new_messages_while_others_wait(uplinks: AwaitedUplinks) -> None:
    sender = uplinks.sender()
    first = sender.send(message.message("waits"))
    uplinks.client.barrier()
    uplinks.lose()
    receiver = uplinks.client.receiver(ADDRESS, 10)
    view = EdgeView(uplinks.router)
    poll(lambda: view.consumers(KEY) == 1, "only the client is a consumer", CONVERGENCE)
    sender.wait_credit()
    second = sender.send(message.message("local"))
    delivery = receiver.next()
    assert message.body(delivery.payload) == "local"
    delivery.settle()
    assert sender.outcome(second).name == "accepted"
    other = uplinks.connect(1)
    proxy = other.next(ADDRESS)
    other.track(KEY)
    proxy.flow(10)
    assert bodies(proxy, 1, TO_ADDRESS) == ["waits"]
    assert sender.outcome(first).name == "accepted"


def test_addresses_that_only_wait_have_no_receiver_at_next_uplink(uplinks: AwaitedUplinks) -> None:
    sender = uplinks.sender()
    sender.send(message.message("waits"))
    uplinks.client.barrier()
    uplinks.lose()
    other = uplinks.connect(1)
    other.next(ADDRESS)
    uplinks.client.receiver("last", 10)
    other.wait_source("last")
    assert ADDRESS not in other.sources
