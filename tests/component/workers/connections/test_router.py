"""Inter-router connections in the engine: priorities, control messages in both directions, bounds, and the state that
the supervisor keeps."""

import pytest

from router.addressing.settings import PRIORITIES
from router.links.pause import RouterPause
from router.log import LogSettings, ModuleSettings
from tests.peer.codec import encode
from tests.peer.frames import source, target
from tests.peer.talk import (
    MANY,
    begin,
    flow,
    frames,
    key,
    message,
    messages,
    of,
    producer,
    say,
    start,
    transfer,
)
from tests.peer.types import Int, Long, Map, Symbol
from tests.unit.ops import wire
from workers.connections.router import MAX_DATA_LINKS, announced
from workers.inprocess import CONTROL_OCTETS, RELAYED_MESSAGES
from workers.links.inter_router_link import CONTROL, DATA

INTERIOR = """
router {
    mode: interior
    id: QDR
}
listener {
    name: main
    host: 127.0.0.1
    port: 0
    idleTimeoutSeconds: 0
}
listener {
    name: net
    host: 127.0.0.1
    port: 1
    role: inter-router
    cost: 3
    idleTimeoutSeconds: 0
}
"""
MOST = 32 << 20  # octets of a control message
LOUD = LogSettings({"DEFAULT": ModuleSettings(output="/dev/null")})
QUEUED = 250  # control messages that wait for a peer without credit


class RecordingNetwork:
    """Network protocol that records the calls of its neighbours."""

    def __init__(self):
        self.calls = []

    def link_up(self, conn, cost, ours, only=None):
        self.calls.append(("up", conn, cost, ours))

    def link_down(self, conn):
        self.calls.append(("down", conn))

    def received(self, conn, octets):
        self.calls.append((conn, octets))


class InteriorRouter:
    """Interior router with a recording network protocol."""

    def __init__(self, router):
        self.router = router
        self.network = RecordingNetwork()
        router.core.neighbours.join(self.network)

    def peer(self, links=PRIORITIES, worker=0, credit=MANY, **fields):
        """Connect a router that attaches a control pair and `links` data pairs in one session."""
        peer = self.router.connect(worker, "net")
        peer.feed(start(**fields) + attach(0, True, CONTROL) + attach(1, False, CONTROL))
        for number in range(links):
            peer.feed(attach(2 * number + 2, True, DATA) + attach(2 * number + 3, False, DATA))
        if credit:
            peer.feed(flow(0, credit))
        self.router.settle()
        return peer

    def hop(self, peer):
        """Return the op for the next hop in a snapshot."""
        return next(
            (op for op in wire(self.router.core.events.snapshot_ops()) if op[:2] == ["hop", peer.client.number]), None
        )


def attach(handle, receiver, capability, **more):
    given = {
        "name": f"link{handle}",
        "handle": handle,
        "role": receiver,
        "source": source(capabilities=Symbol(capability)),
        "target": target(capabilities=Symbol(capability)),
        **({} if receiver else {"initial_delivery_count": 0}),
        **more,
    }
    return say("attach", **given)


@pytest.fixture(params=[1, 2], ids=["1-worker", "2-workers"])
def host(routers, request):
    return InteriorRouter(routers(request.param, INTERIOR))


def test_network_is_notified_of_neighbour_with_cost(host):
    peer = host.peer()
    assert host.network.calls == [("up", peer.client.number, 3, False)]
    peer.lose()
    host.router.settle()
    assert host.network.calls[1:] == [("down", peer.client.number)]


# inter-router.md 2.3.
@pytest.mark.parametrize(
    ("properties", "cost", "ours"),
    [
        ({"qd.inter-router-cost": ("int", 5)}, 5, False),
        ({"qd.inter-router-cost": ("int", 2), "sluice.bundle": ("int", 1)}, 3, True),
        ({"qd.inter-router-cost": ("long", 5)}, 3, False),
    ],
)
def test_higher_cost_counts(host, properties, cost, ours):
    types = {"int": Int, "long": Long}
    announced_properties = Map([(Symbol(name), types[kind](value)) for name, (kind, value) in properties.items()])
    peer = host.peer(properties=announced_properties)
    assert host.network.calls == [("up", peer.client.number, cost, ours)]


def test_announced_properties_end_at_key_that_is_no_symbol():
    pairs = [(Symbol("a"), [1, {"x": 2}]), (Symbol("sluice.bundle"), Int(1)), ("text", 1)]
    pairs.append((Symbol("qd.inter-router-cost"), Int(7)))
    assert announced(encode(Map(pairs))) == {"sluice.bundle": 1}
    assert announced(b"\x40") == {}
    assert announced(b"") == {}


def test_next_hop_lists_outgoing_links_by_priority(host):
    peer = host.peer()
    records = peer.client.links.by_number.values()
    slots = [record.slot for record in records if record.outgoing and record.capability == DATA]
    assert host.hop(peer) == ["hop", peer.client.number, 0, [(slot.index, slot.generation) for slot in slots], None]
    peer.feed(say("detach", handle=4, closed=True))  # priority 1
    host.router.settle()
    assert host.hop(peer)[3][1] is None
    assert sum(entry is None for entry in host.hop(peer)[3]) == 1
    assert len(of(frames(peer), "detach")) == 1


def test_next_hop_names_router_while_known(host):
    peer, other = host.peer(links=1), host.peer(links=1)
    neighbours = host.router.core.neighbours
    neighbours.known("test", 7)
    neighbours.known("elsewhere", 8)
    host.router.settle()
    assert [host.hop(each)[4] for each in (peer, other)] == [7, 7]
    third = host.peer(links=1)
    assert host.hop(third)[4] == 7
    neighbours.known("test", None)
    host.router.settle()
    assert host.hop(peer)[4] is None


def test_next_hop_is_announced_once_for_simultaneous_links(host):
    ops = []
    for worker in host.router.workers:
        before = worker.control.on_delta

        def record(epoch, more, before=before):
            ops.extend(wire(more))
            before(epoch, more)

        worker.control.on_delta = record
    peer = host.peer()
    assert len([op for op in ops if op[0] == "hop"]) <= 2 * len(host.router.workers)
    ops.clear()
    peer.lose()
    host.router.settle()
    assert [op for op in ops if op[0] == "-hop"] == [["-hop", peer.client.number]] * len(host.router.workers)


def test_missing_links_leave_priorities_empty(host):
    peer = host.peer(links=2)
    links = host.hop(peer)[3]
    assert [entry is None for entry in links] == [False] * 2 + [True] * 8


def test_router_without_data_links_is_no_next_hop(host):
    peer = host.peer(links=0)
    assert host.hop(peer) is None
    assert host.network.calls[0][0] == "up"


def test_links_beyond_tenth_are_for_streams(host):
    peer = host.peer(links=12)
    assert len(host.hop(peer)[3]) == PRIORITIES
    links = [
        link for link in host.router.core.links.by_identity.values() if link.connection.number == peer.client.number
    ]
    assert [link.priority for link in links if link.consumer] == [9, *range(10), 4, 4]


def test_control_messages_arrive_whole_and_in_order(host):
    peer = host.peer()
    octets = [message(b"m%d" % number) for number in range(20)]
    for number, each in enumerate(octets):
        peer.feed(transfer(1, number, each, settled=True))
    host.router.settle()
    assert host.network.calls[1:] == [(peer.client.number, each) for each in octets]
    assert of(frames(peer), "flow")[-1].link_credit == 250


def test_unsettled_control_message_is_accepted(host):
    peer = host.peer()
    peer.feed(transfer(1, 0, message(b"m")))
    host.router.settle()
    (disposition,) = of(frames(peer), "disposition")
    assert (disposition.settled, disposition.state.descriptor) == (True, 0x24)
    assert len(host.network.calls) == 2


@pytest.mark.parametrize("size", [200_000, MOST - 100])
def test_large_control_message_arrives_whole(host, size):
    peer = host.peer()
    octets = message(bytes(size))
    peer.feed(transfer(1, 0, octets, settled=True, part=16_000))
    host.router.settle()
    assert host.network.calls[1:] == [(peer.client.number, octets)]


def test_oversized_control_message_is_dropped_and_logged(routers):
    host = InteriorRouter(routers(1, INTERIOR, log=LOUD))
    peer = host.peer()
    peer.feed(transfer(1, 0, message(bytes(MOST)), settled=True, part=16_000))
    peer.feed(transfer(1, 1, message(b"next"), settled=True))
    host.router.settle()
    assert host.network.calls[1:] == [(peer.client.number, message(b"next"))]
    lines = [entry.text for entry in host.router.log.recent() if "too large" in entry.text]
    assert lines == [f"[C{peer.client.number}] A control message of the peer was dropped: it is too large"]


def test_waiting_control_messages_are_bounded_and_kept(host):
    peer = host.peer()
    host.router.work = False
    octets = [message(bytes([number]) * (2 << 20)) for number in range(12)]
    for number, each in enumerate(octets):
        peer.feed(transfer(1, number, each, settled=True, part=16_000))
        host.router.settle()
    assert host.router.pause_reasons(peer) == RouterPause.PAUSE_CONTROL
    assert host.router.workers[0].in_process.held()[0] <= CONTROL_OCTETS + (3 << 20)
    host.router.work = True
    host.router.settle()
    assert host.network.calls[1:] == [(peer.client.number, each) for each in octets]
    assert not host.router.pause_reasons(peer)


def test_relayed_local_messages_delay_no_control_messages(host):
    """The agent is not ready. Messages for it wait on their own and stall no connection to another router."""
    taken: list[object] = []
    host.router.core.in_process.serve("M0inner", taken.append, lambda connection: False)
    host.router.settle()
    peer = host.peer()
    for number in range(RELAYED_MESSAGES + 5):
        peer.feed(transfer(3, number, message(b"q", to="inner")))
    peer.feed(transfer(1, number + 1, message(b"hello"), settled=True))
    host.router.settle()
    assert host.network.calls[1:] == [(peer.client.number, message(b"hello"))]
    assert not host.router.pause_reasons(peer)
    released = [each for each in of(frames(peer), "disposition") if each.state.descriptor == 0x26]
    assert sum((each.last or each.first) - each.first + 1 for each in released) == 5
    host.router.core.in_process.serve("M0inner", taken.append)
    host.router.core.in_process.go_on()
    host.router.settle()
    assert len(taken) == RELAYED_MESSAGES


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


def test_control_messages_need_a_control_link(host):
    peer = host.peer(links=1)
    peer.feed(say("detach", handle=0, closed=True))
    host.router.settle()
    assert host.network.calls[1:] == [("down", peer.client.number)]
    assert not host.router.core.neighbours.send_control(peer.client.number, message(b"m"))
    assert not host.router.core.neighbours.send_control(4711, message(b"m"))
    peer.feed(attach(0, True, CONTROL, name="again"))
    host.router.settle()
    assert host.network.calls[2:] == [("up", peer.client.number, 3, False)]


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


def test_data_links_are_bounded(routers, monkeypatch):
    monkeypatch.setattr("workers.connections.router.MAX_DATA_LINKS", 12)
    assert MAX_DATA_LINKS == 1034
    host = InteriorRouter(routers(1, INTERIOR))
    peer = host.peer(links=12)
    frames(peer)
    peer.feed(attach(100, True, DATA) + attach(101, False, DATA))
    host.router.settle()
    detached = of(frames(peer), "detach")
    assert [str(each.error.value[0]) for each in detached] == ["amqp:resource-limit-exceeded"] * 2
    peer.feed(say("detach", handle=100, closed=True) + say("detach", handle=101, closed=True))
    peer.feed(say("detach", handle=2, closed=True) + attach(102, True, DATA))
    host.router.settle()
    assert not [each for each in of(frames(peer), "detach") if each.error is not None]


def test_ended_session_of_router_removes_its_links(host):
    peer = host.peer()
    peer.feed(begin(1) + say("end"))
    host.router.settle()
    assert host.network.calls[1:] == [("down", peer.client.number)]
    assert host.hop(peer) is None
    assert not peer.client.links.by_number
