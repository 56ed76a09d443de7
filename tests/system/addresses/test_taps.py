"""Taps: copies of the messages of some addresses for another address (docs/user/tap.md)."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.router.client.message import decode
from tests.peer import message
from tests.peer.codec import encode
from tests.peer.frames import ACCEPTED, RELEASED, modified, rejected
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.management import Management, ManagementStatusError
from tests.peer.message import annotation, annotations_of
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import SECOND, Connect, Fresh, bodies, wait_address_table
from tests.system.router import RouterProcess, Section, listener, poll
from tests.system.tapped import ADDRESS, TAP, growth, missed, no_more
from tests.system.tools import run

pytestmark = pytest.mark.adversarial

WORKER_COUNTS = (1, 3)
#: Addresses of a tap whose missed messages have a count of their own.
MOST_MISSED_ADDRESSES = 64
#: Copies that a tap may have under way in one worker.
MOST_COPIES = 4096

SECTIONS: list[Section] = [
    listener("open", stripAnnotations="no"),
    listener("tenants", multiTenant=True),
    ("tap", {"name": "copies", "pattern": "copied/#", "address": "taps/copied"}),
    ("tap", {"name": "multicasts", "pattern": "multicast/copied/#", "address": "taps/copied"}),
    ("tap", {"name": "spread", "pattern": "spread/#", "address": "multicast/taps"}),
    ("tap", {"name": "musts", "pattern": "must/#", "address": "taps/must", "mode": "required"}),
    ("tap", {"name": "all tenants", "pattern": "*/*/tenanted/#", "address": "taps/shared"}),
    ("tap", {"name": "one tenant", "pattern": "*/*/tenanted/#", "address": "acme.com/taps"}),
    ("exchange", {"name": "exchange", "address": "copied/exchange"}),
    ("binding", {"name": "binding", "exchangeName": "exchange", "nextHopAddress": "hop"}),
    ("exchange", {"name": "must", "address": "must/exchange"}),
]


# -- mode copy ----------------------------------------------------------------------------------------------------


def test_copy_has_address_properties_and_annotations_of_the_original(
    connect: Connect, fresh: Fresh, management: Management
) -> None:
    address = fresh("copied")
    grown = growth(management, "copies")
    tap, consumer = connect().receiver("taps/copied", 10), connect().receiver(address, 10)
    sender = connect().sender(address)
    sent = (
        message.header(durable=True)
        + message.annotations({"x-mine": 1, ADDRESS: "forged", "x-opt-qd.trace": "forged"})
        + message.properties(subject="s", message_id="m1")
        + message.application_properties({"k": 7})
        + message.value("original")
    )
    number = sender.send(sent)
    copy, original = tap.next(), consumer.next()
    assert not copy.settled
    assert annotation(copy.payload, ADDRESS) == address
    assert annotation(copy.payload, "x-mine") == 1
    assert annotation(copy.payload, "x-opt-qd.trace") is None
    assert [key for key, _ in annotations_of(copy.payload).pairs] == ["x-mine", ADDRESS]  # type: ignore[union-attr]
    assert message.body(copy.payload) == "original"
    for section in (message.HEADER, message.PROPERTIES, message.APPLICATION_PROPERTIES):
        assert message.section_of(copy.payload, section) == message.section_of(sent, section)
    original.settle()
    assert sender.outcome(number).name == "accepted"
    grown(selected=1)
    copy.settle()
    grown(selected=1, accepted=1)


def _encoded_annotations(key: bytes, descriptor: bytes = b"\x53\x72") -> bytes:
    """Return message-annotations with one encoded key, whose value claims another address."""
    items = key + encode("forged")
    return b"\x00" + descriptor + b"\xc1" + bytes((len(items) + 1, 2)) + items


KEY = b"\xa3\x14" + ADDRESS.encode()


@pytest.mark.parametrize(
    "sent",
    [
        _encoded_annotations(b"\xb3\x00\x00\x00\x14" + ADDRESS.encode()) + message.value("m"),
        _encoded_annotations(b"\xa1\x14" + ADDRESS.encode()) + message.value("m"),
        message.annotations({"a": 1}) + _encoded_annotations(KEY) + message.value("m"),
        message.properties(subject="s") + 3 * _encoded_annotations(KEY) + message.value("m"),
        message.value("m") + _encoded_annotations(KEY),
        message.value("m") + _encoded_annotations(KEY, b"\xa3\x1camqp:message-annotations:map"),
        message.value("m") + _encoded_annotations(KEY, b"\x52\x72"),
        message.value("m") + _encoded_annotations(KEY, b"\x80" + bytes(7) + b"\x72"),
    ],
    ids=["sym32", "string", "second", "behind properties", "last", "by name", "uint", "ulong"],
)
@pytest.mark.parametrize("mode", ["copied", "must"])
def test_sender_cannot_claim_another_address(connect: Connect, fresh: Fresh, mode: str, sent: bytes) -> None:
    address = fresh(mode)
    tap, consumer = connect().receiver(f"taps/{mode}", 10), connect().receiver(address, 10)
    sender = connect().sender(address)
    number = sender.send(sent)
    copy = tap.next()
    copy.settle()
    consumer.next().settle()
    assert sender.outcome(number).name == "accepted"
    assert message.body(copy.payload) == "m"
    assert decode(copy.payload).annotations.get(ADDRESS) == address
    assert copy.payload.count(ADDRESS.encode()) == 1


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("anonymous", [True, False])
def test_messages_in_mode_copy_have_one_copy_each_in_order(
    connect: Connect, fresh: Fresh, management: Management, settled: bool, anonymous: bool
) -> None:
    address = fresh("copied")
    grown = growth(management, "copies")
    tap, consumer = connect().receiver("taps/copied", 200), connect().receiver(address, 200)
    sender = connect().sender(None if anonymous else address)
    for number in range(100):
        sender.send(message.message(number, to=address), settled=settled)
    assert bodies(consumer.receive(100)) == list(range(100))
    copies = tap.receive(100)
    assert bodies(copies) == list(range(100))
    assert {annotation(copy.payload, ADDRESS) for copy in copies} == {address}
    for copy in copies:
        copy.settle()
    grown(selected=100, accepted=100)
    assert no_more(tap)


@pytest.mark.parametrize("prefix", ["multicast/copied", "copied"])
def test_outcome_of_copy_does_not_matter_to_producer(
    connect: Connect, fresh: Fresh, management: Management, prefix: str
) -> None:
    address = fresh(prefix)
    grown = growth(management, "copies" if prefix == "copied" else "multicasts")
    tap, consumer = connect().receiver("taps/copied", 10), connect().receiver(address, 10)
    sender = connect().sender(address)
    for state in (rejected("my:condition", "mine"), RELEASED, modified(True), ACCEPTED):
        number = sender.send(message.message("m"))
        tap.next().settle(state)
        tap.peer.barrier()
        consumer.next().settle()
        assert sender.outcome(number).name == "accepted"
    grown(selected=4, accepted=1, rejected=1, returned=2, missed=2)


def test_unsettled_outcome_of_copy_is_settled_by_router(connect: Connect, fresh: Fresh, management: Management) -> None:
    address = fresh("copied")
    grown = growth(management, "copies")
    tap = connect().receiver("taps/copied", 10, rcv_settle_mode=SECOND)
    consumer = connect().receiver(address, 10)
    connect().sender(address).send(message.message("m"), settled=True)
    consumer.next()
    copy = tap.next()
    copy.settle(ACCEPTED, settled=False)
    grown(selected=1, accepted=1)


def test_refused_message_has_no_copy(connect: Connect, fresh: Fresh, management: Management) -> None:
    address = fresh("copied")
    grown = growth(management, "copies")
    tap = connect().receiver("taps/copied", 10)
    sender = connect().sender()
    assert sender.request(message.message("m", to=address)).name == "released"
    consumer = connect().receiver(address, 10)
    number = sender.send(message.message("n", to=address))
    consumer.next().settle()
    assert sender.outcome(number).name == "accepted"
    assert bodies([tap.next()]) == ["n"]
    assert no_more(tap)
    grown(selected=1)


def test_message_without_consumer_of_copies_is_counted(connect: Connect, fresh: Fresh, management: Management) -> None:
    address = fresh("copied")
    wait_address_table(connect, fresh)
    grown = growth(management, "copies")
    consumer = connect().receiver(address, 10)
    sender = connect().sender(address)
    number = sender.send(message.message("m"))
    consumer.next().settle()
    assert sender.outcome(number).name == "accepted"
    grown(selected=1, withoutConsumer=1, missed=1)


def test_exchange_message_is_copied_once_for_its_address(
    connect: Connect, fresh: Fresh, management: Management
) -> None:
    grown = growth(management, "copies")
    tap, hop = connect().receiver("taps/copied", 10), connect().receiver("hop", 10)
    assert connect().sender("copied/exchange").request(message.message("m", subject="s")).name == "accepted"
    assert bodies([hop.next()]) == ["m"]
    copy = tap.next()
    assert annotation(copy.payload, ADDRESS) == "copied/exchange"
    copy.settle()
    grown(selected=1, accepted=1)
    assert no_more(tap)


@pytest.mark.parametrize("size", [20_000, 100_000])
def test_message_of_several_frames_is_copied_whole(
    connect: Connect, fresh: Fresh, management: Management, size: int
) -> None:
    address = fresh("copied")
    grown = growth(management, "copies")
    tap, consumer = connect().receiver("taps/copied", 10), connect().receiver(address, 10)
    sender = connect().sender(address)
    number = sender.send(message.message("x" * size))
    consumer.next().settle()
    assert sender.outcome(number).name == "accepted"
    copy = tap.next()
    assert message.body(copy.payload) == "x" * size
    copy.settle()
    grown(selected=1, accepted=1)


def test_consumer_of_copies_that_takes_none_slows_nobody(
    connect: Connect, fresh: Fresh, management: Management
) -> None:
    """The copies beyond the bound are counted, exactly; the others arrive in order once there is credit."""
    address = fresh("copied")
    grown = growth(management, "copies")
    tap, consumer = connect().receiver("taps/copied", 0), connect().receiver(address, 1000)
    sender = connect().sender(address)
    count = MOST_COPIES + 500
    numbers = []
    for number in range(count):
        sender.wait_credit()
        numbers.append(sender.send(message.message(number)))
        if number % 100 == 99:
            for delivery in consumer.receive(100):
                delivery.settle()
            consumer.flow(1000)
    for delivery in consumer.receive(count % 100):
        delivery.settle()
    assert {sender.outcome(number).name for number in numbers} == {"accepted"}
    grown(selected=count, beyondBounds=500, missed=500)
    tap.flow(count)
    copies = tap.receive(MOST_COPIES)
    assert bodies(copies) == list(range(MOST_COPIES))
    for copy in copies:
        copy.settle()
    grown(selected=count, accepted=MOST_COPIES, beyondBounds=500, missed=500)
    assert no_more(tap)


@pytest.mark.parametrize("credit", [0, MOST_COPIES])
def test_consumers_that_settle_no_copies_have_together_as_many_as_one(
    connect: Connect, fresh: Fresh, management: Management, credit: int
) -> None:
    address, count, messages = fresh("spread"), 200, 300
    copied = -(-MOST_COPIES // count)  # the last message may exceed the bound
    grown = growth(management, "spread")
    peer = connect()
    taps = [peer.receiver("multicast/taps", credit, wait=False) for _ in range(count)]
    for tap in taps:
        tap.wait_attached()
    consumer, sender = connect().receiver(address, messages), connect().sender(address)
    for number in range(messages):
        sender.wait_credit()
        sender.send(message.message(number), settled=True)
    assert bodies(consumer.receive(messages)) == list(range(messages))
    grown(selected=messages, beyondBounds=messages - copied, missed=messages - copied)
    peer.drop()
    grown(selected=messages, beyondBounds=messages - copied, returned=copied, missed=messages)
    wait_address_table(connect, fresh)
    tap = connect().receiver("multicast/taps", 10)
    sender.send(message.message("copied"), settled=True)
    tap.next().settle()
    grown(selected=messages + 1, beyondBounds=messages - copied, returned=copied, missed=messages, accepted=1)


def test_lost_consumer_of_copies_is_counted(connect: Connect, fresh: Fresh, management: Management) -> None:
    address = fresh("copied")
    grown = growth(management, "copies")
    tap, consumer = connect().receiver("taps/copied", 2), connect().receiver(address, 10)
    sender = connect().sender(address)
    for number in range(5):
        sender.send(message.message(number), settled=True)
    assert bodies(consumer.receive(5)) == list(range(5))
    tap.receive(2)
    tap.peer.drop()
    grown(selected=5, returned=5, missed=5)


@pytest.mark.parametrize("prefix", ["copied", "must"])
@pytest.mark.parametrize("state", [ACCEPTED, rejected("my:condition", "mine"), RELEASED])
def test_copies_settled_by_one_disposition_are_counted_and_end_their_messages(
    connect: Connect, fresh: Fresh, management: Management, prefix: str, state: Any
) -> None:
    """Later messages show that the settled copies are not counted as under way any more."""
    address, count = fresh(prefix), 150
    grown = growth(management, {"copied": "copies", "must": "musts"}[prefix])
    tap, consumer = connect().receiver(f"taps/{prefix}", 1000), connect().receiver(address, 1000)
    sender = connect().sender(address)
    kind, outcome = {0x24: ("accepted", "accepted"), 0x25: ("rejected", "modified"), 0x26: ("returned", "modified")}[
        int(state.descriptor)
    ]
    for rounds in (1, 2):
        numbers = [sender.send(message.message(number)) for number in range(count)]
        originals, copies = consumer.receive(count), tap.receive(count)
        assert bodies(originals) == bodies(copies) == list(range(count))
        tap.session.disposition(copies[0].id, copies[-1].id, state=state)
        consumer.session.disposition(originals[0].id, originals[-1].id, state=ACCEPTED)
        wanted = "accepted" if prefix == "copied" else outcome
        assert {sender.outcome(number).name for number in numbers} == {wanted}
        total = rounds * count
        grown(selected=total, **{kind: total}, **({"missed": total} if kind == "returned" else {}))


# -- missed messages by address -----------------------------------------------------------------------------------


def make_tap(management: Management, fresh: Fresh, prefix: str, mode: str = "copy") -> tuple[str, str]:
    """Make a tap of the addresses that begin with a prefix. Return its name and the address of the copies."""
    name, copies = fresh("own"), fresh("taps")
    management.create(TAP, name=name, pattern=f"{prefix}/#", address=copies, mode=mode)
    return name, copies


def test_missed_messages_are_counted_by_address(
    router: RouterProcess, connect: Connect, fresh: Fresh, management: Management
) -> None:
    """Copies are missed without a consumer, when they come back, and when their consumer is lost."""
    prefix = fresh("counted")
    name, copies = make_tap(management, fresh, prefix)
    first, second, third = (f"{prefix}/{letter}" for letter in "abc")
    wait_address_table(connect, fresh)
    consumers = {address: connect().receiver(address, 100) for address in (first, second, third)}
    sender = connect().sender()

    def send(address: str, count: int) -> None:
        for number in range(count):
            sender.send(message.message(number, to=address), settled=True)
        consumers[address].receive(count)

    send(first, 3)
    poll(lambda: missed(management, name) == ({first: 3}, 0), "messages without a consumer of copies")
    tap = connect().receiver(copies, 100)
    send(second, 2)
    send(third, 4)
    for copy, state in zip(tap.receive(6), (RELEASED, modified(True), ACCEPTED, rejected("a:b", "c")), strict=False):
        copy.settle(state)
    tap.peer.barrier()
    poll(lambda: missed(management, name) == ({first: 3, second: 2}, 0), "copies that came back")
    tap.peer.drop()
    poll(lambda: missed(management, name) == ({first: 3, second: 2, third: 2}, 0), "copies of a lost consumer")
    row = management.one(TAP, name=name)
    assert (row["selectedCount"], row["acceptedCount"], row["rejectedCount"], row["missedCount"]) == (9, 1, 1, 7)
    done = run("explain", router.port, second)
    assert "2 messages without a copy" in done.out, done


def test_missed_messages_of_many_addresses_have_a_bounded_number_of_counts(
    connect: Connect, fresh: Fresh, management: Management
) -> None:
    prefix = fresh("many")
    name, _ = make_tap(management, fresh, prefix)
    wait_address_table(connect, fresh)
    sender, consumers, extra = connect().sender(), connect(), 5
    receivers = [consumers.receiver(f"{prefix}/{number}", 10) for number in range(MOST_MISSED_ADDRESSES + extra)]
    for number, receiver in enumerate(receivers):
        sender.send(message.message(number, to=f"{prefix}/{number}"), settled=True)
        receiver.next()

    def total() -> int:
        by_address, elsewhere = missed(management, name)
        return sum(by_address.values()) + elsewhere

    poll(lambda: total() == len(receivers), "all are counted")
    by_address, elsewhere = missed(management, name)
    assert (len(by_address), elsewhere) == (MOST_MISSED_ADDRESSES, extra)


# -- mode required ------------------------------------------------------------------------------------------------


def required_pair(connect: Connect, address: str, credit: int = 10) -> tuple[PeerReceiver, PeerReceiver, PeerSender]:
    """Return a receiver of the copies, a receiver of the address and a sender to it, which has credit."""
    tap, consumer = connect().receiver("taps/must", credit), connect().receiver(address, credit)
    return tap, consumer, connect().sender(address)


@pytest.mark.parametrize("copy_first", [True, False])
def test_outcome_waits_for_both(connect: Connect, fresh: Fresh, management: Management, copy_first: bool) -> None:
    grown = growth(management, "musts")
    tap, consumer, sender = required_pair(connect, fresh("must"))
    number = sender.send(message.message("m"))
    copy, original = tap.next(), consumer.next()
    first, last = (copy, original) if copy_first else (original, copy)
    first.settle()
    first.link.peer.barrier()
    sender.peer.barrier()
    assert number not in sender.session.outcomes
    last.settle()
    assert sender.outcome(number).name == "accepted"
    grown(selected=1, accepted=1)


@pytest.mark.parametrize("state", [rejected("my:condition", "mine"), RELEASED, modified(True)])
def test_outcome_of_consumer_remains_if_copy_is_accepted(connect: Connect, fresh: Fresh, state: Any) -> None:
    tap, consumer, sender = required_pair(connect, fresh("must"))
    number = sender.send(message.message("m"))
    consumer.next().settle(state)
    tap.next().settle()
    outcome = sender.outcome(number)
    assert outcome.name == {0x25: "rejected", 0x26: "released", 0x27: "modified"}[int(state.descriptor)]
    if outcome.name == "rejected":
        assert outcome.error == ("my:condition", "mine")


@pytest.mark.parametrize("state", [rejected("my:condition", "mine"), RELEASED, modified(True)])
def test_message_whose_copy_is_not_accepted_is_modified(
    connect: Connect, fresh: Fresh, management: Management, state: Any
) -> None:
    grown = growth(management, "musts")
    tap, consumer, sender = required_pair(connect, fresh("must"))
    number = sender.send(message.message("m"))
    original = consumer.next()
    tap.next().settle(state)
    assert sender.outcome(number).name == "modified"
    original.settle()
    kind = "rejected" if int(state.descriptor) == 0x25 else "returned"
    grown(selected=1, **{kind: 1}, **({} if kind == "rejected" else {"missed": 1}))


def test_lost_consumer_of_copies_modifies_what_it_had(connect: Connect, fresh: Fresh, management: Management) -> None:
    grown = growth(management, "musts")
    tap, consumer, sender = required_pair(connect, fresh("must"), credit=3)
    numbers = [sender.send(message.message(number)) for number in range(6)]
    consumer.flow(10)
    originals = consumer.receive(6)
    for original in originals:
        original.settle()
    tap.receive(3)
    tap.peer.drop()
    assert {sender.outcome(number).name for number in numbers} == {"modified"}
    grown(selected=6, returned=6, missed=6)


def test_producer_has_credit_only_while_copies_have_a_consumer(connect: Connect, fresh: Fresh) -> None:
    address = fresh("must")
    consumer = connect().receiver(address, 10)
    sender = connect().sender(address, credit=False)
    sender.peer.barrier()
    assert sender.credit == 0
    tap = connect().receiver("taps/must", 10)
    sender.wait_credit()
    number = sender.send(message.message("m"))
    tap.next().settle()
    consumer.next().settle()
    assert sender.outcome(number).name == "accepted"
    tap.detach()
    wait_address_table(connect, fresh)
    assert sender.request(message.message("lost")).name == "released"
    sender.peer.until(lambda: sender.draining, "drain")
    assert no_more(consumer)
    connect().receiver("taps/must", 10)
    sender.peer.until(lambda: not sender.draining and sender.credit > 0, "credit")


def test_anonymous_message_without_consumer_of_copies_is_released(connect: Connect, fresh: Fresh) -> None:
    address = fresh("must")
    wait_address_table(connect, fresh)
    consumer = connect().receiver(address, 10)
    assert connect().sender().request(message.message("m", to=address)).name == "released"
    assert no_more(consumer)


def test_consumers_that_want_settled_messages_do_not_end_the_wait(connect: Connect, fresh: Fresh) -> None:
    """A copy sent settled counts as accepted, for either consumer."""
    address = fresh("must")
    tap, consumer = connect().receiver("taps/must", 10), connect().receiver(address, 10, snd_settle_mode=1)
    sender = connect().sender(address)
    number = sender.send(message.message("m"))
    consumer.next()
    copy = tap.next()
    sender.peer.barrier()
    assert number not in sender.session.outcomes
    copy.settle()
    assert sender.outcome(number).name == "accepted"
    tap.detach()
    settled = connect().receiver("taps/must", 10, snd_settle_mode=1)
    sender.wait_credit()
    number = sender.send(message.message("n"))
    consumer.next()
    settled.next()
    assert sender.outcome(number).name == "accepted"


def test_lost_producer_leaves_copies_and_consumers_alone(
    connect: Connect, fresh: Fresh, management: Management
) -> None:
    grown = growth(management, "musts")
    tap, consumer, sender = required_pair(connect, fresh("must"))
    sender.send(message.message("m"))
    original, copy = consumer.next(), tap.next()
    sender.peer.drop()
    copy.settle()
    original.settle()
    grown(selected=1, accepted=1)


def test_presettled_message_is_copied_as_in_mode_copy(connect: Connect, fresh: Fresh, management: Management) -> None:
    grown = growth(management, "musts")
    tap, consumer, sender = required_pair(connect, fresh("must"))
    sender.send(message.message("m"), settled=True)
    assert bodies([consumer.next()]) == ["m"]
    tap.next().settle()
    grown(selected=1, accepted=1)


def test_message_of_several_frames_waits_as_well(connect: Connect, fresh: Fresh) -> None:
    tap, consumer, sender = required_pair(connect, fresh("must"))
    number = sender.send(message.message("x" * 900_000))
    original, copy = consumer.next(), tap.next()
    assert message.body(copy.payload) == message.body(original.payload) == "x" * 900_000
    original.settle()
    original.link.peer.barrier()
    assert number not in sender.session.outcomes
    copy.settle()
    assert sender.outcome(number).name == "accepted"


def test_message_that_cannot_wait_is_rejected(connect: Connect, fresh: Fresh) -> None:
    _tap = connect().receiver("taps/must", 10)
    outcome = connect().sender("must/exchange").request(message.message("m"))
    assert (outcome.name, outcome.error and outcome.error[0]) == ("rejected", "amqp:not-implemented")


def test_multicast_message_waits_for_its_consumers_and_the_copy(connect: Connect, fresh: Fresh) -> None:
    management = Management(connect())
    name = fresh("multicast/must")
    management.create(TAP, name, pattern=name, address="taps/must", mode="required")
    tap = connect().receiver("taps/must", 10)
    consumers = [connect().receiver(name, 10) for _ in range(3)]
    sender = connect().sender(name)
    number = sender.send(message.message("m"))
    tap.next().settle()
    for consumer in consumers[:2]:
        consumer.next().settle(RELEASED)
    sender.peer.barrier()
    assert number not in sender.session.outcomes
    consumers[2].next().settle()
    assert sender.outcome(number).name == "accepted"
    management.delete(TAP, name)


# -- configuration ------------------------------------------------------------------------------------------------


def test_tap_made_and_deleted_by_management_is_in_force_at_once(connect: Connect, fresh: Fresh) -> None:
    management = Management(connect())
    address = fresh("balanced")
    tap, consumer = connect().receiver("taps/made", 10), connect().receiver(address, 10)
    sender = connect().sender(address)
    management.create(TAP, address, pattern=address, address="taps/made", mode="required")
    number = sender.send(message.message(1))
    consumer.next().settle()
    tap.next()
    sender.peer.barrier()
    assert number not in sender.session.outcomes
    management.delete(TAP, address)
    assert sender.outcome(number).name == "accepted", "deleting a tap ends the wait for its copies"
    number = sender.send(message.message(2))
    consumer.next().settle()
    assert sender.outcome(number).name == "accepted"
    assert no_more(tap)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"pattern": "loop/#", "address": "loop/a"}, "copies would be copied"),
        ({"pattern": "taps/*", "address": "elsewhere"}, "copies would be copied"),
        ({"pattern": "elsewhere", "address": "copied/x"}, "copies would be copied"),
        ({"pattern": "elsewhere", "address": ""}, "address"),
        ({"pattern": "/", "address": "elsewhere"}, "token"),
        ({"pattern": "elsewhere", "address": "x", "mode": "some"}, "some"),
        ({"pattern": "elsewhere", "address": "_local/x"}, "_local/x"),
    ],
)
def test_useless_tap_is_refused(connect: Connect, attributes: dict[str, Any], text: str) -> None:
    management = Management(connect())
    with pytest.raises(ManagementStatusError) as caught:
        management.create(TAP, "refused", **attributes)
    assert caught.value.code == 400
    assert text in caught.value.description
    assert all(row["name"] != "refused" for row in management.query(TAP))


def test_explain_shows_taps_of_an_address_in_use_or_not(connect: Connect, fresh: Fresh) -> None:
    management = Management(connect())
    address = fresh("must")
    tap = {"name": "musts", "address": "taps/must", "mode": "required", "consumers": 0, "missed": 0}
    wait_address_table(connect, fresh)
    assert management.call("EXPLAIN", address=address)["taps"] == [tap]
    connect().receiver(address), connect().receiver("taps/must")
    assert management.call("EXPLAIN", address=address)["taps"] == [{**tap, "consumers": 1}]
    assert management.call("EXPLAIN", address="taps/must")["taps"] == []


# -- tenants ------------------------------------------------------------------------------------------------------


def test_tap_copies_messages_of_the_tenant_whose_address_it_has(connect: Connect, fresh: Fresh) -> None:
    address = fresh("tenanted")

    def tenant(name: str) -> AmqpPeer:
        return connect("tenants", hostname=name)

    taps, shared = tenant("acme.com").receiver("taps", 10), connect().receiver("taps/shared", 10)
    for name in ("acme.com", "other.org"):
        consumer = tenant(name).receiver(address, 10)
        sender = tenant(name).sender(address)
        number = sender.send(message.message(name))
        consumer.next().settle()
        assert sender.outcome(number).name == "accepted"
    copy = taps.next()
    assert message.body(copy.payload) == "acme.com"
    assert annotation(copy.payload, ADDRESS) == f"acme.com/{address}"
    assert no_more(taps)
    assert no_more(shared)
    consumer = connect().receiver(f"x/y/{address}", 10)
    connect().sender(f"x/y/{address}").send(message.message("no tenant's"), settled=True)
    consumer.next()
    assert bodies([shared.next()]) == ["no tenant's"]
