"""Rings of a history: values of periods, gaps, and their state in a file."""

import pytest

from sluice.router import json_codec
from sluice.supervisor.history.figures import FIGURES, NAMES, FigureKind
from sluice.supervisor.history.ring import HistoryRing
from tests.unit.supervisor.history.readings import reading

IN, LINKS, P50 = "deliveriesIngress", "linkCount", "latencyP50Seconds"
BEGIN = 1_000_000  # seconds since the epoch, a multiple of 5


def test_names_of_figures_are_unique() -> None:
    assert len(set(NAMES)) == len(FIGURES)


def test_rate_is_growth_per_second_of_elapsed_time() -> None:
    ring = HistoryRing(5, 10)
    for number, (clock, count) in enumerate([(0.0, 100), (5.0, 150), (11.0, 210)]):
        ring.add(BEGIN + 5 * number, reading(clock, deliveriesIngress=count))
    assert ring.read([IN]) == (BEGIN + 5, {IN: [10.0, 10.0]})


def test_rate_of_long_period_counts_whole_period() -> None:
    ring = HistoryRing(60, 10)
    for number in range(25):
        ring.add(BEGIN + 20 + 5 * number, reading(5.0 * number, deliveriesIngress=number * number))
    assert ring.read([IN]) == (BEGIN + 80, {IN: [12 * 12 / 60, (24 * 24 - 12 * 12) / 60]})


def test_first_period_of_ring_counts_from_first_reading() -> None:
    ring = HistoryRing(60, 10)
    ring.add(BEGIN + 70, reading(0.0, deliveriesIngress=1000))  # 10 seconds before a period ends
    ring.add(BEGIN + 80, reading(10.0, deliveriesIngress=1050))
    assert ring.read([IN]) == (BEGIN + 80, {IN: [5.0]})


def test_quantity_is_mean_of_readings() -> None:
    ring = HistoryRing(60, 10)
    for number in range(13):
        ring.add(BEGIN + 20 + 5 * number, reading(5.0 * number, linkCount=12 if number == 7 else 0))
    assert ring.read([LINKS])[1] == {LINKS: [1.0]}


def test_latency_is_that_of_period_or_none_without_deliveries() -> None:
    ring = HistoryRing(5, 10)
    before, after = [0] * 32, [0] * 32
    before[20] = 1000
    after[20], after[4] = 1000, 3
    ring.add(BEGIN, reading(0.0, before))
    ring.add(BEGIN + 5, reading(5.0, before))
    ring.add(BEGIN + 10, reading(10.0, after))
    assert ring.read([P50])[1] == {P50: [None, 16e-6]}


def test_counter_that_decreases_has_rate_zero() -> None:
    ring = HistoryRing(5, 10)
    ring.add(BEGIN, reading(0.0, cpuSeconds=9))
    ring.add(BEGIN + 5, reading(5.0, cpuSeconds=3))
    assert ring.read(["cpuSeconds"])[1] == {"cpuSeconds": [0.0]}


def test_ring_keeps_last_periods() -> None:
    ring = HistoryRing(5, 4)
    for number in range(11):
        ring.add(BEGIN + 5 * number, reading(5.0 * number, linkCount=number))
    assert ring.read([LINKS]) == (BEGIN + 35, {LINKS: [7.0, 8.0, 9.0, 10.0]})
    assert ring.read([LINKS], BEGIN + 40) == (BEGIN + 45, {LINKS: [9.0, 10.0]})
    assert ring.read([LINKS], BEGIN + 44.9)[1] == {LINKS: [9.0, 10.0]}
    assert ring.read([LINKS], BEGIN + 50)[1] == {LINKS: []}
    assert ring.read([LINKS], BEGIN + 5000)[1] == {LINKS: []}


def test_periods_without_reading_have_no_values() -> None:
    ring = HistoryRing(5, 8)
    for number in (0, 1, 4, 5):
        ring.add(BEGIN + 5 * number, reading(5.0 * number, linkCount=number))
    assert ring.read([LINKS])[1] == {LINKS: [1.0, None, None, 4.0, 5.0]}


def test_gap_longer_than_ring_empties_it() -> None:
    ring = HistoryRing(5, 4)
    for number in (0, 1, 2, 100):
        ring.add(BEGIN + 5 * number, reading(5.0 * number, linkCount=number))
    assert ring.read([LINKS]) == (BEGIN + 500, {LINKS: [100.0]})


def test_clock_set_back_removes_later_periods() -> None:
    ring = HistoryRing(5, 8)
    for number, place in enumerate([0, 1, 2, 3, 4, 1, 2, 3]):
        ring.add(BEGIN + 5 * place, reading(5.0 * number, linkCount=10 * number))
    assert ring.read([LINKS]) == (BEGIN + 5, {LINKS: [10.0, 60.0, 70.0]})


def test_ring_without_periods_has_no_values() -> None:
    ring = HistoryRing(5, 8)
    assert ring.read([LINKS])[1] == {LINKS: []}
    ring.add(BEGIN, reading(0.0))
    assert ring.read(NAMES)[1] == {name: [] for name in NAMES}


def test_restored_ring_continues_with_gap() -> None:
    ring = HistoryRing(5, 8)
    for number in range(3):
        ring.add(BEGIN + 5 * number, reading(5.0 * number, linkCount=number))
    later = HistoryRing(5, 8)
    later.restore(json_codec.decode(json_codec.encode(ring.state())))
    assert later.read(NAMES) == ring.read(NAMES)
    later.add(BEGIN + 20, reading(100.0, linkCount=5))
    later.add(BEGIN + 25, reading(105.0, linkCount=6))
    assert later.read([LINKS])[1] == {LINKS: [1.0, 2.0, None, None, 6.0]}


def test_state_of_other_figures_is_used_as_far_as_possible() -> None:
    ring = HistoryRing(5, 8)
    for number in range(3):
        ring.add(BEGIN + 5 * number, reading(5.0 * number, linkCount=number))
    state = ring.state()
    state["columns"]["formerFigure"] = state["columns"].pop(IN)
    later = HistoryRing(5, 8)
    later.restore(state)
    assert later.read([LINKS, IN])[1] == {LINKS: [1.0, 2.0], IN: [None, None]}


@pytest.mark.parametrize(
    "damage",
    [
        {"step": 60},
        {"size": 9},
        {"latest": "x"},
        {"columns": {LINKS: "!"}},
        {"columns": {LINKS: "AAAA"}},
        {"columns": 5},
        {"columns": []},
        {"columns": {LINKS: 5}},
        {"latest": None},
        {"latest": -1},
        {"latest": 1e300},
    ],
)
def test_damaged_state_is_refused_and_changes_nothing(damage: dict[str, object]) -> None:
    ring = HistoryRing(5, 8)
    for number in range(3):
        ring.add(BEGIN + 5 * number, reading(5.0 * number, linkCount=number))
    before = ring.read(NAMES)
    with pytest.raises(ValueError):
        ring.restore({**ring.state(), **damage})
    assert ring.read(NAMES) == before


def test_size_of_all_rings_is_as_documented() -> None:
    from sluice.supervisor.history.history import RINGS

    assert (len(FIGURES), sum(size for _, size in RINGS) * len(FIGURES) * 8) == (29, 668_160)
    assert sum(figure.kind is FigureKind.QUANTILE for figure in FIGURES) == 3
