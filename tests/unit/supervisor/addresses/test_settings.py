"""Changes of address settings: effects on address records, and the ops and epochs in which workers receive them."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.router.addressing.address import MOBILE, key
from sluice.router.addressing.settings import AddressSetting, AddressSettings
from sluice.supervisor.addresses.settings import MAX_OPS_PER_EPOCH, Settings
from tests.unit.ops import wire
from tests.unit.supervisor.journaled_table import JournaledTable


class SettingsWithWorker:
    """Settings with one worker, which acknowledges on request."""

    def __init__(self, entries=None, default="balanced"):
        self.journaled = JournaledTable(100_000)
        self.table, self.journal = self.journaled.table, self.journaled.journal
        self.settings = Settings(self.table, self.journal, entries or {}, default)
        self.journal.join(0, 0)
        self.received = []  # ops by epoch

    def use(self, name, phase=0, fixed=False):
        record = self.table.open_mobile(name, phase, self.settings.current.lookup(name))
        record.fixed = fixed
        self.table.hold(record)
        return record

    def settle(self, acknowledge=True):
        """Run all steps. Return the ops that the worker has received since the last call."""
        self.received = []
        while True:
            self.settings.step()
            delta = self.journaled.take_delta()
            if delta is not None:
                self.received.append(wire(delta[1]))
                if acknowledge:
                    self.journal.acknowledge(0, delta[0])
            elif not self.settings.waiting:
                return [op for ops in self.received for op in ops]

    def replace(self, entries, default="balanced"):
        before = {pattern: self.settings.get(pattern) for pattern in self.patterns()}
        changed = [pattern for pattern in {**before, **entries} if before.get(pattern) != entries.get(pattern)]
        self.settings.replace(entries, AddressSettings(entries.items(), default), changed)

    def patterns(self):
        return list(self.settings.patterns())


def to(distribution, **more):
    return AddressSetting(distribution, **more)


def treatments(ops):
    return {op[2]: op[3]["treatment"] for op in ops if op[0] == "addr"}


def test_record_follows_its_pattern():
    setup = SettingsWithWorker({"a/#": to("closest")})
    record, other = setup.use("a/x"), setup.use("b")
    setup.settle()
    setup.settings.put("a/#", to("multicast", priority=3, overflow="block"))
    ops = setup.settle()
    assert [op[0] for op in ops] == ["setting", "addr"]
    assert ops[0] == ["setting", "a/#", to("multicast", priority=3, overflow="block")]
    assert (record.treatment, record.priority, record.overflow) == ("multicast", 3, "block")
    assert other.treatment == "balanced"
    setup.settings.drop("a/#")
    ops = setup.settle()
    assert ops[0] == ["setting", "a/#", None]
    assert treatments(ops) == {"M0a/x": "balanced"}
    assert setup.settle() == []


def test_better_pattern_takes_addresses_over():
    setup = SettingsWithWorker({"#": to("closest")})
    records = [setup.use(name) for name in ("a/b", "a/c")]
    setup.settle()
    setup.settings.put("a/b", to("multicast"))
    assert treatments(setup.settle()) == {"M0a/b": "multicast"}
    setup.settings.put("a/*", to("unavailable"))
    assert treatments(setup.settle()) == {"M0a/c": "unavailable"}
    assert [record.treatment for record in records] == ["multicast", "unavailable"]


def test_changed_default_reaches_unmatched_addresses():
    setup = SettingsWithWorker({"a": to("closest")})
    local = setup.table.create(key("L", "x"), "balanced", None, "throttle")
    setup.table.hold(local)
    setup.use("a")
    setup.use("b")
    dynamic = setup.use("c", fixed=True)
    setup.settle()
    setup.settings.set_default("multicast")
    ops = setup.settle()
    assert ops[0] == ["default", "multicast"]
    assert treatments(ops) == {"Lx": "multicast", "M0b": "multicast"}
    assert dynamic.treatment == "balanced"


def test_fallback_setting_creates_and_removes_instance():
    setup = SettingsWithWorker()
    primary = setup.use("a")
    setup.settle()
    setup.settings.put("a", to("closest", fallback=True))
    ops = setup.settle()
    assert primary.fallback is not None
    assert primary.fallback.treatment == "balanced"
    assert [op[2] for op in ops if op[0] == "addr"] == ["MFa", "M0a"]
    assert ops[-1][3]["fallback"] == primary.fallback.id
    setup.settings.drop("a")
    ops = setup.settle()
    assert [op[0] for op in ops] == ["setting", "addr", "-addr"]
    assert primary.fallback is None
    assert key(MOBILE, "a", "F") not in setup.table.records


def test_bulk_changes_are_announced_in_acknowledged_epochs():
    names = [f"a{number}" for number in range(250)]
    setup = SettingsWithWorker()
    for name in names:
        setup.use(name)
    setup.settle()
    setup.replace({name: to("multicast") for name in names})
    setup.settle(acknowledge=False)
    assert len(setup.received) == 1, "the next portion waits for the worker"
    setup.journal.acknowledge(0, setup.journal.epoch)
    setup.settle()
    assert [len(ops) for ops in setup.received] == [MAX_OPS_PER_EPOCH] * 4
    for ops in setup.received:  # a pattern and its address are in the same epoch
        assert {op[1] for op in ops if op[0] == "setting"} == {op[2][2:] for op in ops if op[0] == "addr"}
    assert setup.settings.settled


def test_pattern_of_many_addresses_takes_several_epochs():
    setup = SettingsWithWorker({"a/#": to("closest")})
    for number in range(250):
        setup.use(f"a/{number}")
    setup.settle()
    setup.settings.put("a/#", to("multicast"))
    ops = setup.settle()
    assert [len(ops) for ops in setup.received] == [100, 100, 51]
    assert set(treatments(ops).values()) == {"multicast"}


def test_setting_changed_during_announcement_takes_last_value():
    names = [f"a{number}" for number in range(300)]
    setup = SettingsWithWorker()
    records = [setup.use(name) for name in names]
    setup.settle()
    setup.replace({name: to("multicast") for name in names})
    setup.settle(acknowledge=False)
    setup.replace({name: to("closest") for name in names[:150]})
    setup.journal.acknowledge(0, setup.journal.epoch)
    setup.settle()
    assert [record.treatment for record in records] == ["closest"] * 150 + ["balanced"] * 150


def test_pattern_waiting_for_epoch_precedes_later_change():
    setup = SettingsWithWorker()
    for name in ("a", "b"):
        for number in range(60):
            setup.use(f"{name}/{number}")
    setup.settle()
    setup.settings.put("a/#", to("multicast"))
    setup.settings.put("b/#", to("closest"))
    setup.settings.set_default("unavailable")
    setup.settle(acknowledge=False)  # the first pattern with its addresses; the second one waits for the worker
    setup.settings.put("c", to("closest"))
    setup.journal.acknowledge(0, setup.journal.epoch)
    ops = setup.settle()
    assert [op[1] for op in ops if op[0] in ("setting", "default")] == ["b/#", "unavailable", "c"]
    assert {name for name in treatments(ops) if name.startswith("M0b/")} == {f"M0b/{number}" for number in range(60)}


def test_continuous_changes_are_announced():
    setup = SettingsWithWorker()
    for number in range(1000):
        setup.use(f"x/{number}")
    setup.settle()
    in_force: list[int] = []
    for number in range(40):  # a change per step; a scan of the records takes five
        setup.settings.put(f"a{number}", to("multicast"))
        setup.settings.when_in_force(partial(in_force.append, number))
        setup.settings.step()
        delta = setup.journaled.take_delta()
        if delta is not None:
            setup.received += wire(delta[1])
            setup.journal.acknowledge(0, delta[0])
        setup.journal.run_actions()
    announced = [op[1] for op in setup.received if op[0] == "setting"]
    assert announced == [f"a{number}" for number in range(len(announced))]
    assert len(announced) >= 25
    assert 0 < len(in_force) <= len(announced), "an action runs when its own change is announced, not before"
    assert in_force == sorted(in_force)


def test_pattern_changed_during_scan_takes_last_value():
    setup = SettingsWithWorker()
    records = [setup.use(f"a/{number}") for number in range(600)]
    setup.settle()
    setup.settings.put("a/#", to("multicast"))
    setup.settings.step()  # scans a part of the records
    setup.settings.put("a/#", to("closest"))
    setup.settings.step()
    setup.settings.drop("a/#")
    setup.settings.put("a/1", to("closest"))
    setup.settle()
    assert [record.treatment for record in records] == ["balanced", "closest"] + ["balanced"] * 598


def test_removed_record_is_not_announced():
    setup = SettingsWithWorker()
    record = setup.use("a")
    setup.settle()
    setup.settings.put("a", to("multicast"))
    setup.table.release(record)
    setup.journaled.take_delta()
    assert [op[0] for op in setup.settle()] == ["setting"]


PATTERNS = ["a", "a/#", "a/*", "#", "*/b", "a/b", "a/b/#", "b"]
NAMES = ["a", "b", "a/b", "a/c", "a/b/c", "c/b", "a.d", ".a/e", "ab", "/b"]


@given(
    st.lists(
        st.dictionaries(st.sampled_from(PATTERNS), st.sampled_from(["balanced", "closest", "multicast"]), max_size=5),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
)
def test_changed_settings_equal_those_of_restart(steps, in_between):
    setup = SettingsWithWorker()
    for name in NAMES:
        setup.use(name)
    worker = AddressSettings()
    received = {}
    ops = setup.settle()
    for step in steps:
        setup.replace({pattern: to(distribution) for pattern, distribution in step.items()})
        if in_between:
            ops += setup.settle()
    ops += setup.settle()
    for op in ops:
        if op[0] == "setting" and op[2] is None:
            worker.drop(op[1])
        elif op[0] == "setting":
            worker.put(op[1], AddressSetting(*op[2]))
        elif op[0] == "addr":
            received[op[2]] = op[3]["treatment"]
    fresh = AddressSettings([(pattern, to(distribution)) for pattern, distribution in steps[-1].items()])
    for name in NAMES:
        assert received[f"M0{name}"] == fresh.lookup(name).distribution
        assert worker.lookup(name).distribution == fresh.lookup(name).distribution


def test_unknown_pattern_cannot_be_dropped():
    with pytest.raises(KeyError):
        SettingsWithWorker().settings.drop("a")
