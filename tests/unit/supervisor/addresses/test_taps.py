"""Taps: which records they select, and the order of the ops in which workers receive them."""

from typing import Any

import pytest

from sluice.router.addressing.settings import AddressSetting
from sluice.router.config.entities import TapConfig
from sluice.router.control.handlers import HandlerTable
from sluice.router.control.messages import CopiesMissed, Event
from sluice.supervisor.addresses.settings import Settings
from sluice.supervisor.addresses.taps import MOST_MISSED_ADDRESSES, TapRefusedError, Taps
from tests.unit.ops import wire
from tests.unit.supervisor.journaled_table import JournaledTable

PLAIN = AddressSetting()


def tap(name: str, pattern: str, address: str = "copies", mode: str = "copy") -> TapConfig:
    return TapConfig(name=name, identity=name, named=True, pattern=pattern, address=address, mode=mode)


class TapsWithWorker:
    """Taps with one worker, which acknowledges at once."""

    def __init__(self, entries: dict[str, AddressSetting] | None = None, limit: int = 1000) -> None:
        self.journaled = JournaledTable(limit)
        self.table, self.journal = self.journaled.table, self.journaled.journal
        self.settings = Settings(self.table, self.journal, entries or {}, "balanced")
        self.refused: list[str] = []
        self.taps = Taps(
            "R", "interior", self.settings, self.table, self.journaled.slots, self.journal, self.refused.append
        )
        self.journal.join(0, 0)

    def settle(self) -> list[Any]:
        """Run all steps. Return the ops that the worker has received since the last call."""
        received: list[Any] = []
        while True:
            self.settings.step()
            delta = self.journaled.take_delta()
            if delta is not None:
                received += wire(delta[1])
                self.journal.acknowledge(0, delta[0])
            elif not self.settings.waiting:
                return received


@pytest.mark.parametrize(
    ("key", "selected"),
    [
        ("M0sensors/a", True),
        ("M0sensors", True),
        ("M0sensor", False),
        ("M1sensors/a", False),
        ("MFsensors/a", False),
        ("Lsensors", False),
        ("M1waypoint/sensors", True),
        ("M0waypoint/sensors", False),
        ("M0$management", False),
        ("M0_$qd.sensors", False),
    ],
)
def test_tap_selects_records_at_the_phase_where_messages_enter(key: str, selected: bool) -> None:
    both = TapsWithWorker({"waypoint/sensors": AddressSetting(ingress_phase=1, egress_phase=2)})
    for number, pattern in enumerate(("sensors/#", "waypoint/#", "$management", "_$qd/#"), 1):
        both.table.taps.put(number, pattern)
    assert bool(both.table.taps.matching(key)) is selected


def test_records_follow_when_taps_are_added_and_removed() -> None:
    both = TapsWithWorker()
    before = both.table.open_mobile("sensors/a", 0, PLAIN)
    other = both.table.open_mobile("other", 0, PLAIN)
    for record in (before, other):
        both.table.hold(record)
    both.settle()
    both.taps.add(tap("t", "sensors/#"))
    later = both.table.open_mobile("sensors/b", 0, PLAIN)
    both.table.hold(later)
    ops = both.settle()
    assert [op[0] for op in ops].count("tap") == 1
    assert {op[2]: op[3].get("taps") for op in ops if op[0] == "addr"} == {
        "M0copies": None, "M0sensors/b": (1,), "M0sensors/a": (1,),
    }  # fmt: skip
    assert next(at for at, op in enumerate(ops) if op[0] == "tap") < next(
        at for at, op in enumerate(ops) if op[0] == "addr" and op[3].get("taps")
    )
    assert [each["name"] for each in both.taps.describe(before.key)] == ["t"]
    both.taps.remove("t")
    ops = both.settle()
    assert ["-tap", 1] in ops
    assert {op[2] for op in ops if op[0] == "addr"} == {"M0sensors/a", "M0sensors/b"}
    assert before.taps == later.taps == ()
    assert "M0copies" not in both.table.records


def test_configuration_with_changed_tap_makes_it_again() -> None:
    both = TapsWithWorker()
    both.taps.use([tap("a", "a/#"), tap("b", "b/#")])
    both.settle()
    both.taps.use([tap("a", "a/#"), tap("b", "b/#", mode="required"), tap("c", "c/#")])
    ops = both.settle()
    assert [op for op in ops if op[0] == "-tap"] == [["-tap", 2]]
    assert [op[1] for op in ops if op[0] == "tap"] == [3, 4]
    assert not both.refused


def test_tap_without_room_for_counters_is_refused_without_effect() -> None:
    both = TapsWithWorker(limit=2)
    with pytest.raises(TapRefusedError, match="no room for its counters"):
        both.taps.add(tap("t", "sensors/#"))
    both.settle()
    assert not both.table.records
    both.taps.use([tap("t", "sensors/#", address="_local/x")])
    assert both.refused == [
        "Error configuring tap 't': '_local/x' cannot get copies: it is an address of one router or link"
    ]


def test_missed_messages_have_a_bounded_number_of_counts_by_address() -> None:
    both = TapsWithWorker()
    both.taps.add(tap("t", "sensors/#"))
    handlers: HandlerTable[Any] = HandlerTable(Event)
    both.taps.messages(handlers)

    def report(counts: dict[str, int]) -> None:
        handlers.handle(None, CopiesMissed(1, counts))

    report({f"sensors/{number}": 1 for number in range(MOST_MISSED_ADDRESSES)})
    report({"sensors/0": 2, "sensors/late": 3, "": 4})
    handlers.handle(None, CopiesMissed(99, {"sensors/0": 1}))  # of a tap that has been removed
    by_address, elsewhere = both.taps.missed("t")
    assert (len(by_address), by_address["sensors/0"], elsewhere) == (MOST_MISSED_ADDRESSES, 3, 7)
