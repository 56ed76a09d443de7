"""Check of established connections when credentials change: in batches, with one error net for each connection."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sluice.router.tls.context import TlsError
from sluice.workers.revocations import CONNECTIONS_PER_CHECK, Revocations


class CheckedClient:
    """Established connection over TLS whose certificate may be revoked."""

    def __init__(self, number: int, name: str | None = "p") -> None:
        self.number = number
        self.profile = SimpleNamespace(tls=name)
        self.initiate = None
        self.transport: Any = SimpleNamespace(revoked=self._is_revoked)
        self.connection = SimpleNamespace(ended=False, end_by=lambda fault: self.faults.append(fault))
        self.revoked = self.closed = False
        self.checks = 0
        self.faults: list[Exception] = []
        self.fault: Exception | None = None

    def _is_revoked(self, context: object) -> bool:
        self.checks += 1
        if self.fault is not None:
            raise self.fault
        return self.revoked

    def close_revoked(self) -> None:
        self.closed = True


class RevokingWorker:
    """Worker with connections, whose timers the test fires. It has the credentials `p`, which close connections."""

    def __init__(self, clients: int) -> None:
        self.clients = {number: CheckedClient(number) for number in range(clients)}
        self.loop = SimpleNamespace(scheduler=SimpleNamespace(now=1000), call_at=self._call_at)
        self.credentials = SimpleNamespace(closes_revoked=lambda name: name == "p", of_endpoint=self._context)
        self.broken = False  # the credentials are invalid
        self._timers: list[Callable[[], None]] = []
        given: Any = self
        self.revocations = Revocations(given)

    def _call_at(self, milliseconds: int, function: Callable[[], None]) -> None:
        assert milliseconds > self.loop.scheduler.now
        self._timers.append(function)

    def _context(self, profile: object, *, server: bool) -> object:
        if self.broken:
            raise TlsError("certificates", "no lists")
        return object()

    @property
    def pending(self) -> bool:
        """True if a check is pending."""
        return bool(self._timers)

    def fire(self) -> int:
        """Fire the pending timer, if there is one; return the number of connections checked."""
        before = sum(client.checks for client in self.clients.values())
        timers, self._timers = self._timers, []
        assert len(timers) <= 1
        for function in timers:
            function()
        return sum(client.checks for client in self.clients.values()) - before


def test_revoked_connections_are_closed() -> None:
    worker = RevokingWorker(3)
    worker.clients[1].revoked = True
    worker.clients[2].profile.tls = "other"
    worker.clients[2].revoked = True
    worker.revocations.changed("p")
    assert worker.fire() == 2
    assert [client.closed for client in worker.clients.values()] == [False, True, False]
    assert worker.fire() == 0


def test_connections_beyond_batch_are_checked_later() -> None:
    worker = RevokingWorker(2 * CONNECTIONS_PER_CHECK + 1)
    worker.revocations.changed("p")
    worker.revocations.changed("p")  # while the first check is under way
    checked = []
    while count := worker.fire():
        checked.append(count)
    assert checked == [CONNECTIONS_PER_CHECK] * 4 + [2]


def test_credentials_that_do_not_close_connections_cause_no_check() -> None:
    worker = RevokingWorker(1)
    worker.clients[0].profile.tls = "other"
    worker.revocations.changed("other")
    assert not worker.pending
    worker.revocations.changed("p")
    assert not worker.pending, "no connection uses them"


def test_ended_connections_are_left_out() -> None:
    worker = RevokingWorker(3)
    worker.revocations.changed("p")
    worker.clients[0].connection.ended = True
    del worker.clients[1]
    assert worker.fire() == 1


def test_error_in_check_ends_connection_concerned() -> None:
    worker = RevokingWorker(3)
    worker.clients[0].fault = RuntimeError("bad luck")
    worker.clients[2].revoked = True
    worker.revocations.changed("p")
    worker.fire()
    assert worker.clients[0].faults == [worker.clients[0].fault]
    assert worker.clients[2].closed


@pytest.mark.parametrize("state", ["no TLS", "no transport", "invalid credentials"])
def test_connection_that_cannot_be_checked_is_not_revoked(state: str) -> None:
    worker = RevokingWorker(1)
    client: Any = worker.clients[0]
    client.revoked = True
    if state == "no TLS":
        client.profile.tls = None
    elif state == "no transport":
        client.transport = None
    else:
        worker.broken = True
    assert not worker.revocations.is_revoked(client)
