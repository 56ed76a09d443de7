"""Established connections whose certificates a revocation list names: closed, where the sslProfile wants that."""

from collections import deque
from typing import TYPE_CHECKING, Final

from router.tls.context import TlsError

from router.policy.decisions import UNAUTHORIZED

if TYPE_CHECKING:
    from workers.connections.handler import ConnectionHandler
    from workers.worker import Worker

LOOKED_A_STEP: Final = 64  # connections that one timer looks at: a few microseconds for each list of their authorities
REVOKED: Final = (UNAUTHORIZED, "the certificate of this connection has been revoked")


class Revocations:
    """Looks at connections when credentials change. Owner: the worker."""

    def __init__(self, worker: "Worker") -> None:
        self._worker: Final = worker
        self._due: deque[int] = deque()  # numbers of connections

    def changed(self, name: str) -> None:
        """Look at all connections made with these credentials, which others have replaced."""
        if not self._worker.credentials.closes_revoked(name):
            return
        begun = bool(self._due)
        self._due += [client.number for client in self._worker.clients.values() if client.profile.tls == name]
        if self._due and not begun:
            self._later()

    def is_revoked(self, client: "ConnectionHandler") -> bool:
        """Whether a list names a certificate that the peer has shown, and the profile closes such connections."""
        profile, credentials = client.profile, self._worker.credentials
        if profile.tls is None or client.transport is None or not credentials.closes_revoked(profile.tls):
            return False
        try:
            context = credentials.of_endpoint(profile, server=client.initiate is None)
        except TlsError:
            return False  # there are no lists that could be looked at; the supervisor logs the fault
        return bool(client.transport.revoked(context))

    def _later(self) -> None:
        loop = self._worker.loop
        loop.call_at(loop.scheduler.now + 1, self._step)

    def _step(self) -> None:
        for _ in range(min(LOOKED_A_STEP, len(self._due))):
            client = self._worker.clients.get(self._due.popleft())
            if client is None or client.connection.ended:
                continue
            try:
                if self.is_revoked(client):
                    client.revoked()
            except Exception as fault:  # noqa: BLE001 - the net below a connection
                client.connection.end_by(fault)
        if self._due:
            self._later()
