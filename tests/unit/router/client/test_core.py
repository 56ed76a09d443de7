"""Core of the client without sockets, connected to the engine's server side, with split and damaged input."""

import random
from typing import Any

import pytest

from sluice.router.amqp import codec
from sluice.router.client import Accepted, ConnectionFailedError, Message, UnsettledError
from sluice.router.client.attach import Terminus
from sluice.router.client.core import ClientCore, ConnectionStage, Options
from tests.unit.router.amqp.stub import RecordingHandler

ACCEPTED = codec.encode_described(0x24, [])
NOW = 1.0


class AcceptingServer(RecordingHandler):
    """Server that accepts every delivery and sends one message to each receiver."""

    def on_attach(self, session, items):
        link = super().on_attach(session, items)
        if link.incoming:
            link.flow(5)
        return link

    def on_delivery(self, receiver, delivery):
        super().on_delivery(receiver, delivery)
        receiver.settle(delivery, ACCEPTED)

    def on_credit(self, sender):
        if not sender.delivery_count and not sender.queued:
            sender.send(Message(b"y" * 700).encode())


def exchange(cut=lambda octets: [octets]):
    """Run a session with a sender and a receiver to its end. Return (core, sender, receiver, sendings, server). cut:
    splits the server's octets."""
    core, server = ClientCore(Options(container="c", max_frame=512)), AcceptingServer(max_frame=512)
    session = core.session()
    sender = session.sender(source=Terminus(), target=Terminus("q"))
    receiver = session.receiver(source=Terminus("r"), target=Terminus(), window=2)
    core.start(NOW)
    sendings: list[Any] = []
    moved = True
    while moved:
        octets = core.output(NOW)
        server.feed(octets)
        answer = server.connection.take_output()
        for piece in cut(answer):
            core.receive(piece, NOW)
        if sender.ready and not sendings:
            sendings.append(sender.send(Message("m" * 600)))
        moved = bool(octets or answer)
    return core, sender, receiver, sendings, server


def test_links_are_attached_when_connection_opens():
    core, sender, receiver, (sending,), server = exchange()
    assert core.stage is ConnectionStage.OPEN
    assert sending.result() == Accepted()
    assert [delivery.octets for delivery in server.deliveries] == [Message("m" * 600).encode()]
    delivery = receiver.take()
    assert delivery.message.body == b"y" * 700
    delivery.accept()
    server.feed(core.output(NOW))
    assert server.notes[-1] == ("outcome", delivery.received.id, ACCEPTED, True)
    assert (receiver.link.unsettled, sender.link.unsettled) == ({}, {})


def test_exchange_split_at_every_offset_succeeds():
    sizes: list[int] = []

    def whole(octets):
        sizes.append(len(octets))
        return [octets]

    exchange(whole)
    for at in range(1, sum(sizes)):
        left = [at]

        def cut(octets, left=left):
            here, left[0] = left[0], left[0] - len(octets)
            return [octets[:here], octets[here:]] if 0 < here < len(octets) else [octets]

        _, _, receiver, (sending,), _ = exchange(cut)
        assert sending.result() == Accepted(), at
        assert receiver.take().message.body == b"y" * 700, at


def test_exchange_split_into_octets_succeeds():
    _, _, receiver, (sending,), _ = exchange(lambda octets: [octets[i : i + 1] for i in range(len(octets))])
    assert sending.result() == Accepted()
    assert receiver.take() is not None


@pytest.mark.parametrize("seed", range(200))
def test_damaged_octets_only_end_the_connection(seed):
    """Changed octets of a server cause only errors of the connection."""
    generator = random.Random(seed)
    budget = [generator.randrange(1, 4)]

    def change(octets):
        octets = bytearray(octets)
        if octets and budget[0] and generator.random() < 0.5:
            budget[0] -= 1
            octets[generator.randrange(len(octets))] = generator.randrange(256)
        return [bytes(octets)]

    core, sender, receiver, sendings, _ = exchange(change)
    core.lost("the end")
    assert core.closing
    assert all(sending.done for sending in sendings)
    assert isinstance(core.error, ConnectionFailedError)
    assert sender.waiting == set()
    assert not any(delivery.settled for delivery in receiver.arrived)


def test_lost_transport_reports_unsettled_messages():
    core, server = ClientCore(Options(max_frame=512)), AcceptingServer(max_frame=512)
    sender = core.session().sender(source=Terminus(), target=Terminus("q"))
    core.start(NOW)
    for _ in range(5):
        server.feed(core.output(NOW))
        core.receive(server.connection.take_output(), NOW)
    sent, kept = (sender.send(Message(n)) for n in range(2))
    core.output(NOW)
    queued = sender.send(Message(2))
    core.lost("gone")
    for sending, seen in ((sent, True), (kept, True), (queued, False)):
        with pytest.raises(UnsettledError) as caught:
            sending.result()
        assert caught.value.sent is seen
    with pytest.raises(UnsettledError) as caught:
        sender.send(Message(3))
    assert not caught.value.sent
