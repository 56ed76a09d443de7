"""Closing of established connections whose certificates were revoked, where the sslProfile asks for that."""

from collections import deque
from typing import TYPE_CHECKING, Final

from sluice.router.policy.decisions import UNAUTHORIZED
from sluice.router.tls.context import TlsError

if TYPE_CHECKING:
    from sluice.workers.connections.handler import ConnectionHandler
    from sluice.workers.worker import WorkerRuntime

# Connections checked by one timer; each costs a few microseconds for each list of its authorities.
CONNECTIONS_PER_CHECK: Final = 64
REVOKED: Final = (UNAUTHORIZED, "the certificate of this connection has been revoked")


class Revocations:
    """Checks established connections when credentials change. Owner: the worker."""

    def __init__(self, worker: "WorkerRuntime") -> None:
        self._worker: Final = worker
        self._due: deque[int] = deque()  # numbers of connections to check

    def changed(self, name: str) -> None:
        """Schedule a check of all connections that use credentials of this name, which were replaced."""
        if not self._worker.credentials.closes_revoked(name):
            return
        begun = bool(self._due)
        self._due += [client.number for client in self._worker.clients.values() if client.profile.tls == name]
        if self._due and not begun:
            self._later()

    def is_revoked(self, client: "ConnectionHandler") -> bool:
        """True if a list names a certificate that the peer has shown, and the profile closes such connections."""
        profile, credentials = client.profile, self._worker.credentials
        if profile.tls is None or client.transport is None or not credentials.closes_revoked(profile.tls):
            return False
        try:
            context = credentials.of_endpoint(profile, server=client.initiate is None)
        except TlsError:
            return False  # there are no lists to check; the supervisor logs the error
        return bool(client.transport.revoked(context))

    def _later(self) -> None:
        loop = self._worker.loop
        loop.call_at(loop.scheduler.now + 1, self._step)

    def _step(self) -> None:
        for _ in range(min(CONNECTIONS_PER_CHECK, len(self._due))):
            client = self._worker.clients.get(self._due.popleft())
            if client is None or client.connection.ended:
                continue
            try:
                if self.is_revoked(client):
                    client.close_revoked()
            except Exception as fault:  # noqa: BLE001 - error net of one connection
                client.connection.end_by(fault)
        if self._due:
            self._later()
