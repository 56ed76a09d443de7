"""Delays between attempts to connect."""

from sluice.router.client import Backoff


def test_backoff_grows_up_to_its_bound():
    delays = [Backoff(first=1, factor=2, most=5, spread=0, attempts=5).delay(n) for n in range(6)]
    assert delays == [1, 2, 4, 5, 5, None]
    assert 8 <= (Backoff(first=10, most=10, spread=0.2).delay(1_000_000) or 0) <= 10
