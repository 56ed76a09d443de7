"""Connection without a router: both sides of the protocol with recording handlers."""

import pytest

from sluice.router.amqp import codec
from sluice.router.client.receiver import Receiver
from sluice.router.client.sender import Sender
from tests.unit.router.amqp.stub import MS, ConnectionPair

ACCEPTED = codec.encode_described(0x24, [])
RELEASED = codec.encode_described(0x26, [])
REJECTED = codec.encode_described(0x25, [codec.encode_error("a:b", "no")])
MODIFIED = codec.encode_described(0x27, [b"\x41", b"\x41"])
OUTCOMES = [ACCEPTED, RELEASED, REJECTED, MODIFIED]
PARTS = [
    pytest.param(lambda octets: [octets], id="whole"),
    pytest.param(lambda octets: [octets[i : i + 1] for i in range(len(octets))], id="octet by octet"),
]


def notes(stub, *kinds):
    return [note for note in stub.notes if note[0] in kinds]


def sending(pair, **options):
    """Let the client attach a sender. Return (sender, receiver)."""
    session = pair.session()
    sender = pair.client.attach(session, "out", Sender(pair.client, **options))
    pair.run()
    return sender, pair.server.links[-1]


def receiving(pair, **options):
    """Let the client attach a receiver. Return (sender, receiver)."""
    session = pair.session()
    receiver = pair.client.attach(session, "in", Receiver(pair.client, **options))
    pair.run()
    return pair.server.links[-1], receiver


BOTH = [sending, receiving]


@pytest.mark.parametrize("pieces", PARTS)
def test_open_begin_attach_send_settle_close(pieces):
    pair = ConnectionPair(pieces)
    sender, receiver = sending(pair)
    receiver.flow(10)
    pair.run()
    assert sender.credit == 10
    delivery = sender.send(b"\x00\x53\x75\xa0\x01x")
    pair.run()
    (arrived,) = pair.server.deliveries
    assert (arrived.octets, arrived.settled) == (b"\x00\x53\x75\xa0\x01x", False)
    assert receiver.settle(arrived, ACCEPTED)
    pair.run()
    assert notes(pair.client, "outcome") == [("outcome", delivery.id, ACCEPTED, True)]
    assert (sender.unsettled, receiver.unsettled) == ({}, {})
    sender.detach()
    pair.client.connection.close()
    pair.run()
    assert pair.client.notes[-2:] == [("detached", "out", None), ("closed", None)]
    assert pair.server.notes[-2:] == [("detached", "out", None), ("closed", None)]
    assert pair.client.notes[:3] == [("authenticated", "anonymous"), ("open", "server"), ("begun",)]


def test_exchange_split_at_every_offset_is_unchanged():
    """The client's side of one exchange is split in two at every offset."""

    def exchange(at):
        cut = {"left": at}

        def pieces(octets):
            here, cut["left"] = cut["left"], cut["left"] - len(octets)
            return [octets[:here], octets[here:]] if 0 < here < len(octets) else [octets]

        pair = ConnectionPair(pieces, max_frame=512)
        sender, receiver = receiving(pair)
        receiver.flow(2)
        pair.run()
        sender.send(b"y" * 700)
        sender.send(b"z", settled=True)
        pair.run()
        receiver.settle(pair.client.deliveries[0], REJECTED)
        receiver.flow(5, drain=True)
        pair.run()
        pair.client.connection.close("amqp:not-found", "why")
        pair.run()
        return pair.client.notes, pair.server.notes, -cut["left"] + at

    whole = exchange(0)
    assert ("drained",) in whole[0]
    assert whole[1][-1] == ("closed", ("amqp:not-found", "why"))
    for at in range(1, whole[2]):
        assert exchange(at)[:2] == whole[:2], at


@pytest.mark.parametrize("ends", BOTH)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_outcomes_in_both_directions(ends, outcome):
    pair = ConnectionPair()
    sender, receiver = ends(pair)
    receiver.flow(10)
    pair.run()
    sent = [sender.send(b"%d" % i) for i in range(3)]
    pair.run()
    arrived = [*pair.server.deliveries, *pair.client.deliveries]
    for delivery in reversed(arrived):
        assert receiver.settle(delivery, outcome)
        assert not receiver.settle(delivery, outcome)
    pair.run()
    heard = [*notes(pair.client, "outcome"), *notes(pair.server, "outcome")]
    assert sorted(heard) == [("outcome", delivery.id, outcome, True) for delivery in sent]


@pytest.mark.parametrize("ends", BOTH)
def test_unsettled_state_waits_for_sender_to_settle(ends):
    pair = ConnectionPair()
    sender, receiver = ends(pair)
    receiver.flow(1)
    pair.run()
    sent = sender.send(b"x")
    pair.run()
    (arrived,) = [*pair.server.deliveries, *pair.client.deliveries]
    receiver.settle(arrived, ACCEPTED, settled=False)
    pair.run()
    assert [*notes(pair.client, "outcome"), *notes(pair.server, "outcome")] == [("outcome", sent.id, ACCEPTED, False)]
    assert sender.unsettled == {sent.id: sent}
    sender.settle(sent)
    pair.run()
    assert [*notes(pair.client, "settled"), *notes(pair.server, "settled")] == [("settled", arrived.id)]
    assert (sender.unsettled, receiver.unsettled, arrived.settled) == ({}, {}, True)


@pytest.mark.parametrize("ends", BOTH)
def test_messages_of_many_frames_within_credit(ends):
    pair = ConnectionPair(max_frame=512)
    sender, receiver = ends(pair)
    octets = bytes(range(256)) * 1000
    receiver.flow(1)
    pair.run()
    for _ in range(2):
        sender.send(octets, settled=True)
    pair.run()
    arrived = [*pair.server.deliveries, *pair.client.deliveries]
    assert [each.octets for each in arrived] == [octets]
    assert (sender.queued, sender.credit, receiver.credit) == (1, 0, 0)
    receiver.flow(1)
    pair.run()
    assert sender.queued == 0
    assert [each.octets for each in [*pair.server.deliveries, *pair.client.deliveries]] == [octets, octets]


@pytest.mark.parametrize("ends", BOTH)
def test_drain_gives_credit_back(ends):
    pair = ConnectionPair()
    sender, receiver = ends(pair)
    receiver.flow(5)
    pair.run()
    sender.send(b"x", settled=True)
    receiver.flow(5, drain=True)
    pair.run()
    assert [*notes(pair.client, "drained"), *notes(pair.server, "drained")] == [("drained",)]
    assert (sender.credit, receiver.credit, receiver.draining) == (0, 0, False)
    assert sender.delivery_count == receiver.delivery_count
    receiver.flow(2)
    pair.run()
    assert sender.credit == 2


def test_message_beyond_size_limit_ends_link():
    pair = ConnectionPair(max_frame=512)
    sender, receiver = receiving(pair, max_message_size=1000)
    receiver.flow(2)
    pair.run()
    sender.send(b"x" * 1000)
    sender.send(b"x" * 1001)
    pair.run()
    assert [len(each.octets) for each in pair.client.deliveries] == [1000]
    assert receiver.ended
    assert sender.ended
    assert b"amqp:link:message-size-exceeded" in sender.detach_error
    with pytest.raises(Exception, match="is detached"):
        sender.send(b"x")


def test_settlement_drops_unwritten_rest_of_delivery():
    """The receiver's session takes no more frames; the receiver settles a delivery of which it has seen the first
    part."""
    pair = ConnectionPair(max_frame=512)
    sender, receiver = receiving(pair)
    receiver.flow(1)
    pair.run()
    sender.send(b"x" * 1_000_000)
    octets = pair.server.connection.take_output()
    assert sender.queued == 1  # the write buffer is full
    pair.client.feed(octets)
    (started,) = receiver.unsettled.values()
    assert receiver.settle(started, RELEASED)
    pair.run()
    assert notes(pair.server, "outcome") == [("outcome", 0, RELEASED, True)]
    assert (sender.queued, sender.unsettled, receiver.unsettled) == (0, {}, {})
    assert pair.client.deliveries == []


def test_lost_transport_ends_links_once():
    pair = ConnectionPair()
    sender, receiver = sending(pair)
    receiver.flow(1)
    pair.run()
    sent = sender.send(b"x")
    pair.run()
    assert sender.unsettled == {sent.id: sent}
    pair.client.connection.transport_lost()
    pair.server.connection.transport_lost()
    for stub in (pair.client, pair.server):
        assert [note[0] for note in stub.notes].count("detached") == 1
        assert stub.notes[-1][0] == "closed"
    assert (sender.unsettled, receiver.unsettled) == ({}, {})


def test_idle_peers_receive_heartbeats():
    pair = ConnectionPair(idle_ms=1000)
    pair.session()
    for stub in (pair.client, pair.server):
        stub.scheduler.set_time(900 * MS)
        assert stub.connection.tick(900) > 0
    pair.run()
    assert pair.client.connection.last_received == 900
    pair.client.scheduler.set_time(2000 * MS)
    pair.client.connection.tick(2000)
    assert pair.client.notes[-1] == ("closed", ("amqp:resource-limit-exceeded", "local-idle-timeout expired"))
