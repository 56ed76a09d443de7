"""An edge router with several connections to one interior router: a bundle (docs/internals/edge.md)."""

from __future__ import annotations

import pytest

from tests.peer import message
from tests.peer.peer import AmqpPeer
from tests.system.edge.relay import CuttableRelay
from tests.system.edges import EDGES, EdgeView, with_edges
from tests.system.fixtures import Start
from tests.system.networks import CONVERGENCE, MessageFlow, connector
from tests.system.router import SETTINGS, RouterProcess, listener, poll

WORKER_COUNTS = (1, 3)
PARALLEL = 3
#: Number of addresses, larger than the number of connections.
COUNT = 9


@pytest.fixture
def interior(start: Start, workers: int) -> RouterProcess:
    return start([*with_edges("A"), *SETTINGS], workers)


def start_edge(start: Start, workers: int, *ports: int, parallel: int = PARALLEL) -> RouterProcess:
    """Start an edge router with a bundle to each of these ports."""
    places = [connector(port, role="edge", parallelConnections=parallel) for port in ports]
    router = start([("router", {"mode": "edge", "id": "E"}), listener(), *places, *SETTINGS], workers)
    poll(lambda: len(members(router)) == parallel * len(ports), "the bundle is complete", CONVERGENCE)
    return router


def members(router: RouterProcess) -> list[str]:
    """Return the identities of the connections of a bundle."""
    return [str(row["identity"]) for row in EdgeView(router).query("connection") if row["role"] == "edge"]


def count_address_links(router: RouterProcess) -> dict[str, int]:
    """Return the number of address links of each edge connection."""
    counts: dict[str, int] = {}
    for row in EdgeView(router).query("router.link"):
        if (row["owningAddr"] or "").startswith("M0multicast/b"):
            counts[row["connectionId"]] = counts.get(row["connectionId"], 0) + 1
    return counts


def test_addresses_spread_over_bundle_and_arrive_once(
    start: Start, workers: int, interior: RouterProcess, peers: list[AmqpPeer]
) -> None:
    e = start_edge(start, workers, interior.ports[EDGES])
    here, there = AmqpPeer.opened(e.port), AmqpPeer.opened(interior.port)
    peers += [here, there]
    names = [f"multicast/b{number}" for number in range(COUNT)]
    below = [here.receiver(name, 10) for name in names]
    above = [there.receiver(name, 10) for name in names]
    view, far = EdgeView(e), EdgeView(interior)
    senders = [here.sender(name, credit=False) for name in names]
    for name in names:
        view.wait_consumers(f"M0{name}", 2)
        far.wait_consumers(f"M0{name}", 2)
    bundle = members(e)
    shares = {name: count for name, count in count_address_links(e).items() if name in bundle}
    assert shares.keys() == set(bundle), "each connection has some"
    assert sum(shares.values()) == 2 * COUNT
    anonymous = [peer.sender() for peer in (here, there)]
    numbers = [(sender, sender.send(message.message(name))) for sender, name in zip(senders, names, strict=True)]
    numbers += [(sender, sender.send(message.message(name, to=name))) for sender in anonymous for name in names]
    for receiver, name in zip(below + above, names + names, strict=True):
        deliveries = receiver.receive(3)
        assert {message.body(each.payload) for each in deliveries} == {name}
        for delivery in deliveries:
            delivery.settle()
    assert {sender.outcome(number).name for sender, number in numbers} == {"accepted"}
    for receiver in below + above:
        receiver.session.peer.barrier()
        assert len(receiver.deliveries) == 3, "each message once"


def test_message_from_edge_does_not_return_over_bundle(
    start: Start, workers: int, interior: RouterProcess, peers: list[AmqpPeer]
) -> None:
    """No message returns over another connection of the bundle."""
    e = start_edge(start, workers, interior.ports[EDGES])
    here = AmqpPeer.opened(e.port)
    peers.append(here)
    receivers = [here.receiver(f"multicast/b{number}", 10) for number in range(COUNT)]
    for number in range(COUNT):
        EdgeView(interior).wait_consumers(f"M0multicast/b{number}", 1)
    sender = here.sender()
    for number, receiver in enumerate(receivers):
        sent = sender.send(message.message(number, to=f"multicast/b{number}"))
        receiver.next().settle()
        assert sender.outcome(sent).name == "accepted", "of all copies"
    here.barrier()
    assert [len(receiver.deliveries) for receiver in receivers] == [1] * COUNT


def test_cut_bundle_is_restored(start: Start, workers: int, interior: RouterProcess) -> None:
    with CuttableRelay(interior.ports[EDGES]) as relay:
        e = start_edge(start, workers, relay.port)
        flows = [MessageFlow(e, interior, "balanced/up"), MessageFlow(interior, e, "balanced/down")]
        for flow in flows:
            flow.wait_more()
        relay.cut_one()
        for flow in flows:
            flow.wait_more()
        relay.cut()
        for flow in flows:
            flow.wait_more()
        for flow in flows:
            flow.stop()
        poll(lambda: len(members(e)) == PARALLEL, "the bundle is complete again", CONVERGENCE)
        EdgeView(interior).wait_consumers("HE", 1)
