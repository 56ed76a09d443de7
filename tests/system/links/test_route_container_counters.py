"""Separate counters of deliveries from and to route containers (management.md 7.1)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.peer import message
from tests.peer.management import Management
from tests.system.fixtures import Connect, Fresh
from tests.system.router import listener

SECTIONS = [listener("brokers", role="route-container")]
COLUMNS = ("deliveriesIngressRouteContainer", "deliveriesEgressRouteContainer")


def route_container_counts(management: Management, address: str) -> tuple[list[Any], list[Any]]:
    """Return the ingress and egress counts of route containers, for the router and for an address."""
    router = management.one("router")
    record = management.one("router.address", key=f"M0{address}")
    return [router[column] for column in COLUMNS], [record[column] for column in COLUMNS]


@pytest.mark.parametrize(
    ("producer", "consumer", "distribution", "expected"),
    [
        ("brokers", "", "balanced", [5, 0]),
        ("", "brokers", "balanced", [0, 5]),
        ("brokers", "brokers", "closest", [5, 5]),
        ("", "brokers", "multicast", [0, 0]),
        ("", "", "balanced", [0, 0]),
    ],
)
@pytest.mark.parametrize("anonymous", [False, True])
def test_route_container_deliveries_are_counted_separately(
    connect: Connect,
    management: Management,
    fresh: Fresh,
    producer: str,
    consumer: str,
    distribution: str,
    expected: list[int],
    anonymous: bool,
) -> None:
    address = fresh(distribution)
    receiver = connect(consumer).receiver(address, credit=10)
    sender = connect(producer).sender(None if anonymous else address)
    router, record = route_container_counts(management, address)
    assert record == [0, 0]
    for number in range(5):
        sender.wait_credit()
        sender.send(message.message(number, to=address), settled=True)
        receiver.next()
    after, record = route_container_counts(management, address)
    assert record == expected
    assert [new - old for new, old in zip(after, router, strict=True)] == expected
