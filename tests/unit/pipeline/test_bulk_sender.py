"""Bulk sender without sockets, connected to the engine's server side."""

from typing import Any

import pytest

from sluice.pipeline.bulk import BulkSenderState
from sluice.pipeline.bulk_sender import MessageBatch
from sluice.router.amqp import codec
from sluice.router.amqp.errors import LocalError
from sluice.router.client.attach import Terminus
from tests.unit.router.client.exchange import NOW, CoreExchange

ACCEPTED, REJECTED, RELEASED = (codec.encode_described(code, []) for code in (0x24, 0x25, 0x26))
RECEIVED = codec.encode_described(0x23, [codec.encode_uint(0), codec.encode_ulong(0)])
LONG = bytes(index % 251 for index in range(3000))


class RecordingBulkSender(BulkSenderState):
    """Bulk sender that records every outcome other than accepted."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.notes: list[tuple[bytes, bytes]] = []

    def on_outcome(self, sender: Any, octets: bytes, state: bytes) -> None:
        self.notes.append((octets, state))


class BulkSendExchange(CoreExchange):
    """Sender and its server, which grants the credit given to `grant`."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        session = self.core.session()
        self.state = RecordingBulkSender(session, source=Terminus(), target=Terminus("r"), name="s", **options)
        session.add(self.state)
        self.connect()

    def connect(self) -> None:
        super().connect()
        (self.receiver,) = self.server.links

    def grant(self, credit: int) -> None:
        self.receiver.flow(credit)
        self.run()

    def give(self, *octets: bytes) -> MessageBatch:
        messages = MessageBatch.of(octets)
        self.state.give(messages)
        self.run()
        return messages

    @property
    def came(self) -> list[bytes]:
        return [bytes(each.octets) for each in self.server.deliveries]

    def settle(self, at: int, state: bytes = ACCEPTED) -> None:
        self.receiver.settle(self.server.deliveries[at], state)
        self.run()


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def test_messages_are_sent_as_credit_allows():
    exchange = BulkSendExchange()
    messages = exchange.give(*numbered(5))
    assert exchange.came == []
    exchange.grant(3)
    assert exchange.came == numbered(3)
    exchange.give(b"more")
    exchange.grant(10)
    assert exchange.came == [*numbered(5), b"more"]
    assert (messages.left, exchange.state.accepted) == (5, 0)
    assert len({bytes(each.tag) for each in exchange.server.deliveries}) == 6


def test_accepted_messages_are_counted_and_others_reported():
    exchange = BulkSendExchange()
    messages = exchange.give(*numbered(4))
    exchange.grant(10)
    exchange.settle(2)
    exchange.settle(0, RELEASED)
    exchange.settle(3, REJECTED)
    assert (exchange.state.accepted, messages.left) == (1, 1)
    assert exchange.state.notes == [(b"0", RELEASED), (b"3", REJECTED)]
    exchange.settle(1)
    assert (exchange.state.accepted, messages.left) == (2, 0)


def test_messages_of_several_frames_and_empty_ones_are_sent():
    exchange = BulkSendExchange()
    messages = exchange.give(LONG, b"", LONG[:700])
    exchange.grant(10)
    assert exchange.came == [LONG, b"", LONG[:700]]
    for at in range(3):
        exchange.settle(at)
    assert messages.left == 0


def test_unsettled_messages_are_bounded():
    exchange = BulkSendExchange(most=2)
    exchange.give(*numbered(5))
    exchange.grant(10)
    assert exchange.came == numbered(2)
    exchange.settle(1)
    assert exchange.came == numbered(3)
    exchange.settle(0)
    exchange.settle(2, RELEASED)
    assert exchange.came == numbered(5)


def test_drain_is_answered_while_outcomes_are_pending():
    """A receiver may drain before it settles."""
    exchange = BulkSendExchange(most=2)
    exchange.give(*numbered(5))
    exchange.receiver.flow(10, drain=True)
    exchange.run()
    assert exchange.came == numbered(2)
    assert exchange.server.notes[-1] == ("drained",)
    exchange.settle(0)
    exchange.settle(1)
    assert exchange.came == numbered(2)
    exchange.grant(10)
    assert exchange.came == numbered(4)


def test_settled_messages_are_done_when_confirmed():
    exchange = BulkSendExchange(settled=True)
    messages = exchange.give(*numbered(5))
    exchange.grant(3)
    assert [each.settled for each in exchange.server.deliveries] == [True] * 3
    assert messages.left == 5
    assert exchange.state.link.settle_written() == 3
    assert (messages.left, exchange.state.accepted) == (2, 3)
    exchange.grant(3)
    assert exchange.state.link.settle_written() == 2
    assert messages.left == 0


def test_reconnection_resends_unsettled_messages_first():
    exchange = BulkSendExchange()
    first, second = exchange.give(*numbered(4)), exchange.give(*numbered(2, 4))
    exchange.grant(5)
    exchange.settle(1)
    exchange.core.lost("gone")
    assert (first.left, second.left, exchange.state.accepted) == (3, 2, 1)
    exchange.connect()
    exchange.state.give(first)
    exchange.state.give(second)
    exchange.grant(10)
    assert exchange.came == [b"0", b"2", b"3", b"4", b"5"]
    for at in range(5):
        exchange.settle(at)
    assert (first.left, second.left, exchange.state.accepted) == (0, 0, 6)


def test_messages_of_a_link_cannot_be_given_again():
    exchange = BulkSendExchange()
    messages = exchange.give(b"0")
    with pytest.raises(LocalError, match="link s has these messages"):
        exchange.state.give(messages)
    with pytest.raises(LocalError, match="are being sent"):
        messages.add(b"1")


def disposition(number: int, state: bytes, settled: bool) -> bytes:
    items = [b"\x41", codec.encode_uint(number), codec.encode_uint(number), b"\x41" if settled else b"\x42", state]
    body: bytes = codec.encode_described(0x15, items)
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body


def test_nonterminal_state_settles_nothing():
    exchange = BulkSendExchange()
    messages = exchange.give(b"0")
    exchange.grant(1)
    exchange.core.receive(disposition(0, RECEIVED, False), NOW)
    exchange.run()
    assert (messages.left, exchange.state.accepted, exchange.state.notes) == (1, 0, [])


def test_unsettled_outcome_is_settled_by_sender():
    exchange = BulkSendExchange()
    messages = exchange.give(b"0")
    exchange.grant(1)
    exchange.core.receive(disposition(0, ACCEPTED, False), NOW)
    exchange.run()
    assert (messages.left, exchange.state.accepted) == (0, 1)
    assert ("settled", 0) in exchange.server.notes


def test_settlement_within_message_ends_it():
    exchange = BulkSendExchange()
    messages = exchange.give(bytes(1 << 20), b"next")
    exchange.receiver.flow(10)
    exchange.core.receive(exchange.server.connection.take_output(), NOW)
    exchange.server.feed(exchange.core.output(NOW))  # as much as the buffer takes
    exchange.core.receive(disposition(0, REJECTED, True), NOW)
    exchange.run()
    assert exchange.came == [b"next"], "the receiver has forgotten the other one"
    assert exchange.state.notes == [(bytes(1 << 20), REJECTED)]
    exchange.settle(0)
    assert messages.left == 0


def in_transaction(state: bytes) -> bytes:
    octets: bytes = codec.encode_described(0x34, [codec.encode_binary(b"t"), state])
    return octets


def test_messages_in_transaction_carry_its_state_and_need_its_outcome():
    exchange = BulkSendExchange(transfer_state=in_transaction(codec.encode_value(None)))
    messages = exchange.give(LONG, *numbered(4))
    exchange.grant(10)
    assert exchange.came == [LONG, *numbered(4)]
    assert {bytes(each.state) for each in exchange.server.deliveries} == {exchange.state.transfer_state}
    exchange.settle(0)
    assert exchange.state.notes == [(LONG, ACCEPTED)], "accepted outside of the transaction"
    exchange.settle(1, in_transaction(ACCEPTED))
    assert exchange.state.accepted == 0
    exchange.state.link.learn_accepted(in_transaction(ACCEPTED))
    exchange.settle(2, in_transaction(ACCEPTED))
    exchange.settle(3, in_transaction(RELEASED))
    exchange.settle(4, RELEASED)
    assert exchange.state.accepted == 2
    assert [state for _, state in exchange.state.notes[1:]] == [
        in_transaction(ACCEPTED),
        in_transaction(RELEASED),
        RELEASED,
    ]
    assert messages.left == 0


def test_batch_of_many_messages_is_settled():
    exchange = BulkSendExchange()
    messages = exchange.give(*numbered(20_000))
    exchange.grant(20_000)
    assert exchange.came == numbered(20_000)
    for delivery in exchange.server.deliveries:
        exchange.receiver.settle(delivery, ACCEPTED)
    exchange.run()
    assert (messages.left, exchange.state.accepted) == (0, 20_000)
