"""Forwarding at an edge router whose neighbours have consumers of the same address (docs/internals/edge.md)."""

import pytest

from sluice.supervisor.addresses.consumer_edge import ConsumerEdge
from tests.component.engine.host import InProcessRouter
from tests.peer.frames import ACCEPTED
from tests.peer.talk import consumer, frames, message, of, producer, settle, start, transfer

#: Index of all edge connections.
EDGE = 77
UPLINK = ConsumerEdge(EDGE, 3)


def peer(cost, mark="m"):
    return ConsumerEdge(EDGE, cost, mark)


@pytest.fixture(params=[(1, (0, 0)), (2, (0, 1))], ids=["one-worker", "two-workers"])
def edge_consumers(request, routers):
    """Return a function that makes the router, one consumer for each way, and a producer."""
    workers, (here, there) = request.param

    def make(address, ways):
        router = routers(workers)
        peers = []
        for way in ways:
            connected = router.connect(there, listener="kept")
            connected.feed(start() + consumer(0, address))
            router.settle()
            frames(connected)
            peers.append(connected)
            record = router.core.table.records[f"M0{address}"]
            (link,) = connected.known.links.values()
            place = (link.worker, link.slot, link.generation)
            router.core.table.remove_consumer(record, *place)
            router.core.table.add_consumer(record, *place, 4, way)
            router.settle()
        sending = router.connect(here)
        sending.feed(start() + producer(0, address))
        router.settle()
        frames(sending)
        return router, peers, sending

    return make


def receivers(peers):
    return [n for n, each in enumerate(peers) if of(frames(each), "transfer")]


def send(router, sending, number):
    sending.feed(transfer(0, number, message(b"x")))
    router.settle()


@pytest.mark.parametrize(
    ("ways", "chosen"),
    [
        ([ConsumerEdge(), peer(1), UPLINK], {0}),
        ([UPLINK, peer(1), peer(1, "n")], {1, 2}),
        ([UPLINK, peer(4), peer(2, "n")], {2}),
        ([UPLINK, peer(4)], {0}),
        ([UPLINK, peer(3)], {0}),
        ([UPLINK, ConsumerEdge()], {0, 1}),
    ],
    ids=["here", "equal ones", "the cheapest", "the uplink", "as far as the uplink", "as 1.19 without others"],
)
def test_closest_chooses_cheapest_consumers(edge_consumers, ways, chosen):
    router, peers, sending = edge_consumers("closest.a", ways)
    came = []
    for number in range(12):
        send(router, sending, number)
        came += receivers(peers)
    assert len(came) == 12
    assert set(came) == chosen
    assert {came.count(each) for each in chosen} == {12 // len(chosen)}


def test_balanced_uses_uplink_when_nearer_consumers_are_full(edge_consumers):
    router, peers, sending = edge_consumers("balanced.a", [UPLINK, peer(1), ConsumerEdge()])
    came = []
    for number in range(14):
        send(router, sending, number)
        came += receivers(peers)
    assert came[:3] == [2, 2, 1], "one here, then as good as one at a cost of 1"
    assert sorted(came[:8]) == [1] * 4 + [2] * 4
    assert came[8:12] == [0] * 4
    peers[1].feed(settle(0, state=ACCEPTED))
    router.settle()
    frames(peers[1])
    send(router, sending, 14)
    assert receivers(peers) == [1]


def test_balanced_uses_costlier_peers_after_uplink(edge_consumers):
    router, peers, sending = edge_consumers("balanced.a", [peer(3), UPLINK])
    came = []
    for number in range(8):
        send(router, sending, number)
        came += receivers(peers)
    assert came == [1] * 4 + [0] * 4


def test_balanced_rotates_among_idle_peers(edge_consumers):
    router, peers, sending = edge_consumers("balanced.a", [peer(1), peer(1, "n"), peer(1, "o")])
    came = []
    for number in range(6):
        send(router, sending, number)
        (chosen,) = receivers(peers)
        peers[chosen].feed(settle(number // 3, state=ACCEPTED))
        router.settle()
        frames(peers[chosen])
        came.append(chosen)
    assert sorted(came) == [0, 0, 1, 1, 2, 2]


def test_new_worker_receives_costs_of_consumers(routers):
    router = routers()
    assert isinstance(router, InProcessRouter)
    record = router.core.table.create("M0a", "balanced", None, "throttle")
    router.core.table.add_consumer(record, 0, 1, 1, 10, peer(5))
    router.core.table.add_consumer(record, 0, 2, 1, 10)
    ways = [(op.edge, op.cost, op.peer) for op in record.consumer_ops()]
    assert ways == [(EDGE, 5, "m"), (0, 0, "")]
    assert (record.consumers_at_peers, record.has_other_local_consumers(EDGE), record.has_other_local_consumers(1)) == (
        1,
        True,
        True,
    )
    router.core.table.remove_consumer(record, 0, 2, 1)
    assert (record.consumers_at_peers, record.has_other_local_consumers(EDGE)) == (1, False)
    router.core.table.remove_consumer(record, 0, 1, 1)
    assert record.edges is None
