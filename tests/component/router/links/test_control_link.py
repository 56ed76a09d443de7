"""Control messages between routers: whole, in order, unchanged, bounded, and before data."""

import pytest

from sluice.workers.links.inter_router_link import DATA
from tests.component.engine.interior_router import INTERIOR, InteriorRouter
from tests.peer.talk import MANY, flow, frames, key, message, messages, of, producer, start, transfer

MOST = 32 << 20  # octets of a control message
QUEUED = 250  # control messages that wait for a peer without credit


@pytest.fixture(params=[1, 2], ids=["1-worker", "2-workers"])
def host(routers, request):
    return InteriorRouter(routers(request.param, INTERIOR))


def test_control_messages_arrive_whole_and_in_order(host):
    peer = host.peer()
    octets = [message(b"m%d" % number) for number in range(20)]
    for number, each in enumerate(octets):
        peer.feed(transfer(1, number, each, settled=True))
    host.router.settle()
    assert host.network.calls[1:] == [(peer.client.number, each) for each in octets]
    assert of(frames(peer), "flow")[-1].link_credit == 250


@pytest.mark.parametrize("size", [200_000, MOST - 100])
def test_large_control_message_arrives_whole(host, size):
    peer = host.peer()
    octets = message(bytes(size))
    peer.feed(transfer(1, 0, octets, settled=True, part=16_000))
    host.router.settle()
    assert host.network.calls[1:] == [(peer.client.number, octets)]


def test_control_messages_are_sent_unchanged(host):
    peer = host.peer()
    frames(peer)
    octets = message(b"hello", annotations=[(key("x-opt-qd.ingress"), "0/A"), (key("x-opt-qd.trace"), ["0/A"])])
    for _ in range(2):
        assert host.router.core.neighbours.send_control(peer.client.number, octets)
    host.router.settle()
    received = of(frames(peer), "transfer")
    assert [each.payload for each in received] == [octets, octets]
    assert [(each.settled, each.delivery_id, each.message_format) for each in received] == [(True, 0, 0), (True, 1, 0)]
    assert len(received[0].delivery_tag) == 8


def test_control_messages_without_credit_are_bounded(host):
    peer = host.peer(credit=0)
    frames(peer)
    for number in range(4 * QUEUED):
        host.router.core.neighbours.send_control(peer.client.number, message(b"%05d" % number))
        host.router.settle()
    peer.feed(flow(0, MANY))
    host.router.settle()
    received = messages(frames(peer))
    assert received[0] == message(b"00000")  # as 1.19 does: the head stays
    assert received[-1] == message(b"%05d" % (4 * QUEUED - 1))
    assert len(received) <= QUEUED + 1


def test_control_octets_without_credit_are_bounded(host):
    peer = host.peer(credit=0)
    for _ in range(20):
        host.router.core.neighbours.send_control(peer.client.number, message(bytes(1 << 20)))
        host.router.settle()
    frames(peer)
    peer.feed(flow(0, MANY))
    host.router.settle()
    assert sum(len(each) for each in messages(frames(peer))) <= MOST


@pytest.mark.parametrize("size", [10, 40_000], ids=["one-frame", "several-frames"])
def test_control_message_overtakes_queued_data(host, size):
    """Data fills the write buffer of a slow peer. A control message is next in the buffer."""
    peer = host.peer(links=1, max_frame_size=16384)
    record = next(each for each in peer.client.links.by_number.values() if each.outgoing and each.capability == DATA)
    peer.feed(flow(2, MANY))
    host.router.settle()
    frames(peer)
    peer.blocked = True
    consumer = host.router.core.table.create("M0x", "closest", None, "block")
    known = host.router.core.workers[0]
    host.router.core.table.add_consumer(consumer, known.index, record.slot.index, record.slot.generation, 1000)
    sender = host.router.connect(0, "main")
    sender.feed(start() + producer(0, "x"))
    host.router.settle()
    for number in range(40):
        sender.feed(transfer(0, number, message(bytes(10_000)), settled=True))
    host.router.settle()
    host.router.core.neighbours.send_control(peer.client.number, message(b"urgent" + bytes(size)))
    host.router.settle()
    peer.blocked = False
    host.router.settle()
    first = peer.take()
    assert 0 < first.find(b"urgent") < 200_000
    sender.lose()
    host.router.core.table.remove_consumer(consumer, known.index, record.slot.index, record.slot.generation)
