"""Forwarding over several routers: closest, balanced, no destination, fallback (inter-router.md 11)."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from tests.interop.network.conftest import ChainNetwork, MiddleNetwork
from tests.interop.network.net import InteropNetwork, router_annotations
from tests.peer import frames, message
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.router19.keys import FALLBACK_PHASE
from tests.peer.router19.router import Router19Consumer
from tests.system.router import poll

WORKER_COUNTS = (1, 3)
Fresh = Callable[..., str]


# --- chain A - M - B ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["closest", "balanced", "multicast"])
@pytest.mark.parametrize("settled", [False, True], ids=["unsettled", "presettled"])
def test_traffic_through_1_19_router_arrives(chain: ChainNetwork, fresh: Fresh, prefix: str, settled: bool) -> None:
    address = fresh(prefix)
    receiver = chain.b.client().receiver(address, credit=100)
    sender = chain.a.client().sender(address)
    for number in range(20):
        delivery = sender.send(message.message(number), settled=settled or None)
        got = receiver.next()
        assert message.body(got.payload) == number
        assert got.settled == settled
        if not settled:
            got.settle()
            assert sender.outcome(delivery).name == "accepted"


def test_message_order_is_kept(chain: ChainNetwork, fresh: Fresh) -> None:
    address = fresh("closest")
    receiver = chain.b.client().receiver(address, credit=500)
    sender = chain.a.client().sender(address)
    for number in range(250):
        sender.send(message.message(number))
    assert [message.body(one.payload) for one in receiver.receive(250)] == list(range(250))


def test_anonymous_sender_reaches_remote_address(chain: ChainNetwork, fresh: Fresh) -> None:
    address = fresh("balanced")
    receiver = chain.b.client().receiver(address, credit=10)
    chain.a.wait_remote("M0" + address, "B")
    sender = chain.a.client().sender()
    number = sender.send(message.message("x", to=address))
    receiver.next().settle()
    assert sender.outcome(number).name == "accepted"


def test_dynamic_address_is_reachable_over_network(chain: ChainNetwork) -> None:
    receiver = chain.a.client().receiver(dynamic=True, credit=10)
    assert receiver.address.startswith("amqp:/_topo/0/A/temp.")
    sender = chain.b.client().sender()
    number = sender.send(message.message("reply", to=receiver.address))
    got = receiver.next()
    assert message.body(got.payload) == "reply"
    got.settle()
    assert sender.outcome(number).name == "accepted"


def test_messages_from_1_19_reach_both_ends(chain: ChainNetwork, fresh: Fresh) -> None:
    for sluice in (chain.a, chain.b):
        address = fresh("closest")
        receiver = sluice.client().receiver(address, credit=10)
        chain.m.wait_key("M0" + address, sluice.name)
        sent = chain.m.send(address, message.message("x"))
        receiver.next().settle()
        assert sent.outcome() == "accepted"


def test_reply_address_of_1_19_is_reachable(chain: ChainNetwork, fresh: Fresh) -> None:
    consumer = chain.m.consumer("_topo/0/M/temp." + fresh("t").replace("/", ""))
    sender = chain.b.client().sender()
    outcome = sender.request(message.message("x", to="amqp:/_topo/0/M/" + consumer.key[1:]))
    assert outcome.name == "accepted"
    assert consumer.next().body == "x"


# --- closest ----------------------------------------------------------------------------------------------------------


def test_closest_prefers_local_consumers(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh("closest")
    far = middle.right.consumer(address)
    middle.s.wait_remote(far.key, "R")
    local = middle.s.client().receiver(address)
    sender = middle.s.client().sender(address)
    poll(lambda: (middle.s.address(far.key) or {}).get("subscriberCount") == 1, "the local consumer is known")
    for number in range(5):
        sender.send(message.message(number))
    local.flow(10)
    assert [message.body(one.payload) for one in local.receive(5)] == list(range(5))
    assert far.arrivals == []


def test_closest_alternates_between_equal_costs(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh("closest")
    consumers = [middle.left.consumer(address), middle.right.consumer(address)]
    middle.s.wait_remote(consumers[0].key, "L", "R")
    sender = middle.s.client().sender(address)
    for number in range(10):
        assert sender.request(message.message(number)).name == "accepted"
    assert [len(one.arrivals) for one in consumers] == [5, 5]


def test_closest_prefers_lower_cost(network: InteropNetwork, fresh: Fresh) -> None:
    near, far = network.router19("N"), network.router19("F")
    sluice = network.sluice("S")
    near.connect(sluice.ports["ir"], 3)
    far.connect(sluice.ports["ir"], 7)
    network.wait_converged()
    address = fresh("closest")
    first, second = near.consumer(address), far.consumer(address)
    sluice.wait_remote("M0" + address, "N", "F")
    sender = sluice.client().sender(address)
    for number in range(6):
        assert sender.request(message.message(number)).name == "accepted"
    assert (len(first.arrivals), len(second.arrivals)) == (6, 0)
    first.close()
    sluice.wait_remote("M0" + address, "F")
    assert sender.request(message.message("then")).name == "accepted"
    assert len(second.arrivals) == 1


# --- balanced ---------------------------------------------------------------------------------------------------------


def all_arrived(local: PeerReceiver, consumers: list[Router19Consumer], count: int) -> bool:
    """True if a local receiver and consumers at routers of 1.19 have received `count` messages in total."""
    local.peer.read_available()
    return len(local.deliveries) + sum(len(one.arrivals) for one in consumers) == count


@pytest.mark.timeout(90)
def test_balanced_weighs_cost_and_outstanding_deliveries(network: InteropNetwork, workers: int, fresh: Fresh) -> None:
    """Line A -10- B -20- C with 100 messages that no consumer settles (routing-semantics.md F-12)."""
    network.workers = workers
    b, c = network.router19("B"), network.router19("C")
    b.connect(c.listen(), 20)
    a = network.sluice("A", to=[(b.listen(), 10)])
    network.wait_converged()
    assert a.wait_nodes("B", "C")["C"]["cost"] == 30
    for places, expected in ((("A", "B", "C"), (55, 33, 12)), (("A", "C"), (65, 35))):
        address = fresh("balanced")
        local = a.client().receiver(address, credit=200)
        consumers = [one.consumer(address, accept=False) for one in (b, c) if one.id in places]
        a.wait_remote("M0" + address, *(set(places) - {"A"}))
        sender = a.client().sender(address)
        for number in range(100):
            sender.send(message.message(number))
        poll(functools.partial(all_arrived, local, consumers, 100), "all have arrived")
        found = (len(local.deliveries), *(len(one.arrivals) for one in consumers))
        assert all(abs(one - wanted) <= 1 for one, wanted in zip(found, expected, strict=True)), found
        a.drop_peers()
        for consumer in consumers:
            consumer.close()


def test_balanced_spreads_over_equal_costs(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh("balanced")
    consumers = [middle.left.consumer(address, accept=False), middle.right.consumer(address, accept=False)]
    middle.s.wait_remote(consumers[0].key, "L", "R")
    sender = middle.s.client().sender(address)
    for number in range(20):
        sender.send(message.message(number))
    middle.world.wait(lambda: sum(len(one.arrivals) for one in consumers) == 20, "all have arrived")
    assert [len(one.arrivals) for one in consumers] == [10, 10]


def test_balanced_does_not_send_back(middle: MiddleNetwork, fresh: Fresh) -> None:
    """A message from L goes only to R: S is on no path to L's own consumer."""
    address = fresh("balanced")
    there, here = middle.left.consumer(address, credit=0, accept=False), middle.right.consumer(address)
    middle.s.wait_remote(there.key, "L", "R")
    octets = message_from_left(address)
    link = middle.left.wait_neighbour("S").data_link(4)
    assert link is not None
    for _ in range(10):
        assert middle.left.send_on(link, octets).outcome() == "accepted"
    assert len(here.arrivals) == 10
    assert there.load() == 0


def message_from_left(address: str) -> bytes:
    """Return a message that has entered the network at L."""
    given = {"x-opt-qd.to": address, "x-opt-qd.ingress": "0/L", "x-opt-qd.trace": ["0/L"]}
    return message.annotations(given) + message.value("x")


# --- no destination ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["closest", "balanced", "multicast"])
def test_message_without_destination_is_released(middle: MiddleNetwork, fresh: Fresh, prefix: str) -> None:
    address = fresh(prefix)
    link = middle.left.wait_neighbour("S").data_link(4)
    assert link is not None
    assert middle.left.send_on(link, message_from_left(address)).outcome() == "released"
    assert middle.s.client().sender().request(message.message("x", to=address)).name == "released"


def test_message_to_unknown_router_is_released(middle: MiddleNetwork) -> None:
    sender = middle.s.client().sender()
    assert sender.request(message.message("x", to="amqp:/_topo/0/nobody/temp.x")).name == "released"
    assert sender.request(message.message("x", to="amqp:/_topo/0/R/temp.unknown")).name == "released"


def test_credit_is_withdrawn_with_last_remote_consumer(chain: ChainNetwork, fresh: Fresh) -> None:
    address = fresh("closest")
    sender = chain.a.client().sender(address, credit=False)
    receiver = chain.b.client().receiver(address, credit=1)
    sender.wait_credit()
    receiver.detach()
    chain.a.wait_remote("M0" + address)
    assert sender.request(message.message("lost")).name == "released"
    sender.peer.until(lambda: sender.draining, "the credit is withdrawn")
    again = chain.b.client().receiver(address, credit=1)
    sender.peer.until(lambda: not sender.draining and sender.credit == 250, "the credit is granted again")
    sender.send(message.message("x"))
    assert message.body(again.next().payload) == "x"


# --- fallback ---------------------------------------------------------------------------------------------------------


def test_remote_fallback_receives_without_consumer(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh("fb")
    fallback = middle.right.consumer(address, phase=FALLBACK_PHASE)
    assert fallback.key == "MF" + address
    middle.s.wait_remote(fallback.key, "R")
    sender = middle.s.client().sender(address)
    assert sender.request(message.message("1")).name == "accepted"
    got = router_annotations(fallback.next().payload)
    assert (got["phase"], got["to"], got["ingress"]) == (22, address, "0/S")
    primary = middle.left.consumer(address)
    middle.s.wait_remote(primary.key, "L")
    assert sender.request(message.message("2")).name == "accepted"
    assert primary.next().body == "2"
    primary.close()
    middle.s.wait_remote(primary.key)
    assert sender.request(message.message("3")).name == "accepted"
    assert fallback.next().body == "3"


def test_fallback_consumer_serves_remote_sender(chain: ChainNetwork, fresh: Fresh) -> None:
    address = fresh("fb")
    receiver = chain.b.client().receiver(source=frames.source(address, capabilities="qd.fallback"), credit=10)
    sender = chain.a.client().sender(address)
    number = sender.send(message.message("x"))
    got = receiver.next()
    assert message.body(got.payload) == "x"
    got.settle()
    assert sender.outcome(number).name == "accepted"


# --- waypoints --------------------------------------------------------------------------------------------------------


def test_waypoint_serves_remote_clients(chain: ChainNetwork) -> None:
    """The waypoint is a broker at B with auto links; producer and consumer are clients of A."""
    broker = chain.b.container("waypoint")
    broker.session_begun()
    links = [broker.link_attached(), broker.link_attached()]
    out = next(link for link in links if isinstance(link, PeerSender))
    into = next(link for link in links if isinstance(link, PeerReceiver))
    into.flow(10)
    client = chain.a.client()
    receiver = client.receiver("wp.1", credit=10)
    sender = chain.a.client().sender("wp.1")
    number = sender.send(message.message("to the broker"))
    stored = into.next()
    assert message.body(stored.payload) == "to the broker"
    assert receiver.deliveries == []
    stored.settle()
    assert sender.outcome(number).name == "accepted"
    chain.b.wait_remote("M1wp.1", "A")
    out.wait_credit()
    back = out.send(message.message("from the broker"))
    got = receiver.next()
    assert message.body(got.payload) == "from the broker"
    got.settle()
    assert out.outcome(back).name == "accepted"
