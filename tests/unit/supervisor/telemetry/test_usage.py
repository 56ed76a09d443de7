"""Metrics by user and by vhost: what counts for whom, with hostile names and more users than series."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.router.control.messages import Opened
from sluice.router.testing.interworker import claim_link, free_link
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.telemetry import linked
from sluice.supervisor.telemetry.page import MAX_LABEL
from sluice.supervisor.telemetry.usage import OTHER, UsageBook
from sluice.supervisor.telemetry.usage_meter import UsageMeter
from tests.unit.supervisor.telemetry.metrics_router import GENERATION, MetricsRouter, Samples, value

HOSTILE = ['"', "\\", "\n", "a\0b", "{}", "é" * 300, "x" * 10_000, "\u2028", "anonymous ", "other"]


def opened(router: MetricsRouter, user: str | None, worker: int = 0) -> RegisteredConnection:
    """Open a connection of a client."""
    client = router.client(worker)
    message = Opened(
        conn=client.number, container="c", hostname=None, user=user, mechanism="PLAIN", properties={}, tls=None
    )
    router.core.receive(router.core.workers[worker], message)
    assert client.opened
    return client


def traffic(page: Samples, user: str) -> tuple[float, ...]:
    """Return deliveries in and out, and octets in and out."""
    return tuple(
        value(page, f"sluice_user_{counted}_total", user=user, direction=direction)
        for counted in ("deliveries", "octets")
        for direction in ("in", "out")
    )


def test_links_count_for_their_user_in_all_workers(router: MetricsRouter) -> None:
    for worker in (0, 1):
        client = opened(router, "alice", worker)
        router.link(client, "in", "a", worker, deliveries=3, octets=300)
        router.link(client, "out", "a", worker, deliveries=2, octets=20)
    router.link(opened(router, None), "in", "a", deliveries=5, octets=5)
    page = router.page()
    assert traffic(page, "alice") == (6, 4, 600, 40)
    assert traffic(page, "anonymous") == (5, 0, 5, 0)
    assert traffic(page, OTHER) == (0, 0, 0, 0)
    assert value(page, "sluice_user_connections", user="alice") == 2
    assert value(page, "sluice_user_links", user="alice", direction="out") == 2


def test_counters_of_ended_links_stay(router: MetricsRouter) -> None:
    client = opened(router, "alice")
    link = router.link(client, "in", "a", deliveries=3, octets=300)
    number = GENERATION + link
    claim_link(router.region, 0, link, number, direction=1, deliveries=4, octets=400, ended=number)
    free_link(router.region, 0, link)
    assert traffic(router.page(), "alice") == (4, 0, 400, 0), "the slot has the final counters"
    router.detach(client, link)
    router.link(client, "in", "a", deliveries=1, octets=1)
    page = router.page()
    assert traffic(page, "alice") == (5, 0, 401, 0)
    assert value(page, "sluice_user_links", user="alice", direction="in") == 1


def counted(meter: UsageMeter) -> dict[str, list[int]]:
    """Return the traffic of all vhosts after a request."""

    async def ask() -> None:
        wanted = meter.refresh()
        assert wanted is not None
        assert meter.refresh() is wanted, "requests at the same time share a collection"
        await wanted
        assert meter.refresh() is None, "the sums are recent"

    asyncio.run(ask())
    return {name: list(row.traffic) for name, row in meter.vhosts()}


def test_meter_counts_vhosts_without_page(router: MetricsRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router.usage, "_vhost_of", lambda number: f"v{number % 2}")
    meter = UsageMeter(router.core, router.region, router.usage)
    first, second = opened(router, "alice"), opened(router, "bob", worker=1)
    router.link(first, "in", "a", deliveries=3, octets=300)
    router.link(second, "out", "a", worker=1, deliveries=2, octets=20)
    found = counted(meter)
    assert found[f"v{first.number % 2}"] == [3, 300, 0, 0]
    assert found[f"v{second.number % 2}"] == [0, 0, 2, 20]
    assert router.page() is not None
    assert {name: list(row.traffic) for name, row in meter.vhosts()} == found


def test_meter_reads_many_links_in_slices(router: MetricsRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router.usage, "_vhost_of", lambda _: "v")
    monkeypatch.setattr(linked, "SLICE", 3)
    meter = UsageMeter(router.core, router.region, router.usage)
    client = opened(router, "alice")
    for _ in range(10):
        router.link(client, "in", "a", deliveries=1, octets=10)
    assert counted(meter)["v"] == [10, 100, 0, 0]


def test_counters_do_not_fall_if_a_slot_is_reused_too_early(router: MetricsRouter) -> None:
    client = opened(router, "alice")
    link = router.link(client, "in", "a", deliveries=3, octets=300)
    assert traffic(router.page(), "alice") == (3, 0, 300, 0)
    claim_link(router.region, 0, link, GENERATION * 2, direction=1, deliveries=1000)
    router.detach(client, link)
    assert traffic(router.page(), "alice") == (3, 0, 300, 0)


def test_refusals_count_for_their_user(router: MetricsRouter) -> None:
    opened(router, "alice")
    router.usage.refused("alice", 2)
    router.usage.refused("bob", 1)
    router.usage.refused(None, 3)
    page = router.page()
    found = {name: value(page, "sluice_user_refused_total", user=name) for name in ("alice", "bob", "anonymous", OTHER)}
    assert found == {"alice": 2, "bob": 1, "anonymous": 3, OTHER: 0}


@pytest.mark.parametrize("user", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_keep_the_page_readable(router: MetricsRouter, user: str) -> None:
    router.link(opened(router, "bystander"), "in", "a", deliveries=1, octets=1)
    router.link(opened(router, user), "in", "a", deliveries=2, octets=2)
    page = router.page()
    assert traffic(page, "bystander") == (1, 0, 1, 0)
    users = [labels for name, labels in page if name == "sluice_user_connections"]
    shown = {dict(labels)["user"] for labels in users}
    assert len(shown) == len(users) == (2 if user == OTHER else 3), "each user has a series, and only one"
    assert all(len(name) <= MAX_LABEL for name in shown)


def test_users_beyond_the_limit_are_summed(router: MetricsRouter) -> None:
    router.usage.users.most = 2
    first = opened(router, "u0")
    for number in range(1, 50):
        router.link(opened(router, f"u{number}"), "in", "a", deliveries=1, octets=10)
    page = router.page()
    assert value(page, "sluice_user_connections", user=OTHER) == 48
    assert traffic(page, OTHER) == (48, 0, 480, 0)
    assert sum(name == "sluice_user_connections" for name, _ in page) == 3
    router.usage.connection_closed(first)
    opened(router, "late")
    page = router.page()
    assert value(page, "sluice_user_connections", user="late") == 1, "it has the place of a user who left"


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=60), st.integers(0, 4))
def test_book_counts_each_connection_once(steps: list[tuple[str, bool]], most: int) -> None:
    book = UsageBook(most)
    present: dict[str, list[object]] = {}
    for name, enters in steps:
        rows = present.setdefault(name, [])
        if enters:
            rows.append(book.enter(name))
        elif rows:
            book.leave(name, rows.pop())  # type: ignore[arg-type]
        shown = dict(book.rows())
        assert len(shown) <= most + 1
        assert sum(row.connections for row in shown.values()) == sum(map(len, present.values()))
        assert all(row in shown.values() for rows in present.values() for row in rows)
