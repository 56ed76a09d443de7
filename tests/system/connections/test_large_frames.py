"""Frames much longer than a read, sent in pieces of any size."""

from __future__ import annotations

import random

import pytest

from tests.peer import message
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Start
from tests.system.router import SETTINGS, RouterProcess, listener

pytestmark = pytest.mark.adversarial

MAX_FRAME = 16 * 1024 * 1024


def clients(router: RouterProcess, most: int) -> tuple[PeerSender, PeerReceiver]:
    consumer = AmqpPeer.opened(router.port, max_frame_size=most)
    producer = AmqpPeer.opened(router.port, max_frame_size=most)
    receiver = consumer.receiver("closest/a", 100)
    return producer.sender("closest/a"), receiver


def one_frame_message(sender: PeerSender, body: bytes) -> bytes:
    """Return a message in one transfer frame."""
    return sender.session.transfer_octets(
        message.data(body), handle=sender.handle, delivery_id=sender.session.take_delivery_id(), delivery_tag=b"t",
        settled=True,
    )  # fmt: skip


def body_of(payload: bytes) -> bytes:
    found: bytes = message.body(payload)
    return found


def test_large_frames_in_pieces_arrive_unchanged(start: Start) -> None:
    router = start([listener(maxFrameSize=MAX_FRAME), *SETTINGS], 1)
    sender, receiver = clients(router, MAX_FRAME)
    order = random.Random(8)
    bodies = [order.randbytes(size) for size in (70_000, 10, 65_500, 300_000, 3, 1_200_000, 98_304, 65_536, 5)]
    stream = b"".join(one_frame_message(sender, body) for body in bodies)
    at = 0
    while at < len(stream):
        size = order.choice((1, 7, 8, 9, 4_000, 65_536, 98_304, 200_000))
        sender.peer.raw(stream[at : at + size])
        at += size
    for body in bodies:
        assert body_of(receiver.next().payload) == body
    sender.peer.drop()
    receiver.peer.drop()
