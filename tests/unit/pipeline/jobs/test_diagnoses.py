"""Causes of trouble at addresses, from sums by minute."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluice.pipeline.jobs.diagnoses import (
    NOBODY,
    REJECTED,
    RETURNED,
    SLOW,
    WINDOW,
    WITHHELD,
    AddressSlice,
    ClientSums,
    diagnose,
    in_order,
)

START = datetime(2026, 3, 1, tzinfo=UTC)
STEP = 60.0
SECONDS_8, MS_10 = 23, 14  # histogram buckets: 4.2 to 8.4 s, 8 to 16 ms


def minutes(count: int, first: int = 0, **values: Any) -> list[AddressSlice]:
    settings: dict[str, Any] = {"producing": STEP, "receiving": STEP, "capacity": 250, "taken": 2400}
    settings |= {"deliveries": 2400, **values}
    outcomes = {"rejected": 0, "released": 0, "modified": 0, **settings.pop("outcomes", {})}
    return [
        AddressSlice(START + timedelta(minutes=first + at), outcomes=dict(outcomes), **settings) for at in range(count)
    ]


def client(name: str, direction: str = "out", unsettled: int = 0, without: float = 0.0, **outcomes: int) -> ClientSums:
    counts = {"rejected": 0, "released": 0, "modified": 0, **outcomes}
    return ClientSums(name, direction, 2400, counts, without, unsettled)


def kinds(slices: list[AddressSlice], *clients: ClientSums) -> list[str]:
    return [one.kind for one in diagnose("orders", slices, clients, STEP, slices[-1].start)]


def test_consumer_that_prefetches_and_settles_late_is_the_cause():
    """40 deliveries a second through a window of 250: each takes about 6 s, and the consumer always has credit."""
    quiet = minutes(3, settled={MS_10: 2400})
    slow = minutes(6, 3, without=5.0, settled={SECONDS_8: 2400})
    clients = [client("fast", unsettled=3), client("slow", unsettled=250), client("shop", "in", 250, without=30.0)]
    (found,) = diagnose("orders", quiet + slow, clients, STEP, slow[-1].start)
    assert found.kind == SLOW
    assert found.clients == ["slow", "fast"]
    assert found.senders == ["shop"]
    assert (found.since, found.until) == (START + timedelta(minutes=3), START + timedelta(minutes=9))
    assert found.present
    assert found.seconds == pytest.approx(360)
    assert found.p99_us == pytest.approx(8.3e6, rel=0.02)
    assert [share for _, share in found.held[:4]] == [0.0, 0.0, 0.0, 1.0]


def test_minutes_of_slow_consumer_are_found_in_an_hour_of_quick_deliveries():
    """Six minutes at 40 deliveries a second, beside millions that were quick."""
    hours = minutes(1, settled={MS_10: 3_000_000, SECONDS_8: 14_400}, deliveries=3_014_400)
    (found,) = diagnose("orders", hours, [client("slow", unsettled=250)], 3600.0, START)
    assert found.kind == SLOW
    assert 300 < found.seconds < 420


def test_full_link_with_late_deliveries_counts_as_held():
    """The deliveries that wait longest are not settled yet, so the histogram does not have them."""
    late = {SECONDS_8: 20}
    assert kinds(minutes(2, unsettled=250, settled=late), client("slow", unsettled=250)) == [SLOW]
    assert kinds(minutes(2, unsettled=20, settled=late), client("slow", unsettled=20)) == []


def test_address_without_receivers_is_no_matter_of_capacity():
    slices = minutes(4, without=60.0, receiving=0.0, taken=0, deliveries=250, outcomes={"released": 250})
    assert kinds(slices, client("shop", "in", without=240.0)) == [NOBODY]


def test_receiver_beyond_the_routers_is_not_nobody():
    """The receiver of another router has no links here, but deliveries are accepted."""
    (found,) = diagnose("a", minutes(4, without=60.0, receiving=0.0, settled={SECONDS_8: 2400}), [], STEP, START)
    assert (found.kind, found.clients) == (SLOW, [])


def test_receiver_without_credit_is_the_cause():
    slices = minutes(4, without=60.0, withheld=55.0, taken=0, settled={SECONDS_8: 3})
    found = diagnose("a", slices, [client("idle", without=220.0), client("other", without=1.0)], STEP, START)
    assert [(one.kind, one.clients[0]) for one in found] == [(WITHHELD, "idle")]


def test_window_is_the_cause_if_deliveries_are_settled_soon():
    assert kinds(minutes(4, without=50.0, settled={MS_10: 2400}), client("batch", unsettled=250)) == [WINDOW]


def test_producer_with_credit_is_no_trouble():
    assert kinds(minutes(4, without=29.0, settled={MS_10: 2400})) == []


def test_released_deliveries_are_not_reported_as_rejected():
    clients = [client("leaver", released=480), client("judge", rejected=1)]
    (found,) = diagnose("a", minutes(4, outcomes={"released": 120}), clients, STEP, START)
    assert (found.kind, found.clients, found.count) == (RETURNED, ["leaver"], 480)


def test_rejected_deliveries_name_the_receiver_that_rejects():
    clients = [client("judge", rejected=480), client("other")]
    found = diagnose("a", minutes(4, outcomes={"rejected": 120}), clients, STEP, START + timedelta(hours=1))
    assert [(one.kind, one.clients, one.count, one.present) for one in found] == [(REJECTED, ["judge"], 480, False)]


@pytest.mark.parametrize("outcomes", [{"rejected": 119}, {"released": 60, "modified": 59}])
def test_refusals_below_share_are_not_reported(outcomes: dict[str, int]):
    assert kinds(minutes(4, outcomes=outcomes)) == []


def test_present_stalls_come_before_refusals_and_before_past_stalls():
    last = START + timedelta(minutes=29)
    past = diagnose("past", minutes(9, settled={SECONDS_8: 2400}), [], STEP, last)
    refused = diagnose("refused", minutes(30, outcomes={"rejected": 2400}), [], STEP, last)
    slow = diagnose("slow", minutes(3, 27, settled={SECONDS_8: 2400}), [], STEP, last)
    assert [one.address for one in in_order([*past, *refused, *slow])] == ["slow", "refused", "past"]
