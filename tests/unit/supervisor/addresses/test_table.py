"""Address records: creation, users, removal, ids, deltas."""

import pytest

from sluice.router.addressing.settings import AddressSetting
from sluice.router.control.ops import AddressAttributes, AddressOp, ConsumerOp
from sluice.supervisor.addresses.table import TableFullError
from tests.unit.ops import wire
from tests.unit.supervisor.journaled_table import JournaledTable

PLAIN = AddressSetting("multicast", priority=3, overflow="block")
FALLBACK = AddressSetting("closest", fallback=True)


def test_record_is_announced_with_first_consumer():
    journaled = JournaledTable(100)
    table = journaled.table
    record = table.open_mobile("a", 0, PLAIN)
    assert table.add_consumer(record, 3, 70000, (5 << 20) + 9, 250) == record.epoch == 1
    announced = AddressOp(record.id, "M0a", AddressAttributes("multicast", priority=3, overflow="block"))
    consumer = ConsumerOp(record.id, 3, 70000, (5 << 20) + 9, 250)
    assert journaled.take_delta() == (1, [announced, consumer])
    assert journaled.take_delta() is None
    assert list(table.consumer_ops()) == [consumer]


def test_record_is_removed_with_last_user():
    journaled = JournaledTable(100)
    table = journaled.table
    record = table.open_mobile("a", 0, PLAIN)
    table.add_consumer(record, 0, 1, 1, 250)
    table.add_producer(record)
    table.hold(record)
    journaled.take_ops()
    table.remove_consumer(record, 0, 1, 1)
    table.remove_producer(record)
    assert journaled.take_ops() == [["-c", record.id, 0, 1, 1]]
    table.release(record)
    assert journaled.take_ops() == [["-addr", record.id]]
    assert not table.records


def test_unused_record_is_removed_at_once():
    journaled = JournaledTable(100)
    table = journaled.table
    record = table.open_mobile("a", 0, PLAIN)
    assert [op[0] for op in journaled.take_ops()] == ["addr", "-addr"]
    assert record.key not in table.records


def test_user_before_delta_keeps_record():
    journaled = JournaledTable(100)
    table = journaled.table
    record = table.open_mobile("a", 0, PLAIN)
    table.add_producer(record)
    journaled.take_ops()
    table.remove_producer(record)
    assert table.open_mobile("a", 0, PLAIN) is record
    table.add_producer(record)
    assert journaled.take_ops() == []


def test_ids_are_reused_after_acknowledged_removal():
    journaled = JournaledTable(4)
    journaled.journal.join(0, 0)
    table = journaled.table
    first = [table.open_mobile(name, 0, PLAIN) for name in "abc"]
    assert [record.id for record in first] == [1, 2, 3]
    with pytest.raises(TableFullError):
        table.open_mobile("d", 0, PLAIN)
    for record in first[:2]:
        table.add_producer(record)
    journaled.take_ops()  # c has no user
    assert journaled.reset == []
    with pytest.raises(TableFullError):
        table.open_mobile("d", 0, PLAIN)
    journaled.journal.acknowledge(0, journaled.journal.epoch)
    assert journaled.take_ops() == []
    assert journaled.reset == [3]
    assert table.open_mobile("d", 0, PLAIN).id == 3


@pytest.mark.parametrize("phase", [0, "F"])
def test_fallback_instances_come_and_go_in_pairs(phase):
    journaled = JournaledTable(100)
    table = journaled.table
    used = table.open_mobile("a", phase, FALLBACK)
    table.add_producer(used)
    primary, fallback = table.records["M0a"], table.records["MFa"]
    assert used is (primary if phase == 0 else fallback)
    assert (primary.fallback, primary.treatment, fallback.treatment) == (fallback, "closest", "balanced")
    announced = [(op[1], op[3].get("fallback")) for op in journaled.take_ops()]
    assert announced == [(fallback.id, None), (primary.id, fallback.id)]
    other = table.open_mobile("a", 0 if phase else "F", FALLBACK)
    assert {used, other} == {primary, fallback}
    table.add_consumer(other, 0, 1, 1, 250)
    table.remove_producer(used)
    assert [op[0] for op in journaled.take_ops()] == ["+c"]
    table.remove_consumer(other, 0, 1, 1)
    assert sorted(op[1] for op in journaled.take_ops() if op[0] == "-addr") == sorted((primary.id, fallback.id))
    assert not table.records


def test_fallback_consumer_without_setting_has_own_record():
    table = JournaledTable(100).table
    table.add_producer(table.open_mobile("a", "F", PLAIN))
    assert list(table.records) == ["MFa"]
    primary = table.open_mobile("a", 0, PLAIN)
    assert primary.fallback is None


def test_phases_have_separate_records():
    table = JournaledTable(100).table
    assert table.open_mobile("a", 0, PLAIN) is not table.open_mobile("a", 1, PLAIN)
    assert sorted(table.records) == ["M0a", "M1a"]


def test_snapshot_names_fallback_before_primary():
    table = JournaledTable(100).table
    for name in "ab":
        table.hold(table.open_mobile(name, 0, FALLBACK))
    known: set[int] = set()
    for op in table.snapshot_ops():
        assert op.attributes.fallback in (None, *known)
        known.add(op.id)
    assert len(known) == 4


def test_consumers_keep_order_of_arrival():
    table = JournaledTable(100).table
    record = table.open_mobile("a", 0, PLAIN)
    for slot in (5, 3, 9, 1):
        table.add_consumer(record, slot % 2, slot, slot, 250)
    table.remove_consumer(record, 1, 3, 3)
    assert [op.slot for op in record.consumer_ops()] == [5, 9, 1]
    with pytest.raises(KeyError):
        table.remove_consumer(record, 1, 3, 3)


# -- Destinations at other routers


def test_remote_destination_keeps_record():
    journaled = JournaledTable(100)
    table = journaled.table
    record = table.open_mobile("a", 0, PLAIN)
    table.add_remote(record, 7)
    counters = (record.remotes or {})[7]
    assert counters not in (0, record.id)
    assert journaled.take_ops()[1:] == [["+r", record.id, 7, counters]]
    assert wire(table.consumer_ops()) == [["+r", record.id, 7, counters]]
    assert not record.unused()
    assert not record.local
    table.remove_remote(record, 7)
    assert journaled.take_ops() == [["-r", record.id, 7], ["-addr", record.id]]
    assert sorted(journaled.reset) == sorted([record.id, counters])


def test_unknown_remote_destination_cannot_be_removed():
    table = JournaledTable(100).table
    record = table.open_mobile("a", 0, PLAIN)
    with pytest.raises(KeyError):
        table.remove_remote(record, 7)
    table.add_remote(record, 7)
    with pytest.raises(KeyError):
        table.remove_remote(record, 8)


def test_remote_destination_without_free_id_is_refused():
    journaled = JournaledTable(2)
    table = journaled.table
    record = table.open_mobile("a", 0, PLAIN)
    with pytest.raises(TableFullError):
        table.add_remote(record, 1)
    assert record.unused()
    assert [op[0] for op in journaled.take_ops()] == ["addr", "-addr"]


def test_local_watch_is_notified_of_first_and_last_consumer():
    table = JournaledTable(100).table
    notified: list[tuple[str, bool]] = []
    table.watch_local(lambda record: notified.append((record.key, record.local)))
    record = table.open_mobile("a", 0, PLAIN)
    table.add_consumer(record, 0, 1, 1, 250)
    table.add_consumer(record, 0, 2, 1, 250)
    assert notified == [("M0a", True)]
    table.remove_consumer(record, 0, 1, 1)
    table.remove_consumer(record, 0, 2, 1)
    assert notified == [("M0a", True), ("M0a", False)]
