"""Taps of messages that are routed before they are complete (docs/user/tap.md, decision 0097)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.peer import message
from tests.peer.frames import RELEASED, modified, rejected
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.management import Management
from tests.peer.message import annotation
from tests.system.fixtures import SECOND, Connect, Fresh, bodies
from tests.system.router import Section, listener, poll
from tests.system.tapped import ADDRESS, TAP, growth, no_more

pytestmark = pytest.mark.adversarial

WORKER_COUNTS = (1, 3)
#: Octets of a message whose copy is stored until the message is complete.
STORED = 300_000
#: Octets of an incomplete message whose copy is forwarded as it arrives.
LONG = 1_500_000
#: Octets of unfinished copies that a tap stores in one worker.
MOST_OCTETS = 8_388_608
SIZES = (STORED, LONG, 3_000_000)

SECTIONS: list[Section] = [
    listener("open", stripAnnotations="no"),
    ("tap", {"name": "copies", "pattern": "copied/#", "address": "taps/copied"}),
    ("tap", {"name": "multicasts", "pattern": "multicast/copied/#", "address": "taps/copied"}),
    ("tap", {"name": "musts", "pattern": "must/#", "address": "taps/must", "mode": "required"}),
    ("exchange", {"name": "exchange", "address": "copied/exchange"}),
    ("binding", {"name": "binding", "exchangeName": "exchange", "nextHopAddress": "hop"}),
]


def split(size: int, more: int = 0) -> tuple[bytes, bytes]:
    """Return a message with a body of `size` + `more` octets, after about `size` octets in two parts."""
    octets = message.message("x" * (size + more))
    return octets[:size], octets[size:]


def wait_octets(receiver: PeerReceiver, count: int) -> None:
    """Wait until so many octets of the first delivery have arrived."""

    def have_arrived() -> bool:
        return bool(receiver.deliveries) and len(receiver.deliveries[0].payload) == count

    receiver.peer.until(have_arrived, f"{count} octets")


# -- mode copy ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anonymous", [True, False])
@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_streamed_message_is_copied_whole(
    connect: Connect, fresh: Fresh, management: Management, size: int, settled: bool, anonymous: bool
) -> None:
    address = fresh("copied")
    grown = growth(management, "copies")
    tap, consumer = connect().receiver("taps/copied", 10), connect().receiver(address, 10)
    sender = connect().sender(None if anonymous else address)
    body = "x" * size
    sent = (
        message.header(durable=True)
        + message.annotations({"x-mine": 1, ADDRESS: "forged"})
        + message.properties(to=address, subject="s")
        + message.value(body)
    )
    number = sender.send(sent, settled=settled)
    original, copy = consumer.next(), tap.next()
    assert message.body(original.payload) == message.body(copy.payload) == body
    assert annotation(copy.payload, ADDRESS) == address
    assert annotation(copy.payload, "x-mine") == 1
    for section in (message.HEADER, message.PROPERTIES):
        assert message.section_of(copy.payload, section) == message.section_of(sent, section)
    if not settled:
        original.settle()
        assert sender.outcome(number).name == "accepted"
    assert not copy.settled
    grown(selected=1)
    copy.settle()
    grown(selected=1, accepted=1)
    assert no_more(tap)


@pytest.mark.parametrize("size", SIZES)
def test_streamed_multicast_message_is_copied_to_each_consumer_of_copies(
    connect: Connect, fresh: Fresh, management: Management, size: int
) -> None:
    """Several consumers of a multicast address of copies share the octets of the copy."""
    address, copies = fresh("multicast"), fresh("multicast")
    management.create(TAP, address, pattern=address, address=copies)
    grown = growth(management, address)
    taps = [connect().receiver(copies, 10) for _ in range(3)]
    consumers = [connect().receiver(address, 10) for _ in range(3)]
    sender = connect().sender(address)
    number = sender.send(message.message("x" * size))
    for receiver in (*consumers, *taps):
        delivery = receiver.next()
        assert message.body(delivery.payload) == "x" * size
        delivery.settle()
    assert sender.outcome(number).name == "accepted"
    grown(selected=1, accepted=1)
    management.delete(TAP, address)


@pytest.mark.parametrize("size", SIZES)
def test_streamed_exchange_message_is_copied_once_for_its_address(
    connect: Connect, management: Management, size: int
) -> None:
    grown = growth(management, "copies")
    tap, hop = connect().receiver("taps/copied", 10), connect().receiver("hop", 10)
    assert connect().sender("copied/exchange").request(message.message("x" * size, subject="s")).name == "accepted"
    assert message.body(hop.next().payload) == "x" * size
    copy = tap.next()
    assert annotation(copy.payload, ADDRESS) == "copied/exchange"
    assert message.body(copy.payload) == "x" * size
    copy.settle()
    grown(selected=1, accepted=1)
    assert no_more(tap)


def test_unfinished_message_does_not_hold_copies_of_others_back(
    connect: Connect, fresh: Fresh, management: Management
) -> None:
    """A producer that stops in the middle of a message is no trouble for the messages of a bystander."""
    address = fresh("copied")
    grown = growth(management, "copies")
    tap, consumer = connect().receiver("taps/copied", 100), connect().receiver(address, 100)
    hostile = connect().sender(address)
    first, rest = split(STORED, 100)
    hostile.send(first, more=True)
    assert not consumer.next(complete=False).complete
    bystander, other = fresh("copied"), connect()
    receiver, sender = other.receiver(bystander, 100), other.sender(bystander)
    for number in range(50):
        sender.send(message.message(number))
        receiver.next().settle()
    copies = tap.receive(50)
    assert bodies(copies) == list(range(50))
    for copy in copies:
        copy.settle()
    hostile.send(rest)
    copy = tap.next()
    assert message.body(copy.payload) == "x" * (STORED + 100)
    copy.settle()
    grown(selected=51, accepted=51)


def test_long_message_reaches_consumer_of_copies_as_it_arrives(
    connect: Connect, fresh: Fresh, management: Management
) -> None:
    address = fresh("copied")
    grown = growth(management, "copies")
    tap, consumer = connect().receiver("taps/copied", 10), connect().receiver(address, 10)
    sender = connect().sender(address)
    first, rest = split(LONG, LONG)
    number = sender.send(first, more=True)
    assert not tap.next(complete=False).complete
    sender.send(rest)
    consumer.next().settle()
    assert sender.outcome(number).name == "accepted"
    tap.peer.until(lambda: tap.deliveries[0].complete, "the rest of the copy")
    assert message.body(tap.deliveries[0].payload) == "x" * 2 * LONG
    tap.deliveries[0].settle()
    grown(selected=1, accepted=1)


@pytest.mark.parametrize("prefix", ["copied", "must"])
@pytest.mark.parametrize("end", ["abort", "detach", "drop"])
@pytest.mark.parametrize("size", [STORED, LONG])
def test_message_that_its_producer_does_not_finish_has_no_copy(
    connect: Connect, fresh: Fresh, management: Management, size: int, end: str, prefix: str
) -> None:
    address, name = fresh(prefix), {"copied": "copies", "must": "musts"}[prefix]
    grown = growth(management, name)
    tap, consumer = connect().receiver(f"taps/{prefix}", 10), connect().receiver(address, 10)
    sender = connect().sender(address)
    sender.send(split(size, 100)[0], more=True)
    assert not consumer.next(complete=False).complete
    if size == LONG:
        assert not tap.next(complete=False).complete
    if end == "abort":
        sender.abort()
    elif end == "detach":
        sender.detach()
    else:
        sender.peer.drop()
    consumer.peer.until(lambda: consumer.deliveries[0].aborted, "the consumer learns that the message was aborted")
    if size == LONG:
        tap.peer.until(lambda: tap.deliveries[0].aborted, "the consumer of copies learns that")
    sender = connect().sender(address)
    number = sender.send(message.message("next"))
    consumer.next().settle()
    copy = tap.next()
    assert message.body(copy.payload) == "next"
    copy.settle()
    assert sender.outcome(number).name == "accepted"
    grown(selected=1, accepted=1)


@pytest.mark.parametrize("size", [STORED, LONG])
@pytest.mark.parametrize("state", [rejected("my:condition", "mine"), RELEASED])
def test_outcome_before_the_last_octet_does_not_end_the_copy(
    connect: Connect, fresh: Fresh, management: Management, size: int, state: Any
) -> None:
    address = fresh("copied")
    grown = growth(management, "copies")
    tap, consumer = connect().receiver("taps/copied", 10), connect().receiver(address, 10)
    sender = connect().sender(address)
    first, rest = split(size, 1000)
    number = sender.send(first, more=True)
    consumer.next(complete=False).settle(state)
    sender.outcome(number, settled=False)
    sender.send(rest)
    sender.outcome(number)
    copy = tap.next()
    assert message.body(copy.payload) == "x" * (size + 1000)
    copy.settle()
    grown(selected=1, accepted=1)


@pytest.mark.parametrize("settled", [True, False])
def test_outcome_of_copy_before_its_last_octet_is_counted_once(
    connect: Connect, fresh: Fresh, management: Management, settled: bool
) -> None:
    address = fresh("copied")
    grown = growth(management, "copies")
    tap = connect().receiver("taps/copied", 10, rcv_settle_mode=SECOND)
    consumer = connect().receiver(address, 10)
    sender = connect().sender(address)
    first, rest = split(LONG, 1000)
    number = sender.send(first, more=True)
    tap.next(complete=False).settle(rejected("my:condition", "mine"), settled=settled)
    tap.peer.barrier()
    sender.send(rest)
    consumer.next().settle()
    assert sender.outcome(number).name == "accepted"
    grown(selected=1, rejected=1)
    number = sender.send(message.message("next"))
    consumer.next().settle()
    assert sender.outcome(number).name == "accepted"
    tap.peer.until(lambda: tap.deliveries[-1].complete and len(tap.deliveries) == 2, "the next copy")
    tap.deliveries[-1].settle()
    grown(selected=2, rejected=1, accepted=1)


def test_consumer_of_copies_that_takes_none_slows_no_producer_of_streams(
    connect: Connect, fresh: Fresh, management: Management
) -> None:
    """The tap stores 8 MiB in a worker; further messages are counted, exactly."""
    address = fresh("copied")
    grown = growth(management, "copies")
    tap, consumer = connect().receiver("taps/copied", 0), connect().receiver(address, 100)
    sender = connect().sender(address)
    for _ in range(20):
        number = sender.send(message.message("x" * 1_000_000))
        consumer.next().settle()
        assert sender.outcome(number).name == "accepted"
    grown(selected=20, beyondBounds=12, missed=12)
    tap.flow(20)
    for copy in tap.receive(8):
        assert message.body(copy.payload) == "x" * 1_000_000
        copy.settle()
    grown(selected=20, beyondBounds=12, missed=12, accepted=8)
    assert no_more(tap)


def test_slow_consumer_of_copies_loses_a_long_copy_and_slows_no_producer(
    connect: Connect, fresh: Fresh, management: Management
) -> None:
    address = fresh("copied")
    grown = growth(management, "copies")
    tap, consumer = connect().receiver("taps/copied", 0), connect().receiver(address, 100)
    sender = connect().sender(address)
    octets = message.message("x" * 12_000_000)
    for at in range(0, len(octets), LONG):
        number = sender.send(octets[at : at + LONG], more=at + LONG < len(octets))
        wait_octets(consumer, min(at + LONG, len(octets)))
    delivery = consumer.next()
    assert delivery.payload == octets
    delivery.settle()
    assert sender.outcome(number).name == "accepted"
    grown(selected=1, beyondBounds=1, missed=1)
    number = sender.send(message.message("next"))
    consumer.next().settle()
    tap.flow(10)
    tap.peer.until(lambda: any(each.complete and not each.aborted for each in tap.deliveries), "the next copy")
    copy = tap.deliveries[-1]
    assert message.body(copy.payload) == "next"
    copy.settle()
    grown(selected=2, beyondBounds=1, missed=1, accepted=1)


def test_connection_with_many_unfinished_messages_displaces_its_own_copies(
    connect: Connect, fresh: Fresh, management: Management
) -> None:
    address = fresh("copied")
    before = management.one(TAP, name="copies")
    tap = connect().receiver("taps/copied", 100)
    consumers, hostile = connect(), connect()
    consumer = consumers.receiver(address, 100)
    bystander = connect().sender(address)
    first, rest = split(STORED, 100)
    bystander.send(first, more=True)
    assert not consumer.next(complete=False).complete
    unfinished = split(MOST_OCTETS // 10, 100)[0]
    for _ in range(20):
        own = fresh("copied")
        receiver, sender = consumers.receiver(own, 100), hostile.sender(own)
        sender.send(unfinished, more=True)
        wait_octets(receiver, len(unfinished))
    bystander.send(rest)
    copy = tap.next()
    assert annotation(copy.payload, ADDRESS) == address
    assert message.body(copy.payload) == "x" * (STORED + 100)
    copy.settle()
    hostile.drop()
    poll(lambda: management.one(TAP, name="copies")["acceptedCount"] == before["acceptedCount"] + 1, "the copy counts")
    missed = management.one(TAP, name="copies")["beyondBoundsCount"] - before["beyondBoundsCount"]
    assert missed in (10, 11), "the others were aborted by their producer"
    assert no_more(tap)


# -- mode required ------------------------------------------------------------------------------------------------


def required_pair(connect: Connect, address: str, credit: int = 10) -> tuple[PeerReceiver, PeerReceiver, PeerSender]:
    """Return a receiver of the copies, a receiver of the address and a sender to it, which has credit."""
    tap, consumer = connect().receiver("taps/must", credit), connect().receiver(address, credit)
    return tap, consumer, connect().sender(address)


@pytest.mark.parametrize("copy_first", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_outcome_of_streamed_message_waits_for_both(
    connect: Connect, fresh: Fresh, management: Management, size: int, copy_first: bool
) -> None:
    grown = growth(management, "musts")
    tap, consumer, sender = required_pair(connect, fresh("must"))
    number = sender.send(message.message("x" * size))
    copy, original = tap.next(), consumer.next()
    assert message.body(copy.payload) == message.body(original.payload) == "x" * size
    first, last = (copy, original) if copy_first else (original, copy)
    first.settle()
    first.link.peer.barrier()
    sender.peer.barrier()
    assert number not in sender.session.outcomes
    last.settle()
    assert sender.outcome(number).name == "accepted"
    grown(selected=1, accepted=1)


def test_required_message_reaches_its_consumer_as_it_arrives(connect: Connect, fresh: Fresh) -> None:
    tap, consumer, sender = required_pair(connect, fresh("must"))
    first, rest = split(STORED, 100)
    number = sender.send(first, more=True)
    original = consumer.next(complete=False)
    assert not original.complete
    sender.send(rest)
    tap.next().settle()
    consumer.peer.until(lambda: original.complete, "the rest")
    original.settle()
    assert sender.outcome(number).name == "accepted"


@pytest.mark.parametrize("state", [rejected("my:condition", "mine"), RELEASED, modified(True)])
@pytest.mark.parametrize("size", [STORED, LONG])
def test_streamed_message_whose_copy_is_not_accepted_is_modified(
    connect: Connect, fresh: Fresh, management: Management, size: int, state: Any
) -> None:
    grown = growth(management, "musts")
    tap, consumer, sender = required_pair(connect, fresh("must"))
    number = sender.send(message.message("x" * size))
    original = consumer.next()
    tap.next().settle(state)
    assert sender.outcome(number).name == "modified"
    original.settle()
    kind = "rejected" if int(state.descriptor) == 0x25 else "returned"
    grown(selected=1, **{kind: 1}, **({} if kind == "rejected" else {"missed": 1}))


@pytest.mark.parametrize("end", ["drop", "detach", "reject"])
def test_lost_consumer_of_a_copy_that_arrives_aborts_and_modifies_the_message(
    connect: Connect, fresh: Fresh, management: Management, end: str
) -> None:
    """No consumer gets all of a message whose copy is lost before its last octet. It can be sent again at once."""
    grown = growth(management, "musts")
    tap, consumer, sender = required_pair(connect, fresh("must"))
    first, rest = split(LONG, LONG)
    number = sender.send(first, more=True)
    copy = tap.next(complete=False)
    original = consumer.next(complete=False)
    assert not copy.complete
    assert not original.complete
    if end == "drop":
        tap.peer.drop()
    elif end == "detach":
        tap.detach()
    else:
        copy.settle(rejected("my:condition", "mine"))
    assert sender.outcome(number, settled=False).name == "modified"
    consumer.peer.until(lambda: original.aborted, "the consumer learns that the message was aborted")
    sender.send(rest)
    assert sender.outcome(number).name == "modified"
    grown(selected=1, **({"rejected": 1} if end == "reject" else {"returned": 1, "missed": 1}))
    again = connect().receiver("taps/must", 10) if end != "reject" else tap
    sender.wait_credit()
    number = sender.send(message.message("x" * LONG))
    consumer.next().settle()
    copy = again.next()
    assert message.body(copy.payload) == "x" * LONG
    copy.settle()
    assert sender.outcome(number).name == "accepted"


def test_consumer_of_copies_lost_before_the_message_is_complete_is_replaced(connect: Connect, fresh: Fresh) -> None:
    """A copy that is stored goes to a consumer that is there when the message is complete."""
    tap, consumer, sender = required_pair(connect, fresh("must"))
    other = connect().receiver("taps/must", 10)
    first, rest = split(STORED, 100)
    number = sender.send(first, more=True)
    assert not consumer.next(complete=False).complete
    tap.peer.close()
    sender.send(rest)
    copy = other.next()
    assert message.body(copy.payload) == "x" * (STORED + 100)
    copy.settle()
    consumer.deliveries[0].settle()
    assert sender.outcome(number).name == "accepted"


@pytest.mark.parametrize("mode", ["copy", "required"])
@pytest.mark.parametrize("size", [STORED, LONG])
def test_tap_deleted_in_the_middle_of_a_message_leaves_the_message_alone(
    connect: Connect, fresh: Fresh, size: int, mode: str
) -> None:
    management = Management(connect())
    address, copies = fresh(), fresh()
    management.create(TAP, address, pattern=address, address=copies, mode=mode)
    tap, consumer = connect().receiver(copies, 10), connect().receiver(address, 10)
    sender = connect().sender(address)
    first, rest = split(size, LONG)
    number = sender.send(first, more=True)
    original = consumer.next(complete=False)
    if size == LONG:
        tap.next(complete=False)
    management.delete(TAP, address)
    if size == LONG:
        tap.peer.until(lambda: tap.deliveries[0].aborted, "the consumer of copies learns that")
    sender.send(rest)
    consumer.peer.until(lambda: original.complete, "the rest")
    assert message.body(original.payload) == "x" * (size + LONG)
    original.settle()
    assert sender.outcome(number).name == "accepted"


@pytest.mark.parametrize("size", [STORED, LONG])
def test_producer_that_settles_before_the_last_octet_waits_for_nothing(
    connect: Connect, fresh: Fresh, management: Management, size: int
) -> None:
    grown = growth(management, "musts")
    tap, consumer, sender = required_pair(connect, fresh("must"))
    first, rest = split(size, LONG)
    number = sender.send(first, more=True)
    assert not consumer.next(complete=False).complete
    sender.settle(number)
    sender.send(rest)
    tap.peer.until(lambda: tap.deliveries and tap.deliveries[0].complete, "the copy")
    assert message.body(tap.deliveries[0].payload) == "x" * (size + LONG)
    tap.deliveries[0].settle()
    grown(selected=1, accepted=1)
    number = sender.send(message.message("next"))
    copy = tap.next() if tap.taken else tap.receive(2)[1]
    assert message.body(copy.payload) == "next"
    copy.settle()
    consumer.peer.until(lambda: len(consumer.deliveries) == 2, "the next message")
    consumer.deliveries[1].settle()
    assert sender.outcome(number).name == "accepted"


def test_consumer_of_copies_without_credit_holds_the_outcome_and_then_the_producer(
    connect: Connect, fresh: Fresh
) -> None:
    """Octets that wait for the consumer of the copies count for the producer's connection, as those of its message."""
    tap, consumer, sender = required_pair(connect, fresh("must"), credit=0)
    consumer.flow(1000)
    numbers = [sender.send(message.message("x" * STORED)) for _ in range(30)]
    for original in consumer.receive(30):
        original.settle()
    consumer.peer.barrier()
    sender.peer.barrier()
    assert not set(numbers) & set(sender.session.outcomes)
    tap.flow(100)
    for copy in tap.receive(30):
        copy.settle()
    assert {sender.outcome(number).name for number in numbers} == {"accepted"}
