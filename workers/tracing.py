"""Traces of frames and messages: which connections have them, and where the lines go (management.md 4.4, 4.7).

Frames of a connection are written to the log when its management attribute enableProtocolTrace was set to true, and,
where it was never set, when module PROTOCOL has trace enabled; they are told to the supervisor while somebody watches
(`sluice trace`). What is told is bounded for the whole worker; what exceeds that is counted. Nothing here is called for
a connection without a trace.
"""

import time
from typing import TYPE_CHECKING, Final

from router.amqp.frame_text import frame_text
from router.amqp.message_text import message_text
from router.ipc import control
from router.log import MAX_TEXT, TRACE

if TYPE_CHECKING:
    from workers.client import Client
    from workers.links import LinkRecord
    from workers.routed import RoutedEnd
    from workers.worker import Worker

TELL_MS: Final = 100  # lines are told so often
LINES_A_TELL: Final = 500  # of all watched connections together


class Tracing:
    """All traces of one worker. Owner: the worker."""

    __slots__ = ("_armed", "_ended", "_lines", "_lost", "_messages", "_protocol", "_worker")

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker
        self._protocol = worker.log.enabled("PROTOCOL", TRACE)
        self._messages = worker.log.enabled("MESSAGE", TRACE)
        self._lines: list[tuple[int, float, str]] = []  # connection, seconds since the epoch, text: to be told
        self._lost: dict[int, int] = {}  # lines by connection
        self._ended: list[int] = []  # watched connections that are gone
        self._armed = False

    # -- who is traced ------------------------------------------------------------------------------------------------

    def opened(self, client: "Client") -> None:
        """A new connection."""
        if self._protocol:
            self._switch(client)

    def log_changed(self) -> None:
        """The log's settings are others."""
        self._protocol = self._worker.log.enabled("PROTOCOL", TRACE)
        self._messages = self._worker.log.enabled("MESSAGE", TRACE)
        for client in self._worker.clients.values():
            self._switch(client)
            if client.components:
                for record in client.links.values():
                    self.attached(record)

    def trace(self, client: "Client", on: bool | None) -> None:
        """The connection's frames go to the log whatever its settings are, or never, or (None) as they say."""
        client.traced = on
        self._switch(client)

    def watch(self, number: int, client: "Client | None", on: bool, due_ms: int | None) -> None:
        """The connection's frames are told, or no more. client: None when it is gone already.

        due_ms: something is to be told, even if it is nothing, when so many milliseconds are over.
        """
        if on and client is not None and due_ms is not None:
            loop = self._worker.loop
            loop.call_at(loop.scheduler.now + due_ms, lambda: self._due(number))
        if client is not None:
            client.watched = on
            self._switch(client)
        elif on:
            self._ended.append(number)
            self._arm()

    def closed(self, client: "Client") -> None:
        """The connection has ended; what it still writes is traced, too."""
        if client.watched:
            self._ended.append(client.number)
            self._arm()

    def attached(self, record: "LinkRecord | RoutedEnd") -> None:
        """A link whose messages are logged when module MESSAGE has trace enabled."""
        record.link.logged = self._messages and record.ends is not None

    def _switch(self, client: "Client") -> None:
        client.connection.trace(self._logged(client) or client.watched)

    def _logged(self, client: "Client") -> bool:
        return self._protocol if client.traced is None else client.traced

    # -- lines --------------------------------------------------------------------------------------------------------

    def frame(self, client: "Client", received: bool, octets: bytes, size: int) -> None:
        """A frame of a traced connection; octets: its first ones, of `size`."""
        text = frame_text(octets, size, received)
        if client.watched:
            self._keep(client.number, text)
        if client.traced:
            self._worker.log.always(TRACE, "PROTOCOL", f"[C{client.number}]:FRAME: {text}")
        elif self._logged(client):
            self._worker.log.trace("PROTOCOL", f"[C{client.number}]:FRAME: {text}")

    def message(self, client: "Client", record: "LinkRecord", octets: bytes) -> None:
        """A message that came, or is about to leave, on a link that is logged; octets: its first ones."""
        if record is None or record.ends is None:
            return
        source, target = record.ends
        what = "Sent" if record.outgoing else "Received"
        text = message_text(octets, client.components)
        self._worker.log.trace(
            "MESSAGE", f"[C{client.number}]: {what} {text} on link '{record.link.name}' ({source} -> {target})"
        )

    def _due(self, number: int) -> None:
        self._lost.setdefault(number, 0)
        self._arm()

    def _keep(self, number: int, text: str) -> None:
        if len(self._lines) < LINES_A_TELL:
            self._lines.append((number, time.time(), text[:MAX_TEXT]))
        else:
            self._lost[number] = self._lost.get(number, 0) + 1
        self._arm()

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            loop = self._worker.loop
            loop.call_at(loop.scheduler.now + TELL_MS, self._tell)

    def _tell(self) -> None:
        self._armed = False
        lines, self._lines = self._lines, []
        lost, self._lost = self._lost, {}
        ended, self._ended = self._ended, []
        by_connection: dict[int, list[list[float | str]]] = {number: [] for number in (*lost, *ended)}
        for number, seconds, text in lines:
            by_connection.setdefault(number, []).append([seconds, text])
        for number, told in by_connection.items():
            self._worker.control.tell(
                {
                    "t": control.TRACED,
                    "conn": number,
                    "lines": told,
                    "lost": lost.get(number, 0),
                    "ended": number in ended,
                }
            )
