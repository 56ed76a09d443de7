"""Replicated address table of workers: deltas, snapshots and inconsistent ops."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice.router.amqp.scheduler import Scheduler
from sluice.router.ring.link_table import LinkTable
from sluice.router.ring.port import WorkerPort
from sluice.router.ring.port_work import PortWork
from sluice.router.ring.region import Region
from sluice.router.table.table import Table, TableError
from sluice.router.testing.engine import consumers_by_address
from tests.component.engine.host import InProcessRouter
from tests.peer.talk import consumer, frames, message, messages, producer, say, start, transfer
from tests.unit.ops import from_wire

WORKERS = 3
SMALL = 1 << 12


@pytest.fixture
def table():
    region = Region.create(WORKERS, 16, 16, SMALL)
    scheduler = Scheduler()
    ports = [
        None,
        *(WorkerPort(region, 0, peer, -1, LinkTable(16), scheduler, PortWork()) for peer in range(1, WORKERS)),
    ]
    yield Table(region, 0, "QDR", ports, {}, lambda *_: False)
    region.close()


def address(number, key, **more):
    return ["addr", number, key, {"treatment": "balanced", **more}]


def test_delta_ops_are_applied_in_order(table):
    table.apply(1, from_wire(address(1, "M0a"), ["+c", 1, 1, 5, 9, 250], ["+c", 1, 2, 6, 9, 250], ["-c", 1, 1, 5, 9]))
    assert consumers_by_address(table) == {"M0a": [(2, 6, 9)]}
    assert table.epoch == 1
    table.apply(2, from_wire(["-c", 1, 2, 6, 9], ["-addr", 1]))
    assert consumers_by_address(table) == {}
    assert table.get(1) is None
    assert table.by_name("M0a") is None


def test_number_of_removed_address_may_be_reused(table):
    table.apply(1, from_wire(address(1, "M0a")))
    table.apply(2, from_wire(["-addr", 1]))
    table.apply(3, from_wire(address(1, "M0b")))
    assert table.get(1).key == "M0b"


def test_number_of_other_address_is_refused(table):
    table.apply(1, from_wire(address(1, "M0a")))
    with pytest.raises(TableError, match="M0a"):
        table.apply(2, from_wire(address(1, "M0b")))


@pytest.mark.parametrize("op", [["+c", 7, 1, 1, 1, 250], address(1, "M0a", fallback=7)])
def test_unknown_address_number_is_refused(table, op):
    with pytest.raises(TableError, match="7"):
        table.apply(1, from_wire(op))


def test_snapshot_replaces_whole_table(table):
    table.apply(1, from_wire(address(1, "M0a"), ["+c", 1, 1, 5, 9, 250], address(2, "M0b")))
    table.replace(7, from_wire(address(1, "M0b"), ["+c", 1, 2, 6, 9, 250]))
    assert consumers_by_address(table) == {"M0b": [(2, 6, 9)]}
    assert table.epoch == 7


consumers = st.tuples(st.integers(1, 2), st.integers(0, 3), st.integers(1, 2))
ops = st.lists(st.tuples(st.sampled_from(["+c", "-c"]), st.integers(1, 3), consumers), max_size=30)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(ops)
def test_consumers_of_table_equal_lists(table, steps):
    table.replace(0, from_wire(*(address(number, f"M0{number}") for number in range(1, 4))))
    model: dict[int, list[tuple[int, int, int]]] = {1: [], 2: [], 3: []}
    for epoch, (op, number, who) in enumerate(steps, 1):
        if (op == "+c") == (who in model[number]):
            continue
        table.apply(epoch, from_wire([op, number, *who, 250] if op == "+c" else [op, number, *who]))
        (model[number].append if op == "+c" else model[number].remove)(who)
    for number, expected in model.items():  # the list rotates: it may begin anywhere
        found = consumers_by_address(table)[f"M0{number}"]
        turns = [expected[at:] + expected[:at] for at in range(len(expected) or 1)]
        assert found in turns


def test_producers_keep_their_address_through_snapshot():
    router = InProcessRouter()
    try:
        consuming, sending = router.connect(), router.connect()
        sending.feed(start() + producer(0, "balanced.a"))
        consuming.feed(start() + consumer(0, "balanced.a"))
        router.settle()
        router.core.subscribed(router.core.workers[0])
        router.settle()
        sending.feed(transfer(0, 0, message(b"x"), settled=True))
        router.settle()
        assert messages(frames(consuming)) == [message(b"x")]
        assert router.workers[0].table.by_name("M0balanced.a") is not None
    finally:
        router.close()


def test_dropped_local_link_leaves_all_its_addresses():
    router = InProcessRouter()
    try:
        table = router.workers[0].table
        peer = router.connect()
        peer.feed(start() + b"".join(consumer(handle, f"balanced.{handle}") for handle in range(3)))
        router.settle()
        links = {record.link.name: record.slot for record in peer.client.links.by_number.values()}
        slot = links["c1"]
        bound = [["+c", table.by_name(f"M0balanced.{n}").id, 0, slot.index, slot.generation, 250] for n in (0, 2)]
        table.apply(table.epoch + 1, from_wire(*bound))
        assert [len(consumers_by_address(table)[f"M0balanced.{n}"]) for n in range(3)] == [2, 1, 2]
        table.drop_consumer(slot.index, slot.generation + 1)  # an earlier generation of the slot
        assert [len(consumers_by_address(table)[f"M0balanced.{n}"]) for n in range(3)] == [2, 1, 2]
        table.drop_consumer(slot.index, slot.generation)
        assert [len(consumers_by_address(table)[f"M0balanced.{n}"]) for n in range(3)] == [1, 0, 1]
        table.drop_consumer(slot.index, slot.generation)
        assert [len(consumers_by_address(table)[f"M0balanced.{n}"]) for n in range(3)] == [1, 0, 1]
    finally:
        router.close()


def test_removed_address_removes_its_consumers(table):
    """The supervisor removes each consumer first. If it did not, nothing would be left behind."""
    table.apply(1, from_wire(address(1, "M0a"), address(2, "M0b"), ["+c", 1, 1, 5, 9, 250], ["+c", 2, 1, 5, 9, 250]))
    table.apply(2, from_wire(["-addr", 1]))
    assert consumers_by_address(table) == {"M0b": [(1, 5, 9)]}
    table.apply(3, from_wire(["-c", 1, 1, 5, 9]))
    assert consumers_by_address(table) == {"M0b": [(1, 5, 9)]}
    table.apply(4, from_wire(["-c", 2, 1, 5, 9]))
    assert consumers_by_address(table) == {"M0b": []}


def test_producers_without_consumer_wait_for_credit():
    """Producers of an address without consumers: attached before any consumer, with released deliveries, and already
    lost."""
    router = InProcessRouter()
    try:
        sending, leaving, consuming = (router.connect() for _ in range(3))
        sending.feed(start() + producer(0, "balanced.a"))
        leaving.feed(start() + producer(0, "balanced.a"))
        router.settle()
        assert not [frame for frame in frames(sending) if frame.name == "flow"]
        leaving.lose()
        consuming.feed(start() + consumer(0, "balanced.a"))
        router.settle()
        assert granted(sending) == [250]
        for number in range(2):
            consuming.feed(say("detach", handle=0, closed=True))
            router.settle()
            assert granted(sending) == []
            sending.feed(transfer(0, number, message(b"x")))
            router.settle()
            assert [frame.drain for frame in frames(sending) if frame.name == "flow"] == [True]
            consuming.feed(consumer(0, "balanced.a"))
            router.settle()
            assert granted(sending) == [250]
    finally:
        router.close()


def granted(peer):
    return [frame.link_credit for frame in frames(peer) if frame.name == "flow"]
