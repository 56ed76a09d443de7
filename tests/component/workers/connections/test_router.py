"""Inter-router connections in the engine: priorities, links, bounds, and the state that the supervisor keeps."""

import pytest

from sluice.router.addressing.settings import PRIORITIES
from sluice.router.links.pause import RouterPause
from sluice.workers.connections.router import MAX_DATA_LINKS, announced
from sluice.workers.inprocess import CONTROL_OCTETS, RELAYED_MESSAGES
from sluice.workers.links.inter_router_link import CONTROL, DATA
from tests.component.engine.interior_router import INTERIOR, InteriorRouter, attach
from tests.peer.codec import encode
from tests.peer.talk import begin, frames, message, of, say, transfer
from tests.peer.types import Int, Long, Map, Symbol
from tests.unit.ops import wire


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


def test_data_links_are_bounded(routers, monkeypatch):
    monkeypatch.setattr("sluice.workers.connections.router.MAX_DATA_LINKS", 12)
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
