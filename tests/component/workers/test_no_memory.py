"""Allocation failures, one allocation at a time: the connection concerned ends, other clients make progress, and
nothing is left behind.

Where a record of another worker cannot be processed, the worker ends with FatalFault, and the supervisor starts
another one.
"""

from collections.abc import Callable, Iterator

import pytest

import sluice.router.testing.engine as engine
from sluice.router.amqp.errors import FatalFault
from sluice.router.testing import faults
from tests.component.engine.host import InProcessPeer, InProcessRouter
from tests.component.engine.network import InProcessNetwork, client
from tests.component.workers.test_nets import UnaffectedClients
from tests.peer.frames import error
from tests.peer.talk import begin, consumer, flow, frames, message, of, producer, say, settle, start, transfer
from tests.peer.types import Described, ULong

MOST = 400  # bound for the allocations of a scenario; more would not terminate
LARGE = 100_000


@pytest.fixture(autouse=True)
def _allocations() -> Iterator[None]:
    faults.install()
    yield
    faults.fail_allocations(0)


def open_client(router: InProcessRouter, worker: int, octets: bytes) -> InProcessPeer:
    peer = router.connect(worker)
    peer.feed(start() + octets)
    router.settle_with_faults()
    return peer


def one_message(router: InProcessRouter) -> None:
    last = len(router.workers) - 1
    consuming = open_client(router, 0, consumer(0, "balanced.a"))
    sending = open_client(router, last, producer(0, "balanced.a"))
    sending.feed(transfer(0, 0, message(b"x")) + transfer(0, 1, message(bytes(LARGE))))
    router.settle_with_faults()
    consuming.feed(settle(0, 1))
    router.settle_with_faults()


def multicast_with_states(router: InProcessRouter) -> None:
    last = len(router.workers) - 1
    consuming = [open_client(router, worker % (last + 1), consumer(0, "multicast.a")) for worker in range(3)]
    sending = open_client(router, last, producer(0, "multicast.a"))
    sending.feed(transfer(0, 0, message(bytes(20_000))))
    router.settle_with_faults()
    for number, peer in enumerate(consuming):
        peer.feed(say("disposition", role=True, first=0, settled=True, state=rejected(number)))
        router.settle_with_faults()


def queues_and_drops(router: InProcessRouter) -> None:
    last = len(router.workers) - 1
    consuming = open_client(router, 0, consumer(0, "oldest.a", 0) + consumer(1, "balanced.b", 0))
    sending = open_client(router, last, producer(0, "oldest.a") + producer(1, "balanced.b"))
    octets = b"".join(transfer(0, number, message(bytes(3000)), settled=True) for number in range(8))
    sending.feed(octets + transfer(1, 8, message(bytes(LARGE))))
    router.settle_with_faults()
    consuming.feed(flow(0, 100) + flow(1, 100))
    router.settle_with_faults()
    sending.lose()
    router.settle_with_faults()


def sessions_and_links(router: InProcessRouter) -> None:
    peer = open_client(router, 0, b"".join(producer(handle, f"balanced.{handle}") for handle in range(20)))
    peer.feed(begin(1) + say("end", channel=1) + say("detach", handle=3, closed=True))
    router.settle_with_faults()
    peer.feed(say("close"))
    router.settle_with_faults()


def routed(router: InProcessRouter) -> None:
    last = len(router.workers) - 1
    broker = router.connect(last, "broker")
    broker.feed(start())
    router.settle_with_faults()
    client = open_client(router, 0, producer(0, "routed.a"))
    for frame in of(frames(broker), "attach"):
        broker.feed(
            say("attach", channel=0, name=frame.fields["name"], handle=0, role=True, source=frame.source,
                target=frame.target) + flow(0, 10)
        )  # fmt: skip
    router.settle_with_faults()
    client.feed(transfer(0, 0, message(bytes(LARGE))))
    router.settle_with_faults()
    broker.feed(settle(0))
    router.settle_with_faults()


def rejected(number: int) -> object:
    return Described(ULong(0x25), [error("amqp:internal-error", "x" * (200 + number))])


def close_conditions(peers: list[InProcessPeer]) -> list[str]:
    """Return the conditions with which the router has closed connections."""
    found = [frame.error for peer in peers for frame in of(frames(peer), "close")]
    return [str(error.value[0]) for error in found if error is not None]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("scenario", [one_message, multicast_with_states, queues_and_drops, sessions_and_links, routed])
def test_failed_allocation_ends_one_connection(scenario: Callable[[InProcessRouter], None], workers: int) -> None:
    number = ends = 0
    failed = True
    while failed:
        number += 1
        assert number < MOST
        before = engine.live_objects()
        router = InProcessRouter(workers)
        bystanders = UnaffectedClients(router, 0, workers - 1)
        first = len(router.peers)
        engine.drop_pools()
        faults.fail_allocations(number)
        try:
            scenario(router)
        except FatalFault as fault:
            if not isinstance(fault.__cause__, MemoryError):
                raise
            faults.fail_allocations(0)
            ends += 1
            router.abandon()
            continue
        failed = faults.allocations()[1] > 0
        faults.fail_allocations(0)
        for worker in router.workers:
            assert all(isinstance(fault, MemoryError) for fault in worker.faults), worker.faults
            worker.faults.clear()
        assert set(close_conditions(router.peers[first:])) <= {"amqp:internal-error"}
        bystanders.check()
        router.check_quiet()
        for peer in list(router.peers):
            peer.lose()
        router.settle()
        router.check_empty()
        router.close()
        assert engine.live_objects() == before, number
    assert number > 5, "the scenario allocates something"
    assert ends == 0 or (workers > 1 and ends < number / 4)


class FaultKeepingNetwork(InProcessNetwork):
    """Network of two routers that keep their faults."""

    def settle(self) -> None:
        moved = True
        while moved:
            for router in self.routers.values():
                router.settle_with_faults()
            moved = sum(joint.move() for joint in self.joints) > 0


def test_failed_allocation_between_routers_ends_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures hit messages that are forwarded at once, and messages that wait for credit between the routers."""
    number = 0
    failed = True
    while failed:
        number += 1
        assert number < MOST
        network = FaultKeepingNetwork("AB", monkeypatch=monkeypatch, between="linkCapacity: 4")
        network.join("A", "B")
        network.converge()
        receiving = client(network, "B", consumer(0, "balanced.a", 3))
        network.known("M0balanced.a", "B")
        sending = client(network, "A", producer(0, "balanced.a"))
        engine.drop_pools()
        faults.fail_allocations(number)
        for first in (0, 10):
            octets = b"".join(transfer(0, first + at, message(bytes(3000 if at % 5 == 4 else 10))) for at in range(10))
            sending.feed(octets)
            network.settle()
            receiving.feed(flow(0, 20) + settle(first, first + 9))
            network.settle()
        failed = faults.allocations()[1] > 0
        faults.fail_allocations(0)
        assert failed or len(of(frames(receiving), "transfer")) == 20
        for router in network.routers.values():
            for worker in router.workers:
                assert all(isinstance(fault, MemoryError) for fault in worker.faults), worker.faults
                worker.faults.clear()
            router.check_quiet()
        network.close()
    assert number > 5, "the scenario allocates something"
