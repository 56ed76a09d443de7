"""Multicast over redundant paths (inter-router.md 11.3): exactly one copy for each consumer, and combined outcomes.

1.19 ignores valid origins: messages that it forwards in a triangle arrive twice. The routers under test avoid this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.interop.network.conftest import MiddleNetwork, TriangleNetwork
from tests.interop.network.net import InteropNetwork, full_mesh
from tests.peer import frames, message
from tests.peer.links import PeerReceiver
from tests.peer.router19.loop import Router19Loop
from tests.peer.types import Described

WORKER_COUNTS = (1, 3)
Fresh = Callable[..., str]
OUTCOMES: dict[str, Described] = {
    "accepted": frames.ACCEPTED,
    "rejected": frames.REJECTED,
    "released": frames.RELEASED,
    "modified": frames.modified(failed=True),
}


def bodies(receiver: PeerReceiver) -> list[object]:
    """Return the bodies received so far."""
    receiver.peer.read_available()
    return [message.body(one.payload) for one in receiver.deliveries]


# --- 1.19 in the triangle ---------------------------------------------------------------------------------------------


def test_consumers_receive_single_copy_from_1_19(triangle: TriangleNetwork, fresh: Fresh) -> None:
    address = fresh("multicast")
    receivers = [one.client().receiver(address, credit=100) for one in (triangle.s1, triangle.s2) for _ in range(2)]
    own = triangle.t.consumer(address)
    triangle.t.wait_key(own.key, "S1", "S2")
    triangle.s1.wait_remote(own.key, "S2", "T")
    triangle.s2.wait_remote(own.key, "S1", "T")
    for number in range(10):
        sent = triangle.t.send(address, message.message(number))
        for receiver in receivers:
            receiver.next().settle()
        assert sent.outcome() == "accepted"
    assert [bodies(receiver) for receiver in receivers] == [list(range(10))] * 4
    assert [one.body for one in own.arrivals] == list(range(10))


@pytest.mark.parametrize("origin", ["s1", "s2"])
def test_router_of_1_19_receives_single_copy(triangle: TriangleNetwork, fresh: Fresh, origin: str) -> None:
    address = fresh("multicast")
    own = triangle.t.consumer(address)
    for sluice in (triangle.s1, triangle.s2):
        sluice.client().receiver(address, credit=100)
    triangle.s1.wait_remote(own.key, "S2", "T")
    triangle.s2.wait_remote(own.key, "S1", "T")
    sender = getattr(triangle, origin).client().sender(address)
    for number in range(10):
        sender.send(message.message(str(number)), settled=True)
    sender.send(message.message("last"), settled=True)
    triangle.world.wait(lambda: own.arrivals and own.arrivals[-1].body == "last", "the last message")
    # A second copy would arrive over the other router's connection: send a message of its own after it.
    other = triangle.s2 if origin == "s1" else triangle.s1
    other.client().sender(address).send(message.message("behind"), settled=True)
    triangle.world.wait(lambda: "behind" in [one.body for one in own.arrivals], "the message after it")
    assert sorted(one.body for one in own.arrivals) == sorted([*map(str, range(10)), "last", "behind"])


# --- routers under test only ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def _full_mesh_network(
    router19_loop: Router19Loop, workers: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InteropNetwork]:
    """Fully connected network of four routers under test: W, X, Y, Z."""
    network = InteropNetwork(router19_loop, tmp_path_factory.mktemp("square"), workers)
    try:
        for name in "WXYZ":
            network.sluice(name, to=[(one.ports["ir"], 1) for one in network.sluices])
        network.wait_converged()
        for sluice in network.sluices:
            sluice.wait_rows("router.node", partial(full_mesh, 4), "a full mesh")
        yield network
    finally:
        network.stop()


@pytest.fixture
def full_mesh_network(_full_mesh_network: InteropNetwork) -> Iterator[InteropNetwork]:
    """Full mesh of W, X, Y and Z; drops the clients after the test."""
    yield _full_mesh_network
    for sluice in _full_mesh_network.sluices:
        sluice.drop_peers()


@pytest.mark.parametrize("settled", [False, True], ids=["unsettled", "presettled"])
def test_consumers_in_full_mesh_receive_single_copy(
    full_mesh_network: InteropNetwork, fresh: Fresh, settled: bool
) -> None:
    address = fresh("multicast")
    receivers = [one.client().receiver(address, credit=100) for one in full_mesh_network.sluices for _ in range(2)]
    names = {one.name for one in full_mesh_network.sluices}
    for sluice in full_mesh_network.sluices:
        sluice.wait_remote("M0" + address, *(names - {sluice.name}))
    for origin in full_mesh_network.sluices:
        sender = origin.client().sender(address)
        for number in range(5):
            delivery = sender.send(message.message(f"{origin.name}{number}"), settled=settled or None)
            for receiver in receivers:
                got = receiver.next()
                assert message.body(got.payload) == f"{origin.name}{number}"
                if not settled:
                    got.settle()
            if not settled:
                try:
                    assert sender.outcome(delivery).name == "accepted"
                except AssertionError:
                    raise AssertionError(f"{origin.name}{number}: {[bodies(one) for one in receivers]}") from None
    for receiver in receivers:
        assert len(bodies(receiver)) == 5 * len(full_mesh_network.sluices)


def test_large_messages_in_full_mesh_arrive_once(full_mesh_network: InteropNetwork, fresh: Fresh) -> None:
    address = fresh("multicast")
    receivers = [one.client().receiver(address, credit=10) for one in full_mesh_network.sluices]
    names = {one.name for one in full_mesh_network.sluices}
    for sluice in full_mesh_network.sluices:
        sluice.wait_remote("M0" + address, *(names - {sluice.name}))
    sender = full_mesh_network.sluices[0].client().sender(address)
    body = "x" * 600_000
    delivery = sender.send(message.message(body))
    for receiver in receivers:
        got = receiver.next()
        assert message.body(got.payload) == body
        got.settle()
    assert sender.outcome(delivery).name == "accepted"


# --- outcomes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "combined"),
    [
        ("accepted", "accepted", "accepted"),
        ("accepted", "rejected", "rejected"),
        ("accepted", "released", "accepted"),
        ("modified", "released", "modified"),
        ("released", "released", "released"),
        ("rejected", "modified", "rejected"),
    ],
)
def test_outcomes_of_remote_copies_are_combined(
    middle: MiddleNetwork, fresh: Fresh, first: str, second: str, combined: str
) -> None:
    address = fresh("multicast")
    consumers = [one.consumer(address, accept=False) for one in (middle.left, middle.right)]
    middle.s.wait_remote(consumers[0].key, "L", "R")
    sender = middle.s.client().sender(address)
    delivery = sender.send(message.message("x"))
    consumers[0].next().settle(OUTCOMES[first])
    last = consumers[1].next()
    sender.peer.barrier()
    assert delivery not in sender.session.outcomes  # no outcome before each copy has one (routing-semantics.md D-5)
    last.settle(OUTCOMES[second])
    assert sender.outcome(delivery).name == combined


def test_transit_reaches_other_neighbour_and_clients(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh("multicast")
    here = middle.left.consumer(address)
    there = middle.right.consumer(address)
    receiver = middle.s.client().receiver(address, credit=10)
    middle.left.wait_key(here.key, "S", "R")
    middle.s.wait_remote(here.key, "L", "R")
    sent = middle.left.send(address, message.message("x"))
    receiver.next().settle()
    assert there.next().body == "x"
    assert sent.outcome() == "accepted"
    assert len(here.arrivals) == 1
    assert len(there.arrivals) == 1


def test_message_with_unknown_origin_stays_local(middle: MiddleNetwork, fresh: Fresh) -> None:
    """A message with an unknown ingress, or with this router's, goes to local consumers only (inter-router.md 11.3)."""
    address = fresh("multicast")
    there = middle.right.consumer(address)
    receiver = middle.s.client().receiver(address, credit=10)
    middle.s.wait_remote(there.key, "R")
    link = middle.left.wait_neighbour("S").data_link(4)
    assert link is not None
    for ingress in ("0/nobody", "0/S"):
        given = {"x-opt-qd.to": address, "x-opt-qd.ingress": ingress, "x-opt-qd.trace": ["0/L"]}
        middle.left.send_on(link, message.annotations(given) + message.value(ingress), settled=True)
        assert message.body(receiver.next().payload) == ingress
    middle.left.send_on(link, message.message("known", to=address), settled=True)
    receiver.next()
    assert there.next().body == "known"
    assert len(there.arrivals) == 1
