"""Heartbeats on connections of role edge, on both sides (inter-router.md 14.6).

An edge router sends heartbeats on its uplink, from the worker that has the uplink: they show that this worker moves
octets. An interior router drops a connection whose heartbeats stop.
"""

from typing import TYPE_CHECKING, Final

from sluice.router.amqp.codec import encode_int
from sluice.router.control.messages import HeartbeatMissed

if TYPE_CHECKING:
    from sluice.workers.connections.handler import ConnectionHandler
    from sluice.workers.links.record import LinkRecord

PERIOD_MS: Final = 2000  # period of heartbeats, and of checks for them
MISSED_MS: Final = 2 * PERIOD_MS  # time without a heartbeat after which at least one is late
SILENT_MS: Final = 8000  # time without a heartbeat after which the connection is dropped
CREDIT: Final = 2  # for heartbeats
_VALUE: Final = b"\x00\x53\x77"
_MAX_COUNT: Final = 0x7FFFFFFF


class HeartbeatWatch:
    """Watch over the heartbeats of one link. Owner: the link's handler and its timer. brokers-and-edge.md ED-6."""

    __slots__ = ("_client", "_last", "_looked", "_record")

    def __init__(self, record: "LinkRecord") -> None:
        self._record = record
        self._client = record.client
        self._last = self._looked = self._now
        self._look_later()

    @property
    def _now(self) -> int:
        return self._client.worker.loop.scheduler.now

    def beat(self, octets: bytes) -> bool:
        """Note the arrival of a heartbeat. Its content does not matter."""
        del octets
        self._last = self._now
        return True

    def _look_later(self) -> None:
        self._client.worker.loop.call_at(self._now + PERIOD_MS, self._look, self._client.connection)

    def _look(self) -> None:
        client, now = self._client, self._now
        if self._record.ended or client.connection.ended:
            return
        if now - self._looked > 2 * PERIOD_MS:  # a worker that did not run has not read heartbeats
            self._last = now
        self._looked = now
        if now - self._last > SILENT_MS:
            text = f"[C{client.number}] Lost heartbeat from container {client.container}, closing connection"
            client.worker.send_log("info", "ROUTER_CORE", text)
            client.connection.drop_silently()
            return
        if now - self._last > MISSED_MS:
            client.worker.control.send_event(HeartbeatMissed(client.number))
        self._look_later()


class HeartbeatSender:
    """Sender of heartbeats on one link. Owner: its timer."""

    __slots__ = ("_client", "_count", "_record")

    def __init__(self, record: "LinkRecord") -> None:
        self._record = record
        self._client: ConnectionHandler = record.client
        self._count = 0
        self._later()

    def _later(self) -> None:
        loop = self._client.worker.loop
        loop.call_at(loop.scheduler.now + PERIOD_MS, self._beat, self._client.connection)

    def _beat(self) -> None:
        if self._record.ended or self._client.connection.ended:
            return
        self._client.worker.in_process.send_by(self._record.link, _VALUE + encode_int(self._count))
        self._count = (self._count + 1) & _MAX_COUNT
        self._later()
