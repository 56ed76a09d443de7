"""Addresses with series of their own, and the remaining ones: no delivery is counted twice or lost, and no counter
falls."""

from __future__ import annotations

import itertools
import random

import pytest

from sluice.supervisor.telemetry import collect
from tests.unit.supervisor.telemetry.metrics_router import MetricsRouter, value

NAME = "sluice_address_deliveries_total"
OTHER = {"address": "other", "phase": "", "direction": "ingress"}


@pytest.fixture
def few_series(monkeypatch: pytest.MonkeyPatch) -> int:
    """Number of addresses that get a series of their own."""
    monkeypatch.setattr(collect, "SHOWN_ADDRESSES", 3)
    return 3


def test_busiest_addresses_have_series_and_rest_is_summed(router: MetricsRouter, few_series: int) -> None:
    client = router.client()
    for number in range(6):
        router.link(client, "out", f"a{number}")
        router.count(f"a{number}", worker=number % 2, ingress=10 * number, egress=number)
    page = router.page()
    shown = {dict(labels)["address"] for name, labels in page if name == "sluice_address_consumers"}
    assert shown == {"a5", "a4", "a3", "other"}
    assert value(page, NAME, address="a5", phase="0", direction="ingress") == 50
    assert value(page, NAME, **OTHER) == 30
    assert value(page, "sluice_address_consumers", address="other", phase="") == 3
    assert value(page, "sluice_addresses_shown") == few_series


def test_temporary_addresses_have_no_series(router: MetricsRouter) -> None:
    """Each client creates new temporary addresses; their series would grow without bound."""
    client = router.client()
    router.link(client, "out", None, dynamic=0)
    page = router.page()
    shown = {dict(labels)["address"] for name, labels in page if name == "sluice_address_consumers"}
    assert shown == {"$management", "other"}


def test_late_series_excludes_earlier_deliveries(router: MetricsRouter, few_series: int) -> None:
    """Earlier deliveries stay in the remainder. Later ones are in the new series alone."""
    client = router.client()
    for name, traffic in (("a", 100), ("b", 90), ("c", 80), ("late", 5)):
        router.link(client, "out", name)
        router.count(name, ingress=traffic)
    assert value(router.page(), NAME, **OTHER) == 5
    router.count("late", ingress=1000)
    page = router.page()
    assert value(page, NAME, address="late", phase="0", direction="ingress") == 1000
    first = value(page, NAME, **OTHER)
    assert first >= 5
    router.count("late", ingress=1500)
    router.count("c", ingress=95)  # lost its series
    page = router.page()
    assert value(page, NAME, **OTHER) == first + 15
    assert value(page, NAME, address="late", phase="0", direction="ingress") == 1500


def test_short_lived_address_counts_in_remainder(router: MetricsRouter) -> None:
    client = router.client()
    router.page()
    link = router.link(client, "out", "short")
    router.count("short", ingress=7)
    router.detach(client, link)
    assert value(router.page(), NAME, **OTHER) == 7


def test_last_deliveries_of_removed_address_count_in_remainder(router: MetricsRouter) -> None:
    client = router.client()
    link = router.link(client, "out", "a")
    router.count("a", ingress=5)
    assert value(router.page(), NAME, **OTHER) == 0
    router.count("a", ingress=8)
    router.detach(client, link)
    assert value(router.page(), NAME, **OTHER) == 3


def test_deliveries_are_counted_in_one_series(router: MetricsRouter, few_series: int) -> None:
    """Clients, addresses and traffic come and go at random. The growth of all series together equals the number of
    deliveries.

    The first value of a new series is growth, unless its address was part of the remainder before.
    """
    chance = random.Random(7)
    client = router.client()
    numbers = itertools.count()
    links: dict[str, int] = {}  # existing addresses
    counted: dict[str, int] = {}
    total = own = other = 0.0
    shown: dict[str, float] = {"$management": 0}
    hidden: set[str] = set()
    for _ in range(400):
        happens = chance.random()
        if happens < 0.2:
            name = f"a{next(numbers)}"
            links[name], counted[name] = router.link(client, "out", name), 0
        elif links and happens < 0.3:
            router.detach(client, links.pop(chance.choice(list(links))))
        elif links and happens < 0.8:
            name, more = chance.choice(list(links)), chance.randrange(50)
            counted[name] += more
            total += more
            router.count(name, ingress=counted[name])
        else:
            page = {
                dict(labels)["address"]: number
                for (name, labels), number in router.page().items()
                if name == NAME and ("direction", "ingress") in labels
            }
            assert page["other"] >= other
            other = page.pop("other")
            for name, number in page.items():
                before = shown.get(name, number if name in hidden else 0)
                assert number >= before
                own += number - before
            assert other + own == total
            shown, hidden = page, links.keys() - page.keys()
    assert total > 1000
    assert other > 0
