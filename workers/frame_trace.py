"""Traces of frames and messages: the connections that have them, and the destinations of the lines (management.md 4.4,
4.7).

The frames of a connection are written to the log if its management attribute enableProtocolTrace is true, or if that
was never set and module PROTOCOL has trace enabled. While a watch runs (`sluice trace`), they are also sent to the
supervisor. The number of lines sent is bounded for the whole worker; dropped lines are counted. Connections without a
trace call nothing of this module.
"""

import time
from typing import TYPE_CHECKING, Final

from sluice.router.amqp.text.frames import frame_text
from sluice.router.control import messages as control
from sluice.router.control.handlers import HandlerTable
from sluice.router.control.ops import SamplingOp
from sluice.router.log import MAX_TEXT, TRACE
from sluice.workers.message_trace import LogSink, MessageSink
from sluice.workers.span_trace import SpanTrace

if TYPE_CHECKING:
    from sluice.workers.connections.handler import ConnectionHandler
    from sluice.workers.links.record import LinkRecord
    from sluice.workers.links.routed import RoutedEnd
    from sluice.workers.worker import WorkerRuntime

SEND_MS: Final = 100  # between two messages with lines
LINES_PER_MESSAGE: Final = 500  # most lines of all watched connections together


class FrameTrace:
    """Trace of a connection's frames that management has requested. Owner: the connection handler."""

    __slots__ = ("logged", "watched")

    def __init__(self) -> None:
        self.logged: bool | None = None  # enableProtocolTrace of the management entity; None: never set
        self.watched = False  # frames are sent to the supervisor


class Tracing:
    """All traces of one worker. Owner: the worker."""

    __slots__ = ("_armed", "_ended", "_lines", "_lost", "_protocol", "_worker", "sinks", "spans")

    def __init__(self, worker: "WorkerRuntime") -> None:
        self._worker = worker
        self._protocol = worker.log.enabled("PROTOCOL", TRACE)
        self.sinks: list[MessageSink] = [LogSink(worker.log)]  # sinks of messages
        self.spans = SpanTrace(worker)
        # Lines to send: (connection, seconds since the Unix epoch, text).
        self._lines: list[tuple[int, float, str]] = []
        self._lost: dict[int, int] = {}  # number of dropped lines by connection
        self._ended: list[int] = []  # watched connections that have ended
        self._armed = False

    def messages(self, handlers: HandlerTable[bytes | None]) -> None:
        """Register the handler of orders about watched connections."""
        handlers.on(control.Watch, lambda _, order: self._watch(order))

    # -- selection ----------------------------------------------------------------------------------------------------

    def opened(self, client: "ConnectionHandler") -> None:
        """Start the trace of a new connection if the log settings ask for it."""
        if self._protocol:
            self._switch(client)

    def log_changed(self) -> None:
        """Apply changed log settings to all connections and links."""
        self._protocol = self._worker.log.enabled("PROTOCOL", TRACE)
        for sink in self.sinks:
            sink.settings_changed()
        for client in self._worker.clients.values():
            self._switch(client)
        self._mark_links()

    def trace(self, client: "ConnectionHandler", on: bool | None) -> None:
        """Set enableProtocolTrace of a connection: log its frames, or not, or (None) as the log settings say."""
        if on is not None or client.trace is not None:
            self._trace_of(client).logged = on
        self._switch(client)

    def _watch(self, order: control.Watch) -> None:
        """Start or stop sending the frames of a connection, which may have ended already. due_ms: time after which a
        message is sent even without lines.
        """
        number, on, due_ms = order.conn, order.on, order.due_ms
        client = self._worker.clients.get(number)
        if on and client is not None and due_ms is not None:
            loop = self._worker.loop
            loop.call_at(loop.scheduler.now + due_ms, lambda: self._due(number))
        if client is not None:
            self._trace_of(client).watched = on
            self._switch(client)
        elif on:
            self._ended.append(number)
            self._arm()

    def closed(self, client: "ConnectionHandler") -> None:
        """Report the end of a watched connection. Its last frames are traced, too."""
        if client.trace is not None and client.trace.watched:
            self._ended.append(client.number)
            self._arm()

    def attached(self, record: "LinkRecord | RoutedEnd") -> None:
        """Mark the link if a sink wants its messages, or if its deliveries are sampled."""
        logged = False
        for sink in self.sinks:
            logged = logged or sink.wants(record.client)
        record.link.logged = self.spans.observe(record, logged)

    def sample(self, op: SamplingOp) -> None:
        """Apply changed rules of sampling to all links."""
        self.spans.use(op)
        self._mark_links()

    def _mark_links(self) -> None:
        for client in self._worker.clients.values():
            for record in client.links.by_number.values():
                self.attached(record)

    @staticmethod
    def _trace_of(client: "ConnectionHandler") -> FrameTrace:
        if client.trace is None:
            client.trace = FrameTrace()
        return client.trace

    def _switch(self, client: "ConnectionHandler") -> None:
        trace = client.trace
        client.connection.trace(self._logged(trace) or (trace is not None and trace.watched))

    def _logged(self, trace: FrameTrace | None) -> bool:
        return self._protocol if trace is None or trace.logged is None else trace.logged

    # -- lines --------------------------------------------------------------------------------------------------------

    def frame(self, client: "ConnectionHandler", received: bool, octets: bytes, size: int) -> None:
        """Trace a frame of a traced connection. octets: the first of `size`."""
        text = frame_text(octets, size, received)
        trace = client.trace
        if trace is not None and trace.watched:
            self._keep(client.number, text)
        if trace is not None and trace.logged:
            self._worker.log.always(TRACE, "PROTOCOL", f"[C{client.number}]:FRAME: {text}")
        elif self._logged(trace):
            self._worker.log.trace("PROTOCOL", f"[C{client.number}]:FRAME: {text}")

    def message(self, client: "ConnectionHandler", record: "LinkRecord", octets: bytes) -> None:
        """Trace a message on a logged link, received or about to be sent. octets: its first octets."""
        if record is not None:
            for sink in self.sinks:
                if sink.wants(client):
                    sink.message(client, record, octets)

    def _due(self, number: int) -> None:
        self._lost.setdefault(number, 0)
        self._arm()

    def _keep(self, number: int, text: str) -> None:
        if len(self._lines) < LINES_PER_MESSAGE:
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
