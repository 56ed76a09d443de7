"""Sum of the counters of addresses without series of their own."""

from __future__ import annotations

from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.telemetry.other_addresses import FIELDS, OtherAddresses

IDS = 8


def record(number: int) -> AddressRecord:
    return AddressRecord(number, f"M0a{number}", "balanced", None, "")


def update(others: OtherAddresses, total: int, shown: dict[AddressRecord, int], *existing: int) -> int:
    """Return the sum, with the same value in each field. `existing`: ids of all addresses."""
    present = bytearray(IDS)
    for number in existing:
        present[number] = 1
    counters = {each: [count] * FIELDS for each, count in shown.items()}
    found = others.update([total] * FIELDS, counters, present)
    assert found == [found[0]] * FIELDS
    return found[0]


def test_addresses_with_series_are_not_in_sum() -> None:
    others, shown = OtherAddresses(), record(1)
    assert update(others, 100, {shown: 30}, 1, 2) == 70
    assert update(others, 150, {shown: 60}, 1, 2) == 90


def test_counts_from_before_an_own_series_stay_in_sum() -> None:
    others, later = OtherAddresses(), record(1)
    assert update(others, 100, {}, 1, 2) == 100
    assert update(others, 110, {later: 45}, 1, 2) == 110
    assert update(others, 120, {later: 55}, 1, 2) == 110, "all ten new deliveries are in the series"


def test_counts_after_losing_the_series_are_added() -> None:
    others, shown = OtherAddresses(), record(1)
    assert update(others, 30, {shown: 30}, 1) == 0
    assert update(others, 40, {}, 1) == 10


def test_new_address_with_series_takes_its_whole_count() -> None:
    others, new = OtherAddresses(), record(2)
    assert update(others, 10, {}, 1) == 10
    assert update(others, 17, {new: 7}, 1, 2) == 10


def test_sum_does_not_decrease_if_totals_are_older() -> None:
    others, shown = OtherAddresses(), record(1)
    assert update(others, 100, {shown: 20}, 1, 2) == 80
    assert update(others, 100, {shown: 25}, 1, 2) == 80


def test_new_address_with_id_of_removed_one_takes_its_whole_count() -> None:
    others, removed, new = OtherAddresses(), record(1), record(1)
    assert update(others, 30, {removed: 30}, 1) == 0
    assert update(others, 35, {new: 5}, 1) == 0
