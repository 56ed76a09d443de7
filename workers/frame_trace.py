"""Traces of frames and messages: which connections have them, and where the lines go (management.md 4.4, 4.7).

Frames of a connection are written to the log when its management attribute enableProtocolTrace was set to true, and,
where it was never set, when module PROTOCOL has trace enabled; they are sent to the supervisor while a watch runs
(`sluice trace`). The lines sent are bounded for the whole worker, and dropped ones counted. Nothing here is called for
a connection without a trace.
"""

import time
from typing import TYPE_CHECKING, Final

from router.amqp.text.frames import frame_text
from router.control import messages as control
from router.log import MAX_TEXT, TRACE
from workers.message_trace import LogSink, MessageSink

if TYPE_CHECKING:
    from workers.connections.handler import ConnectionHandler
    from workers.links.record import LinkRecord
    from workers.links.routed import RoutedEnd
    from workers.worker import Worker

SEND_MS: Final = 100  # between two messages with lines
LINES_A_MESSAGE: Final = 500  # at most, of all watched connections together


class Tracing:
    """All traces of one worker. Owner: the worker."""

    __slots__ = ("_armed", "_ended", "_lines", "_lost", "_protocol", "_worker", "sinks")

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker
        self._protocol = worker.log.enabled("PROTOCOL", TRACE)
        self.sinks: list[MessageSink] = [LogSink(worker.log)]  # of messages
        self._lines: list[tuple[int, float, str]] = []  # to be sent: connection, seconds since the epoch, text
        self._lost: dict[int, int] = {}  # lines by connection
        self._ended: list[int] = []  # watched connections that are gone
        self._armed = False

    # -- who is traced ------------------------------------------------------------------------------------------------

    def opened(self, client: "ConnectionHandler") -> None:
        """A new connection."""
        if self._protocol:
            self._switch(client)

    def log_changed(self) -> None:
        """The log settings have changed."""
        self._protocol = self._worker.log.enabled("PROTOCOL", TRACE)
        for sink in self.sinks:
            sink.settings_changed()
        for client in self._worker.clients.values():
            self._switch(client)
            for record in client.links.values():
                self.attached(record)

    def trace(self, client: "ConnectionHandler", on: bool | None) -> None:
        """The connection's frames always go to the log, or never, or (None) as its settings say."""
        client.traced = on
        self._switch(client)

    def watch(self, number: int, client: "ConnectionHandler | None", on: bool, due_ms: int | None) -> None:
        """Send the connection's frames, or stop. client: None when it is gone already. due_ms: send a message after
        this time, even without lines.
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

    def closed(self, client: "ConnectionHandler") -> None:
        """The connection has ended; its last frames are traced, too."""
        if client.watched:
            self._ended.append(client.number)
            self._arm()

    def attached(self, record: "LinkRecord | RoutedEnd") -> None:
        """A link's messages are shown while a sink wants them."""
        record.link.logged = any(sink.wants(record.client) for sink in self.sinks)

    def _switch(self, client: "ConnectionHandler") -> None:
        client.connection.trace(self._logged(client) or client.watched)

    def _logged(self, client: "ConnectionHandler") -> bool:
        return self._protocol if client.traced is None else client.traced

    # -- lines --------------------------------------------------------------------------------------------------------

    def frame(self, client: "ConnectionHandler", received: bool, octets: bytes, size: int) -> None:
        """A frame of a traced connection; octets: the first ones of `size`."""
        text = frame_text(octets, size, received)
        if client.watched:
            self._keep(client.number, text)
        if client.traced:
            self._worker.log.always(TRACE, "PROTOCOL", f"[C{client.number}]:FRAME: {text}")
        elif self._logged(client):
            self._worker.log.trace("PROTOCOL", f"[C{client.number}]:FRAME: {text}")

    def message(self, client: "ConnectionHandler", record: "LinkRecord", octets: bytes) -> None:
        """A message received, or about to be sent, on a logged link; octets: the first ones."""
        if record is not None:
            for sink in self.sinks:
                if sink.wants(client):
                    sink.message(client, record, octets)

    def _due(self, number: int) -> None:
        self._lost.setdefault(number, 0)
        self._arm()

    def _keep(self, number: int, text: str) -> None:
        if len(self._lines) < LINES_A_MESSAGE:
            self._lines.append((number, time.time(), text[:MAX_TEXT]))
        else:
            self._lost[number] = self._lost.get(number, 0) + 1
        self._arm()

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            loop = self._worker.loop
            loop.call_at(loop.scheduler.now + SEND_MS, self._send)

    def _send(self) -> None:
        self._armed = False
        lines, self._lines = self._lines, []
        lost, self._lost = self._lost, {}
        ended, self._ended = self._ended, []
        by_connection: dict[int, list[tuple[float, str]]] = {number: [] for number in (*lost, *ended)}
        for number, seconds, text in lines:
            by_connection.setdefault(number, []).append((seconds, text))
        for number, sent in by_connection.items():
            self._worker.control.send_event(
                control.Traced(conn=number, lines=sent, lost=lost.get(number, 0), ended=number in ended)
            )
