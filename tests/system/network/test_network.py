"""Two connected interior routers: clients of one exchange messages with clients of the other."""

from __future__ import annotations

import pytest

from tests.peer import message
from tests.peer.frames import RELEASED, modified, rejected
from tests.peer.management import Management
from tests.system.fixtures import CAPACITY, bodies
from tests.system.networks import CONVERGENCE, TwoRouterNetwork


@pytest.mark.parametrize("prefix", ["", "balanced/", "closest/", "multicast/"])
@pytest.mark.parametrize("settled", [False, True], ids=["unsettled", "presettled"])
def test_consumer_at_other_router_gets_messages(two_routers: TwoRouterNetwork, prefix: str, settled: bool) -> None:
    address = two_routers.fresh(prefix)
    receiver = two_routers.connect(two_routers.b).receiver(address, 300)
    sender = two_routers.connect(two_routers.a).sender(address)
    sender.wait_credit(timeout=CONVERGENCE)
    numbers = [sender.send(message.message(number), settled=settled) for number in range(200)]
    deliveries = receiver.receive(200)
    assert bodies(deliveries) == list(range(200))
    if not settled:
        for delivery in deliveries:
            delivery.settle()
        assert {sender.outcome(number).name for number in numbers} == {"accepted"}


@pytest.mark.parametrize(
    ("state", "name"),
    [(RELEASED, "released"), (rejected("x:y", "no"), "rejected"), (modified(True, False), "modified")],
)
def test_outcome_of_remote_consumer_reaches_the_producer(
    two_routers: TwoRouterNetwork, state: object, name: str
) -> None:
    address = two_routers.fresh()
    receiver = two_routers.connect(two_routers.b).receiver(address, 10)
    sender = two_routers.connect(two_routers.a).sender(address)
    sender.wait_credit(timeout=CONVERGENCE)
    number = sender.send(message.message("x"))
    receiver.next().settle(state)  # type: ignore[arg-type]
    outcome = sender.outcome(number)
    assert outcome.name == name
    if name == "rejected":
        assert outcome.error == ("x:y", "no")


def test_remote_consumer_brings_credit_and_its_detach_releases(two_routers: TwoRouterNetwork) -> None:
    address = two_routers.fresh()
    sender = two_routers.connect(two_routers.a).sender(address, credit=False)
    sender.peer.barrier()
    assert sender.credit == 0
    receiver = two_routers.connect(two_routers.b).receiver(address, 10)
    assert sender.wait_credit(timeout=CONVERGENCE) == CAPACITY
    two_routers.at_a.wait_remote(f"M0{address}", "B")
    receiver.detach()
    two_routers.at_a.wait_remote(f"M0{address}")
    number = sender.send(message.message("x"))
    assert sender.outcome(number).name == "released"


def test_multicast_over_two_routers_reaches_each_consumer_once(two_routers: TwoRouterNetwork) -> None:
    address = two_routers.fresh("multicast/")
    receivers = [
        two_routers.connect(router).receiver(address, 50)
        for router in (two_routers.a, two_routers.a, two_routers.b, two_routers.b)
    ]
    two_routers.at_a.wait_remote(f"M0{address}", "B")
    sender = two_routers.connect(two_routers.a).sender(address)
    numbers = [sender.send(message.message(number)) for number in range(20)]
    for receiver in receivers:
        deliveries = receiver.receive(20)
        assert bodies(deliveries) == list(range(20))
        for delivery in deliveries:
            delivery.settle()
    assert {sender.outcome(number).name for number in numbers} == {"accepted"}


def test_local_consumers_come_first_for_closest(two_routers: TwoRouterNetwork) -> None:
    address = two_routers.fresh("closest/")
    there = two_routers.connect(two_routers.b).receiver(address, 50)
    two_routers.at_a.wait_remote(f"M0{address}", "B")
    here = two_routers.connect(two_routers.a).receiver(address, 50)
    sender = two_routers.connect(two_routers.a).sender(address)
    for number in range(20):
        sender.send(message.message(number), settled=True)
    assert bodies(here.receive(20)) == list(range(20))
    there.peer.barrier()
    assert not there.deliveries


def test_anonymous_sender_reaches_remote_consumer(two_routers: TwoRouterNetwork) -> None:
    address = two_routers.fresh()
    receiver = two_routers.connect(two_routers.b).receiver(address, 10)
    two_routers.at_a.wait_remote(f"M0{address}", "B")
    sender = two_routers.connect(two_routers.a).sender()
    number = sender.send(message.message("x", to=address))
    delivery = receiver.next()
    assert message.body(delivery.payload) == "x"
    delivery.settle()
    assert sender.outcome(number).name == "accepted"


def test_topological_address_reaches_the_named_router(two_routers: TwoRouterNetwork) -> None:
    name = two_routers.fresh()
    receiver = two_routers.connect(two_routers.b).receiver(f"_local/{name}", 10)
    sender = two_routers.connect(two_routers.a).sender(f"_topo/0/B/{name}")
    number = sender.send(message.message("x"))
    receiver.next().settle()
    assert sender.outcome(number).name == "accepted"


def test_request_and_reply_cross_routers(two_routers: TwoRouterNetwork) -> None:
    address = two_routers.fresh()
    service = two_routers.connect(two_routers.b)
    requests = service.receiver(address, 10)
    client = two_routers.connect(two_routers.a)
    replies = client.receiver(dynamic=True, credit=10)
    assert replies.address.startswith("amqp:/_topo/0/A/temp.")
    sender = client.sender(address)
    sender.wait_credit(timeout=CONVERGENCE)
    number = sender.send(message.message("question", reply_to=replies.address))
    request = requests.next()
    request.settle()
    assert sender.outcome(number).name == "accepted"
    answers = service.sender()
    answer = answers.send(message.message("answer", to=replies.address))
    reply = replies.next()
    assert message.body(reply.payload) == "answer"
    reply.settle()
    assert answers.outcome(answer).name == "accepted"


def test_large_message_crosses_routers(two_routers: TwoRouterNetwork) -> None:
    address = two_routers.fresh()
    receiver = two_routers.connect(two_routers.b).receiver(address, 10)
    sender = two_routers.connect(two_routers.a).sender(address)
    sender.wait_credit(timeout=CONVERGENCE)
    octets = bytes(range(256)) * 8192
    number = sender.send(message.data(octets))
    delivery = receiver.next()
    assert delivery.payload.endswith(octets)
    delivery.settle()
    assert sender.outcome(number).name == "accepted"


def test_remote_consumer_without_credit_slows_the_producer(two_routers: TwoRouterNetwork) -> None:
    address = two_routers.fresh()
    receiver = two_routers.connect(two_routers.b).receiver(address, 10)
    sender = two_routers.connect(two_routers.a).sender(address)
    sender.wait_credit(timeout=CONVERGENCE)
    numbers = [sender.send(message.message(number)) for number in range(CAPACITY)]
    deliveries = receiver.receive(10)
    assert sender.credit == 0
    for delivery in deliveries:
        delivery.settle()
    assert {sender.outcome(number).name for number in numbers[:10]} == {"accepted"}
    receiver.flow(CAPACITY)
    for delivery in receiver.receive(CAPACITY - 10):
        delivery.settle()
    assert {sender.outcome(number).name for number in numbers} == {"accepted"}


def test_exchange_at_other_router_forwards(two_routers: TwoRouterNetwork) -> None:
    name = two_routers.fresh()
    management = Management(two_routers.connect(two_routers.b))
    management.create("router.config.exchange", name, address=f"{name}.in")
    management.create(
        "router.config.binding", f"{name}.b", exchangeName=name, bindingKey="key", nextHopAddress=f"{name}.out"
    )
    receiver = two_routers.connect(two_routers.b).receiver(f"{name}.out", 10)
    sender = two_routers.connect(two_routers.a).sender(f"{name}.in", credit=False)
    sender.wait_credit(timeout=CONVERGENCE)
    number = sender.send(message.message("x", subject="key"))
    receiver.next().settle()
    assert sender.outcome(number).name == "accepted"
    number = sender.send(message.message("y", subject="another"))
    assert sender.outcome(number).name == "released"
