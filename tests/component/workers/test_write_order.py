"""Order in which a wake reads from and writes to its connections."""

import select

import pytest

from tests.component.workers.loops import LoopRouter, SocketPeer
from tests.peer.frames import ACCEPTED
from tests.peer.talk import consumer, frames, message, of, producer, settle, start, transfer

BULK_OCTETS = 32768


def attach_client(router: LoopRouter, octets: bytes) -> SocketPeer:
    peer: SocketPeer = router.connect(0)  # type: ignore[assignment]
    peer.feed(start() + octets)
    router.settle()
    frames(peer)
    return peer


@pytest.mark.parametrize("delivery_first", [False, True])
def test_delivery_is_written_before_outcome(delivery_first: bool) -> None:
    router = LoopRouter()
    sender, receiver = (
        attach_client(router, producer(0, "balanced.a")),
        attach_client(router, consumer(0, "balanced.a")),
    )
    other_sender = attach_client(router, producer(0, "balanced.b"))
    other_receiver = attach_client(router, consumer(0, "balanced.b"))
    sender.feed(transfer(0, 0, message(b"x")))
    router.settle()
    assert of(frames(receiver), "transfer")
    frames(sender)  # drop the credit

    inputs = [(receiver, settle(0, state=ACCEPTED)), (other_sender, transfer(0, 0, message(b"y")))]
    for peer, octets in reversed(inputs) if delivery_first else inputs:
        peer.feed(octets)
    with select.epoll() as readable:  # reports sockets in the order in which they became readable
        for peer in (sender, other_receiver):
            readable.register(peer.socket, select.EPOLLIN)
        router.wake(router.workers[0])
        order = [fd for fd, _ in readable.poll(5)]
    assert order == [other_receiver.socket.fileno(), sender.socket.fileno()]
    assert of(frames(other_receiver), "transfer")
    assert of(frames(sender), "disposition")
    for peer in (sender, receiver, other_sender, other_receiver):
        peer.lose()
    router.settle()
    router.check_quiet()


@pytest.mark.parametrize("bulk_first", [False, True])
def test_message_of_quiet_producer_is_sent_before_those_of_bulk_producer(bulk_first: bool) -> None:
    router = LoopRouter()
    bulk_receiver, quiet_receiver = (attach_client(router, consumer(0, f"balanced.{name}")) for name in "ab")
    bulk, quiet = (attach_client(router, producer(0, f"balanced.{name}")) for name in "ab")
    bulk.feed(transfer(0, 0, message(bytes(BULK_OCTETS)), settled=True))
    router.settle()
    assert of(frames(bulk_receiver), "transfer")

    inputs = [
        (bulk, transfer(0, 1, message(bytes(BULK_OCTETS)), settled=True)),
        (quiet, transfer(0, 0, message(b"x"), settled=True)),
    ]
    for peer, octets in inputs if bulk_first else reversed(inputs):
        peer.feed(octets)
    with select.epoll() as readable:
        for peer in (bulk_receiver, quiet_receiver):
            readable.register(peer.socket, select.EPOLLIN)
        router.wake(router.workers[0])
        order = [fd for fd, _ in readable.poll(5)]
    assert order == [quiet_receiver.socket.fileno(), bulk_receiver.socket.fileno()]
    for peer in (bulk, quiet, bulk_receiver, quiet_receiver):
        peer.lose()
    router.settle()
    router.check_quiet()
