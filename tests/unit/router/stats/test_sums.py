"""Sums over many slots, compared with the accessors of single slots."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import pytest

from sluice.router.ring.region import Region
from sluice.router.stats.sums import ADDRESS_SUMS, LINK_SUMS, AddressCounters, add_links, traffic_of
from sluice.router.testing.interworker import claim_link, free_link, set_address

WORKERS, LINKS, ADDRESSES = 3, 50, 20


@pytest.fixture
def region() -> Iterator[Region]:
    made = Region.create(WORKERS, LINKS, ADDRESSES, 4096)
    yield made
    made.close()


def count(region: Region, address: int, worker: int, start: int) -> None:
    """Set the counters of an address in a worker to start, start + 1 and so on."""
    set_address(region, worker, address, **{name: start + number for number, name in enumerate(ADDRESS_SUMS)})


def test_address_counters_are_summed_over_workers(region: Region) -> None:
    for worker in range(WORKERS):
        count(region, 7, worker, 100**worker)
    totals = region.address_totals(7)
    assert AddressCounters(region).of(7) == [totals[name] for name in ADDRESS_SUMS]


def test_address_ranges_are_summed(region: Region) -> None:
    for address in range(1, ADDRESSES):
        count(region, address, address % WORKERS, 10 * address)
    counters = AddressCounters(region)
    whole, pieces = array("Q", [0] * len(ADDRESS_SUMS)), array("Q", [0] * len(ADDRESS_SUMS))
    traffic, piecewise = (array("Q", [99] * ADDRESSES) for _ in range(2))
    counters.add(0, ADDRESSES, whole, traffic)
    for start in range(0, ADDRESSES, 3):
        counters.add(start, min(start + 3, ADDRESSES), pieces, piecewise)
    assert whole == pieces
    assert traffic == piecewise
    everyone = [region.address_totals(address) for address in range(ADDRESSES)]
    assert list(whole) == [sum(one[name] for one in everyone) for name in ADDRESS_SUMS]
    assert list(traffic) == [sum(one[name] for name in ADDRESS_SUMS[:-1]) for one in everyone]


def test_counts_of_reset_address_are_kept(region: Region) -> None:
    counters = AddressCounters(region)
    for worker in range(WORKERS):
        count(region, 3, worker, 1)
    before = counters.of(3)
    counters.reset(3)
    assert counters.removed_totals() == before
    assert counters.of(3) == [0] * len(ADDRESS_SUMS)
    count(region, 3, 0, 5)
    counters.reset(3)
    assert counters.removed_totals() == [old + 5 + number for number, old in enumerate(before)]


@pytest.mark.parametrize("address", [-1, ADDRESSES])
def test_address_out_of_range_is_refused(region: Region, address: int) -> None:
    counters = AddressCounters(region)
    for use in (counters.of, counters.reset):
        with pytest.raises(IndexError):
            use(address)


@pytest.mark.parametrize(
    ("start", "stop", "fields", "room"),
    [(-1, 2, 6, 20), (3, 2, 6, 20), (0, 21, 6, 30), (0, 10, 6, 9), (0, 10, 5, 20)],
)
def test_invalid_address_range_is_refused(region: Region, start: int, stop: int, fields: int, room: int) -> None:
    with pytest.raises(IndexError):
        AddressCounters(region).add(start, stop, array("Q", [0] * fields), array("Q", [0] * room))


def numbers(*values: int) -> array[int]:
    return array("I", values)


def test_links_are_summed_by_group_and_address(region: Region) -> None:
    # Three deliveries have a place at the producer; one of them arrived settled.
    claim_link(region, 1, 0, 9, direction=1, credit=5, undelivered=1, unsettled=3, deliveries=8, finished=6)
    claim_link(region, 1, 1, 9, direction=2, credit=0, undelivered=10, unsettled=20)
    claim_link(region, 1, 2, 9, direction=2, credit=-1, undelivered=100, unsettled=200, blocked=1, stuck=9)
    claim_link(region, 1, 3, 9, direction=2, credit=1, undelivered=1000)
    free_link(region, 1, 3)
    sums, undelivered = array("Q", [0] * 2 * len(LINK_SUMS)), array("Q", [0] * ADDRESSES)
    # Slots 3 and 40 are free; slot 40 was never used.
    add_links(region, 1, numbers(0, 1, 2, 3, 40), numbers(0, 1, 1, 1, 1), numbers(0, 7, 7, 7, 7), sums, undelivered)
    assert dict(zip(LINK_SUMS, sums[: len(LINK_SUMS)], strict=True)) == {
        "links": 1,
        "without_credit": 0,
        "blocked": 0,
        "undelivered": 1,
        "unsettled": 2,
        "stuck": 0,
    }
    assert list(sums[len(LINK_SUMS) :]) == [2, 2, 1, 110, 220, 9]
    assert undelivered[7] == 110


@pytest.mark.parametrize(
    ("worker", "slots", "groups", "addresses"),
    [
        (WORKERS, [0], [0], [0]),
        (-1, [0], [0], [0]),
        (0, [LINKS], [0], [0]),
        (0, [0, 0], [0, 1], [0, 0]),
        (0, [0], [0], [ADDRESSES]),
        (0, [0], [], [0]),
        (0, [0], [0], []),
        (0, [0], [0x40000000], [0]),
    ],
)
def test_invalid_link_slots_are_refused(
    region: Region, worker: int, slots: list[int], groups: list[int], addresses: list[int]
) -> None:
    claim_link(region, 0, 0, 9, undelivered=1)
    sums, undelivered = array("Q", [0] * len(LINK_SUMS)), array("Q", [0] * ADDRESSES)
    with pytest.raises(IndexError):
        add_links(region, worker, numbers(*slots), numbers(*groups), numbers(*addresses), sums, undelivered)
    assert sum(sums) == sum(undelivered) == 0


def test_closed_region_is_refused(region: Region) -> None:
    region.close()
    sums, undelivered = array("Q", [0] * len(LINK_SUMS)), array("Q", [0] * ADDRESSES)
    with pytest.raises(ValueError, match="closed"):
        add_links(region, 0, numbers(0), numbers(0), numbers(0), sums, undelivered)
    for use in (AddressCounters(region).of, AddressCounters(region).reset):
        with pytest.raises(ValueError, match="closed"):
            use(1)
    with pytest.raises(ValueError, match="closed"):
        AddressCounters(region).add(0, 1, array("Q", [0] * 6), array("Q", [0]))


def test_traffic_of_link_is_read_in_its_generation_only(region: Region) -> None:
    claim_link(region, 1, 4, 9, direction=1, deliveries=8, octets=800)
    assert traffic_of(region, 1, 4, 9) == (8, 800)
    assert traffic_of(region, 1, 4, 8) is None
    assert traffic_of(region, 1, 5, 9) is None
    assert traffic_of(region, 0, 4, 9) is None


def test_traffic_of_ended_link_stays_readable_until_slot_is_used_again(region: Region) -> None:
    claim_link(region, 1, 4, 9, direction=1, deliveries=8, octets=800, ended=9)
    free_link(region, 1, 4)
    assert traffic_of(region, 1, 4, 9) == (8, 800)
    claim_link(region, 1, 4, 10, direction=1)
    assert traffic_of(region, 1, 4, 9) is None
    assert traffic_of(region, 1, 4, 10) is None


@pytest.mark.parametrize(("worker", "slot"), [(-1, 0), (WORKERS, 0), (0, LINKS)])
def test_traffic_of_slot_out_of_range_is_refused(region: Region, worker: int, slot: int) -> None:
    with pytest.raises(IndexError):
        traffic_of(region, worker, slot, 1)
