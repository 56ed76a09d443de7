"""Drain of a router whose sockets another process has taken: routers first, and no client is left behind."""

from types import SimpleNamespace
from typing import Any

import pytest

from sluice.router.control.messages import Denied, Opened
from sluice.supervisor.drain.drain import CLOSE_SECONDS, NETWORK_SECONDS, HandOver
from sluice.supervisor.drain.leaving import QUIET_SECONDS, WITHDRAWAL_SECONDS
from tests.unit.supervisor.drain.draining_router import DrainingRouter

TEXT = """
router {
    id: A
    mode: interior
    workerThreads: 1
}
listener {
    port: 1
}
listener {
    port: 2
    role: edge
}
"""


class HandedOverRouter(DrainingRouter):
    """Interior router that is taken over."""

    def __init__(self) -> None:
        super().__init__(text=TEXT)
        self.yields = 0
        self.http = SimpleNamespace(release=lambda: self.calls.append("http"), connections=0)
        services: Any = self.drain._services
        services.http = self.http
        services.acceptor.drain = lambda taken: self.calls.append(f"acceptor {len(taken)}")

    def hand_over(self) -> None:
        self.drain.begin(60, 100, "test", HandOver((), self._yielded))

    def _yielded(self) -> None:
        self.yields += 1

    def open_late(self, number: int) -> None:
        """Let an accepted connection send its open."""
        opened = Opened(conn=number, container="c", hostname=None, user=None, properties={}, tls=None)
        self.core.receive(self.replicas[0].worker, opened)
        self.flush()

    def accept(self, listener: int = 0) -> int:
        """Return the number of an accepted connection that has not sent its open."""
        worker = self.replicas[0].worker
        config = self.configuration.listeners[listener]
        return self.core.connections.adopt(worker, config, "host:1", "peer:2").number


@pytest.fixture
def router() -> HandedOverRouter:
    return HandedOverRouter()


def test_hand_over_without_routers_yields_at_once(router: HandedOverRouter) -> None:
    client = router.open()
    router.hand_over()
    router.pass_time(0.05)
    assert (router.calls, router.yields, router.closed) == (["acceptor 0", "http", "connectors"], 1, [])
    router.pass_time(QUIET_SECONDS + 0.2)
    assert router.closed == [client]


def test_hand_over_closes_routers_before_it_yields(router: HandedOverRouter) -> None:
    client, edge = router.open(), router.open(listener=1)
    router.hand_over()
    router.pass_time(WITHDRAWAL_SECONDS + QUIET_SECONDS + 0.2)
    assert (router.closed, router.yields) == ([edge], 0)
    router.close(0, edge)
    router.pass_time(0.1)
    assert router.yields == 1
    router.pass_time(QUIET_SECONDS + 0.2)
    assert router.closed == [edge, client]
    router.close(0, client)
    router.pass_time(0.3)
    assert (router.ends, router.yields) == (1, 1)


def test_router_that_does_not_settle_is_closed_after_its_time(router: HandedOverRouter) -> None:
    edge = router.open(listener=1)
    link = router.attach(0, edge, "out", "a")
    router.settle()
    router.link_counters(0, link)["held"] = 1
    router.hand_over()
    router.pass_time(NETWORK_SECONDS - 0.1)
    assert router.closed == []
    router.pass_time(0.2)
    assert (router.closed, router.yields) == ([edge], 0)
    assert "Take-over: closing 1 connection of routers with 1 deliveries not settled" in router.lines()
    router.pass_time(CLOSE_SECONDS)
    assert router.yields == 1


def test_client_that_opens_after_the_hand_over_is_served(router: HandedOverRouter) -> None:
    late = router.accept()
    router.hand_over()
    router.pass_time(5)
    assert (router.yields, router.ends) == (1, 0)
    router.open_late(late)
    assert late in router.core.connections.opened
    router.pass_time(QUIET_SECONDS + 0.3)
    assert router.closed == [late]
    router.close(0, late)
    router.pass_time(0.3)
    assert router.ends == 1


def test_page_that_is_answered_after_the_hand_over_delays_the_end(router: HandedOverRouter) -> None:
    router.http.connections = 1
    router.hand_over()
    router.pass_time(5)
    assert router.ends == 0
    router.http.connections = 0
    router.pass_time(0.3)
    assert router.ends == 1


def test_router_that_opens_after_the_hand_over_is_denied(router: HandedOverRouter) -> None:
    late = router.accept(listener=1)
    router.hand_over()
    router.open_late(late)
    assert router.sent(Denied) == [late]
