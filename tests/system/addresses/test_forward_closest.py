"""Closest distribution, and rules common to all distributions (routing-semantics.md 8.1, 8.2)."""

from tests.peer import message
from tests.system.fixtures import Connect, Fresh, bodies, pair

WORKER_COUNTS = (1, 3)


def test_round_robin_over_consumers_is_strict(connect: Connect, fresh: Fresh) -> None:
    address = fresh("closest")
    receivers = [connect().receiver(address, 10) for _ in range(3)]
    sender = connect().sender(address)
    for number in range(1, 10):
        sender.send(message.message(number), settled=True)
    found = [bodies(receiver.receive(3)) for receiver in receivers]
    assert sorted(found) == [[1, 4, 7], [2, 5, 8], [3, 6, 9]]
    assert found == [[1, 4, 7], [2, 5, 8], [3, 6, 9]], "not in the order of attaching"


def test_round_robin_ignores_credit(connect: Connect, fresh: Fresh) -> None:
    address = fresh("closest")
    ready, stalled = connect().receiver(address, 10), connect().receiver(address, 0)
    sender = connect().sender(address)
    for number in range(6):
        sender.send(message.message(number), settled=True)
    assert bodies(ready.receive(3)) == [0, 2, 4]
    ready.peer.barrier()
    assert len(ready.deliveries) == 3
    stalled.flow(10)
    assert bodies(stalled.receive(3)) == [1, 3, 5]


def test_round_robin_ignores_unsettled_load(connect: Connect, fresh: Fresh) -> None:
    address = fresh("closest")
    receivers = [connect().receiver(address, 10) for _ in range(2)]
    sender = connect().sender(address)
    for number in range(8):
        delivery = sender.send(message.message(number))
        receiver = receivers[number % 2]
        got = receiver.next()
        if number % 2:
            got.settle()
            sender.outcome(delivery)
    assert [receiver.taken for receiver in receivers] == [4, 4]


# --- 8.1 ------------------------------------------------------------------------------------------------------------


def test_queued_message_is_not_rerouted(connect: Connect, fresh: Fresh) -> None:
    address = fresh("closest")
    sender, stalled = pair(connect, address, credit=0)
    number = sender.send(message.message("waits"))
    sender.peer.barrier()
    ready = connect().receiver(address, 10)
    ready.peer.barrier()
    assert not ready.deliveries
    stalled.flow(1)
    stalled.next().settle()
    assert sender.outcome(number).name == "accepted"


def test_message_without_consumer_is_not_stored(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    anonymous = connect().sender()
    assert anonymous.request(message.message("early", to=address)).name == "released"
    receiver = connect().receiver(address, 5)
    anonymous.send(message.message("later", to=address), settled=True)
    assert message.body(receiver.next().payload) == "later"


def test_delivery_keeps_settlement_of_its_producer(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    sender, receiver = pair(connect, address)
    sender.send(message.message("presettled"), settled=True)
    assert receiver.next().settled
    sender.send(message.message("unsettled"))
    assert not receiver.next().settled


def test_consumer_of_settled_mode_gets_settled_deliveries(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    receiver = connect().receiver(address, 5, snd_settle_mode=1)
    sender = connect().sender(address)
    number = sender.send(message.message("to settle"))
    assert receiver.next().settled
    outcome = sender.outcome(number)
    assert (outcome.name, outcome.settled) == ("accepted", True)


def test_settled_mode_without_credit_delays_outcome(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    receiver = connect().receiver(address, 0, snd_settle_mode=1)
    sender = connect().sender(address)
    number = sender.send(message.message("to settle"))
    sender.peer.barrier()
    receiver.peer.barrier()
    assert number not in sender.session.outcomes
    receiver.flow(1)
    assert receiver.next().settled
    assert sender.outcome(number).name == "accepted"


def test_priority_does_not_reorder_on_client_links(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh(), credit=0)
    priorities = [4, 0, 9, 4, 9, 0]
    for priority in priorities:
        sender.send(message.header(priority=priority) + message.message(priority), settled=True)
    sender.peer.barrier()
    receiver.flow(10)
    assert bodies(receiver.receive(6)) == priorities


def test_ttl_is_not_interpreted(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh())
    expired = message.header(ttl=0, durable=True, delivery_count=3, first_acquirer=False)
    payload = expired + message.properties(absolute_expiry_time=1) + message.value("old")
    sender.send(payload, settled=True)
    assert receiver.next().payload == payload


def test_message_format_is_relayed(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh())
    sender.send(message.message("special"), settled=True, message_format=0x01020304)
    assert receiver.next().format == 0x01020304
    sender.send(message.message("plain"), settled=True)
    assert receiver.next().format in (0, None)


def test_delivery_tags_are_distinct(connect: Connect, fresh: Fresh) -> None:
    address = fresh("multicast")
    receivers = [connect().receiver(address, 20) for _ in range(2)]
    sender = connect().sender(address)
    for number in range(10):
        sender.send(message.message(number), tag=b"same", settled=False)
    for receiver in receivers:
        tags = [one.tag for one in receiver.receive(10)]
        assert len(set(tags)) == 10
        assert all(0 < len(tag) <= 32 for tag in tags)


# routing-semantics.md 8.9.
def test_order_between_two_links_is_kept(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh("closest"), credit=2000)
    for number in range(1000):
        sender.wait_credit()
        sender.send(message.message(number), settled=True)
    assert bodies(receiver.receive(1000)) == list(range(1000))
