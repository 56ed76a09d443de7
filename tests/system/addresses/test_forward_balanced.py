"""Balanced distribution (routing-semantics.md 8.3)."""

from tests.peer import message
from tests.peer.links import PeerReceiver, PeerSender
from tests.system.fixtures import Connect, Fresh, bodies

WORKER_COUNTS = (1, 3)


def send(sender: PeerSender, count: int, start: int = 0, settled: bool | None = None) -> list[int]:
    """Send messages one by one; each has been routed before the next is sent."""
    numbers = []
    for number in range(start, start + count):
        numbers.append(sender.send(message.message(number), settled=settled))
        sender.peer.barrier()
    return numbers


def drain_queued(receivers: list[PeerReceiver]) -> list[int]:
    """Deliver all messages queued for consumers without credit, and return their number for each consumer."""
    counts = []
    for receiver in receivers:
        receiver.flow(100, drain=True)
        receiver.peer.until(lambda r=receiver: any(f.drain and not f.link_credit for f in r.flows), "drained")  # type: ignore[misc]
        counts.append(len(receiver.deliveries))
        receiver.delivery_count = receiver.flows[-1].delivery_count
        receiver.flows.clear()
    return counts


def test_messages_without_credit_spread_evenly(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    receivers = [connect().receiver(address, 0) for _ in range(3)]
    sender = connect().sender(address)
    send(sender, 10)
    assert drain_queued(receivers) == [4, 3, 3]


def test_least_loaded_consumer_gets_next_messages(connect: Connect, fresh: Fresh) -> None:
    """After 4/3/3 the first consumer settles its four, and gets the next three, until all have three."""
    address = fresh()
    receivers = [connect().receiver(address, 20) for _ in range(3)]
    sender = connect().sender(address)
    first = send(sender, 10)
    for receiver, count in zip(receivers, (4, 3, 3), strict=True):
        receiver.receive(count)
    for delivery in receivers[0].deliveries:
        delivery.settle()
    accepted = [first[message.body(delivery.payload)] for delivery in receivers[0].deliveries]
    for number in accepted:
        assert sender.outcome(number).name == "accepted"
    send(sender, 3, start=10)
    assert bodies(receivers[0].receive(3)) == [10, 11, 12]


def test_idle_consumers_take_turns(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    receivers = [connect().receiver(address, 20) for _ in range(3)]
    sender = connect().sender(address)
    order = []
    for number in range(9):
        delivery = sender.send(message.message(number))
        receiver = receivers[number % 3]
        got = receiver.next()
        order.append(message.body(got.payload))
        got.settle()
        sender.outcome(delivery)
    assert order == list(range(9))


def test_written_presettled_deliveries_add_no_load(connect: Connect, fresh: Fresh) -> None:
    """An idle consumer of presettled messages gets all of them while another holds unsettled deliveries."""
    address = fresh()
    loaded = connect().receiver(address, 50)
    sender = connect().sender(address)
    send(sender, 3)
    loaded.receive(3)
    idle = connect().receiver(address, 50)
    for number in range(10, 20):
        sender.send(message.message(number), settled=True)
        assert message.body(idle.next().payload) == number
    loaded.peer.barrier()
    assert len(loaded.deliveries) == 3


def test_load_is_shared_between_producers(connect: Connect, fresh: Fresh) -> None:
    """Outstanding counts cover the whole router, not only one producer's worker."""
    address = fresh()
    receivers = [connect().receiver(address, 0) for _ in range(3)]
    senders = [connect().sender(address) for _ in range(4)]
    for number in range(6):
        for sender in senders:
            send(sender, 1, number)
            sender.peer.barrier()  # two workers that choose at the same moment may choose the same receiver
    counts = drain_queued(receivers)
    assert sum(counts) == 24
    assert max(counts) - min(counts) <= 1, counts


def test_balanced_deliveries_are_all_settled(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    receivers = [connect().receiver(address, 200) for _ in range(2)]
    sender = connect().sender(address)
    numbers = [sender.send(message.message(n)) for n in range(200)]
    while sum(receiver.taken for receiver in receivers) < 200:
        for receiver in receivers:
            if len(receiver.deliveries) > receiver.taken:
                receiver.next().settle()
            elif sum(len(one.deliveries) for one in receivers) < 200:
                receiver.peer.barrier()
    assert {sender.outcome(number).name for number in numbers} == {"accepted"}
    sender.wait_credit(126)


def test_busy_stream_consumer_is_avoided(connect: Connect, fresh: Fresh) -> None:
    """A small message avoids the consumer of an unfinished stream while another is idle (routing-semantics.md 8.10)."""
    address = fresh()
    receivers = [connect().receiver(address, 10) for _ in range(2)]
    streaming, small = connect().sender(address), connect().sender(address)
    streaming.send(message.data(bytes(400_000))[:200_000], more=True, settled=True)
    busy = receivers[0]
    busy.next(complete=False)
    for number in range(3):
        small.send(message.message(number), settled=True)
        assert message.body(receivers[1].next().payload) == number
    streaming.send(message.data(bytes(400_000))[200_000:], settled=True)
    busy.peer.until(lambda: busy.deliveries[0].complete, "the end of the stream")
