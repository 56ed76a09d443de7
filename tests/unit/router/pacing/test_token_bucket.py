"""Token bucket of working time."""

import pytest

from sluice.router.pacing.token_bucket import TokenBucket

CAPACITY = 500
MOST_DEFICIT = 1000
START = 10_000
DIVISOR = 16


@pytest.fixture
def bucket() -> TokenBucket:
    made = TokenBucket(CAPACITY, MOST_DEFICIT)
    made.fill(START)
    return made


def test_new_bucket_is_full() -> None:
    assert TokenBucket(CAPACITY, MOST_DEFICIT).tokens == CAPACITY


def test_refill_adds_part_of_time(bucket: TokenBucket) -> None:
    bucket.spend(CAPACITY)
    bucket.refill(START + 10 * DIVISOR, DIVISOR, 0)
    assert bucket.tokens == 10
    bucket.refill(START + 30 * DIVISOR, DIVISOR, 5)
    assert bucket.tokens == 25


def test_refill_stops_at_capacity(bucket: TokenBucket) -> None:
    bucket.spend(1)
    bucket.refill(START + 1_000_000, 1, 0)
    assert bucket.tokens == CAPACITY


def test_refill_offsets_work_before_capacity(bucket: TokenBucket) -> None:
    bucket.refill(START + 2 * CAPACITY, 1, CAPACITY)
    assert bucket.tokens == CAPACITY


def test_refill_at_earlier_time_adds_nothing(bucket: TokenBucket) -> None:
    bucket.spend(CAPACITY)
    bucket.refill(START - 1000, 1, 0)
    assert bucket.tokens == 0
    bucket.refill(START + 7, 1, 0)
    assert bucket.tokens == 7


def test_deficit_is_bounded(bucket: TokenBucket) -> None:
    bucket.spend(60_000)
    assert bucket.tokens == -MOST_DEFICIT
    assert bucket.delay(DIVISOR) == DIVISOR * MOST_DEFICIT


@pytest.mark.parametrize("left", [CAPACITY, 1, 0])
def test_bucket_without_deficit_has_no_delay(bucket: TokenBucket, left: int) -> None:
    bucket.spend(CAPACITY - left)
    assert bucket.delay(DIVISOR) == 0


def test_refill_after_delay_repays_deficit(bucket: TokenBucket) -> None:
    bucket.spend(CAPACITY + 123)
    bucket.refill(START + bucket.delay(DIVISOR), DIVISOR, 0)
    assert bucket.tokens == 0


def test_long_use_gets_exact_share(bucket: TokenBucket) -> None:
    now, worked = START, 0
    while now < START + 1_000_000:
        bucket.refill(now, DIVISOR, 0)
        if bucket.tokens > 0:
            bucket.spend(100)
            worked += 100
        now += 10 * DIVISOR
    assert worked == pytest.approx(1_000_000 / DIVISOR + CAPACITY, abs=200)
