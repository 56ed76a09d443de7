"""Links for messages between an edge router itself and its interior router itself."""

from __future__ import annotations

import pytest

from sluice.router.control import messages
from sluice.supervisor.edge.router_links import RouterLinks, RouterLinkState
from sluice.supervisor.links.initiated import InitiatedLinkOptions
from tests.unit.supervisor.edge.edge_router import EdgeRouter, connector

SERVICE = "test/service"


class ServiceLink:
    """Link from an edge router to a service of its interior router."""

    def __init__(self) -> None:
        self.edge = EdgeRouter(connector("up"))
        self.edge.unanswered.add(SERVICE)
        self.links = RouterLinks(self.edge.core.initiated_links, self.edge.core.in_process)
        self.connection = self.edge.interior("A")
        self.answered: list[RouterLinkState] = []
        options = InitiatedLinkOptions(address=SERVICE, use="messages")
        self.state = self.links.attach(self.connection, True, options, self.answered.append)

    def answer(self, active: bool) -> None:
        """Answer the attach on behalf of the interior router."""
        self.edge.settle()
        assert self.state.link is not None
        answer = messages.Linked(self.connection.number, self.state.link.number, active, None)
        self.edge.core.receive(self.edge.worker, answer)

    def send(self) -> list[bytes]:
        """Return the messages that reach the worker."""
        before = len(self.edge.worker.sends)
        sent = self.links.send(self.connection, self.state, b"m")
        found = list(self.edge.worker.sends)[before:]
        assert sent == bool(found)
        return [octets for _, octets in found]


@pytest.fixture
def service() -> ServiceLink:
    return ServiceLink()


def test_message_is_sent_only_while_the_link_is_up(service: ServiceLink) -> None:
    assert service.send() == []
    service.edge.settle()
    assert service.send() == []
    service.answer(True)
    assert service.send() == [b"m"]
    service.state.ended(None)
    assert service.send() == []


def test_message_names_its_link(service: ServiceLink) -> None:
    service.answer(True)
    service.links.send(service.connection, service.state, b"m")
    order, _ = service.edge.worker.sends[-1]
    assert isinstance(order, messages.Control)
    assert service.state.link is not None
    assert (order.conn, order.link) == (service.connection.number, service.state.link.number)


def test_owner_is_notified_of_acceptance_only(service: ServiceLink) -> None:
    service.answer(False)
    assert service.answered == []
    assert not service.state.up
    service.answer(True)
    assert service.answered == [service.state]


def test_link_of_lost_worker_takes_no_message(service: ServiceLink) -> None:
    service.answer(True)
    service.edge.core.lost(service.edge.worker, lambda: None)
    assert not service.links.send(service.connection, service.state, b"m")
