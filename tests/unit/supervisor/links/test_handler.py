"""Messages of workers about links that exist: detaches, and late messages about connections that are gone."""

from __future__ import annotations

import pytest

from sluice.router.control import messages
from sluice.supervisor.links.initiated import InitiatedLinkOptions
from tests.unit.supervisor.core_with_replicas import CoreWithReplicas

GONE = 999  # number of a connection that has ended


class NotifiedLinkOwner:
    """Owner of a router-initiated link that records how it ended."""

    def __init__(self) -> None:
        self.ends: list[str | None] = []

    def begun(self, link: object) -> None:
        """See InitiatedLinkOwner."""

    def answered(self, link: object, active: bool, address: str | None) -> None:
        """See InitiatedLinkOwner."""

    def ended(self, error: str | None) -> None:
        self.ends.append(error)


@pytest.fixture
def router() -> CoreWithReplicas:
    return CoreWithReplicas(2)


def detach(router: CoreWithReplicas, conn: int, link: int, **more: object) -> None:
    router.core.receive(router.replicas[0].worker, messages.Detach(conn=conn, link=link, **more))  # type: ignore[arg-type]
    router.flush()


def confirmed(router: CoreWithReplicas) -> list[int]:
    """Return the links whose detach has been confirmed."""
    router.flush()
    return [answer.link for answer in router.replicas[0].answers if isinstance(answer, messages.Detached)]


def test_detach_is_confirmed_when_no_worker_has_the_consumer(router: CoreWithReplicas) -> None:
    conn = router.connect(0)
    link = router.attach(0, conn, "out", "a")
    router.settle()
    detach(router, conn, link, confirm=True)
    router.take(0, everything=True)
    assert confirmed(router) == []
    router.take(1, everything=True)
    assert confirmed(router) == [link]


def test_detach_without_confirmation_gets_no_answer(router: CoreWithReplicas) -> None:
    conn = router.connect(0)
    link = router.attach(0, conn, "out", "a")
    router.settle()
    detach(router, conn, link)
    router.settle()
    assert confirmed(router) == []


def test_detach_of_unknown_link_is_confirmed(router: CoreWithReplicas) -> None:
    """Its attach was refused or withdrawn, and its worker waits."""
    detach(router, router.connect(0), 55, confirm=True)
    detach(router, GONE, 56, confirm=True)
    router.settle()
    assert confirmed(router) == [55, 56]


def test_connection_keeps_the_time_of_the_last_delivery_of_its_links(router: CoreWithReplicas) -> None:
    conn = router.connect(0)
    links = [router.attach(0, conn, "in", "a") for _ in range(3)]
    record = router.replicas[0].worker.connections[conn]
    for link, last in zip(links, (7, 9, 3), strict=True):
        detach(router, conn, link, last=last)
    assert record.last_delivery == 9


@pytest.mark.parametrize("error", [None, ("amqp:resource-deleted", "moved")])
def test_owner_of_initiated_link_is_notified_of_the_peers_detach(
    router: CoreWithReplicas, error: tuple[str, str] | None
) -> None:
    conn = router.connect(0)
    worker = router.replicas[0].worker
    owner = NotifiedLinkOwner()
    links = router.core.initiated_links
    connection = worker.connections[conn]
    reference = links.attach(connection, True, InitiatedLinkOptions(address="a"), owner)
    router.flush()
    begun = messages.Initiated(conn=conn, ref=reference, dir="out", name="n", link=5, slot=5, gen=5, text="")
    router.core.receive(worker, begun)
    assert connection.links[5].identity == reference
    detach(router, conn, 5, error=error)
    assert owner.ends == [None if error is None else "moved"]
    assert 5 not in connection.links


def test_initiated_link_without_room_ends_with_its_reason(router: CoreWithReplicas) -> None:
    conn = router.connect(0)
    worker = router.replicas[0].worker
    owner = NotifiedLinkOwner()
    options = InitiatedLinkOptions(address="a")
    connection = worker.connections[conn]
    reference = router.core.initiated_links.attach(connection, True, options, owner)
    router.core.receive(worker, messages.Unlinked(conn=conn, ref=reference, error="no channel is left"))
    assert owner.ends == ["no channel is left"]


@pytest.mark.parametrize(
    "message",
    [
        messages.Initiated(conn=GONE, ref=1, dir="out", name="n", link=5, slot=5, gen=5, text=""),
        messages.Linked(GONE, 5, True, None),
        messages.Unlinked(conn=GONE, ref=1, error="x"),
        messages.HeartbeatMissed(GONE),
    ],
)
def test_late_message_about_closed_connection_is_ignored(router: CoreWithReplicas, message: messages.Event) -> None:
    router.core.receive(router.replicas[0].worker, message)
    router.flush()
    assert len(router.core.links) == 0
    assert router.replicas[0].answers == []
