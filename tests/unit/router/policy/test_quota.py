"""Quotas shared by connections of several workers: rates, their shares, and octets held."""

import pytest

from sluice.router.ring.region import MAX_QUOTAS, Region
from sluice.router.testing.quota import QuotaWorker

SECOND = 1_000_000_000
START = 100 * SECOND


@pytest.fixture
def region():
    made = Region.create(3, 4, 4, 4096)
    yield made
    made.close()


def workers(region, *scopes, count=1):
    return [QuotaWorker(region, index, scopes, START) for index in range(count)]


def test_rate_leaves_allowance_of_a_second(region):
    (worker,) = workers(region, (0, 100, 0, 0))
    assert worker.deliveries() == 100
    for _ in range(99):
        worker.charge(10)
    assert worker.deliveries() == 1
    worker.charge(10)
    assert worker.deliveries() == 0
    assert worker.wanted == START + SECOND // 100
    worker.pass_time(SECOND // 100)
    assert worker.deliveries() == 1
    worker.pass_time(10 * SECOND)
    assert worker.deliveries() == 100, "what nobody used is over"


def test_messages_beyond_the_rate_delay_the_next_grant(region):
    (worker,) = workers(region, (0, 100, 0, 0))
    for _ in range(300):
        worker.charge(10)
    worker.pass_time(2 * SECOND)
    assert worker.deliveries() == 0
    worker.pass_time(SECOND // 100)
    assert worker.deliveries() == 1


def test_rate_is_shared_by_all_workers(region):
    first, second = workers(region, (0, 100, 0, 0), count=2)
    for _ in range(60):
        first.charge(1)
    assert second.deliveries() == first.deliveries() == 40
    for _ in range(60):
        second.charge(1)
    assert first.deliveries() == 0


def test_links_get_shares_of_at_least_one_delivery(region):
    (worker,) = workers(region, (0, 100, 0, 0))
    region.set_quota_links(0, 8)
    assert worker.deliveries() == 12
    region.set_quota_links(0, 1000)
    assert worker.deliveries() == 1
    for _ in range(101):
        worker.charge(1)
    assert worker.deliveries() == 0


def test_octet_rate_uses_mean_size_of_link(region):
    (worker,) = workers(region, (0, 0, 100_000, 0))
    assert worker.deliveries(mean=1000) == 100
    assert worker.deliveries(mean=1_000_000) == 1
    assert worker.frames(16384) == 6
    worker.charge(150_000)
    assert worker.deliveries() == 0
    assert worker.frames(16384) == 0
    worker.pass_time(SECOND // 2 + SECOND // 100)
    assert worker.frames(16384) == 1


def test_group_and_vhost_quotas_both_apply(region):
    (worker,) = workers(region, (0, 100, 0, 0), (1, 10, 0, 0))
    assert worker.deliveries() == 10
    for _ in range(10):
        worker.charge(1)
    assert worker.deliveries() == 0
    (other,) = workers(region, (0, 100, 0, 0))
    assert other.deliveries() == 90
    assert region.quota_counters(0)["messages"] == region.quota_counters(1)["messages"] == 10


def test_message_is_counted_at_its_first_transfer(region):
    (worker,) = workers(region, (0, 100, 0, 0))
    worker.charge(1000)
    for _ in range(9):
        worker.charge(1000, first=False)
    expected = {"messages": 1, "octets": 10_000, "held_back": 0, "buffered": 0}
    assert region.quota_counters(0).items() >= expected.items()


@pytest.mark.parametrize("rate", [1, 3, 10**9, 10**12])
def test_extreme_rates_allow_deliveries(region, rate):
    (worker,) = workers(region, (0, rate, rate, 0))
    assert worker.deliveries() >= 1
    worker.charge(1)
    worker.pass_time(SECOND)
    assert worker.deliveries() >= 1


def test_waiting_links_are_woken_in_order_within_rate(region):
    (worker,) = workers(region, (0, 1000, 0, 0))
    for _ in range(1000):
        worker.charge(1)
    assert worker.deliveries() == 0
    links = [worker.wait() for _ in range(3)]
    assert worker.due > START // 1_000_000
    worker.run_timers()
    assert [link.woken for link in links] == [1, 1, 1]
    assert region.quota_counters(0)["held_back"] == 3


def test_octets_held_by_other_workers_are_counted(region):
    first, second = workers(region, (0, 0, 0, 10_000), count=2)
    assert second.deliveries() > 0
    first.hold(9_999)
    second.pass_time(SECOND)
    assert second.deliveries() > 0
    first.hold(10_000)
    second.pass_time(SECOND)
    assert second.deliveries() == 0
    assert region.quota_counters(0)["buffered"] == 10_000
    first.hold(0)
    second.pass_time(SECOND)
    assert second.deliveries() > 0


def test_lost_worker_holds_no_octets(region):
    first, second = workers(region, (0, 0, 0, 10_000), count=2)
    first.hold(10_000)
    region.reset_quota_worker(0, 0)
    second.pass_time(SECOND)
    assert second.deliveries() > 0


def test_quota_slot_out_of_range_is_refused(region):
    for call in (region.reset_quota, region.quota_counters):
        with pytest.raises(IndexError):
            call(MAX_QUOTAS)
        with pytest.raises(IndexError):
            call(-1)
    with pytest.raises(ValueError, match="more than 2"):
        workers(region, (0, 1, 0, 0), (1, 1, 0, 0), (2, 1, 0, 0))
