"""All links: registration, their end, and their addresses."""

from __future__ import annotations

import pytest

from sluice.supervisor.connections.connections import RegisteredLink
from tests.unit.supervisor.core_with_replicas import CoreWithReplicas


@pytest.fixture
def router() -> CoreWithReplicas:
    return CoreWithReplicas(1)


def test_links_are_listed_in_order_of_attach(router: CoreWithReplicas) -> None:
    conn = router.connect(0)
    numbers = [router.attach(0, conn, direction, "a") for direction in ("out", "in", "out")]
    links = router.core.links
    assert [link.number for link in links.by_identity.values()] == numbers
    assert len(links) == 3
    assert list(links.by_identity) == sorted(links.by_identity)


def test_link_is_announced_before_it_has_an_address(router: CoreWithReplicas) -> None:
    announced: list[tuple[RegisteredLink, bool]] = []
    router.core.links.on_link_added(lambda link: announced.append((link, link.record is None)))
    router.attach(0, router.connect(0), "out", "a")
    ((link, without_address),) = announced
    assert without_address
    assert link.record is router.core.table.records["M0a"]


@pytest.mark.parametrize("direction", ["in", "out"])
def test_last_link_takes_its_address_along(router: CoreWithReplicas, direction: str) -> None:
    conn = router.connect(0)
    first, second = (router.attach(0, conn, direction, "a") for _ in range(2))
    router.settle()
    router.detach(0, conn, first)
    router.settle()
    assert "M0a" in router.core.table.records
    router.detach(0, conn, second)
    router.settle()
    assert "M0a" not in router.core.table.records
    assert len(router.core.links) == 0


def test_anonymous_link_ends_without_an_address(router: CoreWithReplicas) -> None:
    conn = router.connect(0)
    number = router.attach(0, conn, "in", None)
    (link,) = router.core.links.by_identity.values()
    router.detach(0, conn, number)
    assert link.closed
    assert len(router.core.links) == 0


def test_links_of_closed_connection_end(router: CoreWithReplicas) -> None:
    conn, other = router.connect(0), router.connect(0)
    router.attach(0, conn, "out", "a")
    router.attach(0, other, "out", "a")
    router.close(0, conn)
    assert [link.connection.number for link in router.core.links.by_identity.values()] == [other]


def test_withdrawn_consumer_leaves_its_address_and_keeps_its_link(router: CoreWithReplicas) -> None:
    conn = router.connect(0)
    number = router.attach(0, conn, "out", "a")
    router.settle()
    links = router.core.links
    (link,) = links.by_identity.values()
    links.withdraw_consumer(link)
    links.withdraw_consumer(link)
    router.settle()
    record = router.core.table.records["M0a"]
    assert not record.consumers
    assert len(links) == 1
    router.detach(0, conn, number)
    router.settle()
    assert "M0a" not in router.core.table.records
