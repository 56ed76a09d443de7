"""Sinks that receive the messages of links when they arrive and when they leave.

A link is marked (`logged`) while some sink wants its messages. On a link without the mark, a delivery costs one test
of a flag.
"""

from typing import TYPE_CHECKING, Protocol

from sluice.router.amqp.text.messages import message_text
from sluice.router.amqp.text.trace_context import TRACEPARENT, trace_context
from sluice.router.log import TRACE, ProcessLog

if TYPE_CHECKING:
    from sluice.workers.connections.handler import ConnectionHandler
    from sluice.workers.links.record import LinkRecord


class MessageSink(Protocol):
    """Receiver of messages of links. Owner: the worker's `Tracing`."""

    def settings_changed(self) -> None:
        """Handle changed log settings; `wants` is called again for each link."""
        ...

    def wants(self, client: "ConnectionHandler") -> bool:
        """True if the sink wants messages on links of this connection."""
        ...

    def message(self, client: "ConnectionHandler", record: "LinkRecord", octets: bytes) -> None:
        """Handle a message that was received, or is about to be sent (`record.outgoing`). octets: its first octets."""
        ...


class LogSink:
    """Writes the parts of messages that messageLoggingComponents names to module MESSAGE (management.md 4.7).

    brokers-and-edge.md W-16.
    """

    def __init__(self, log: ProcessLog) -> None:
        self._log = log
        self._enabled = False
        self.settings_changed()

    def settings_changed(self) -> None:
        """Read the log level of the module."""
        self._enabled = self._log.enabled("MESSAGE", TRACE)

    def wants(self, client: "ConnectionHandler") -> bool:
        """True for connections whose listener or connector names parts."""
        return self._enabled and bool(client.components)

    def message(self, client: "ConnectionHandler", record: "LinkRecord", octets: bytes) -> None:
        """Write one line for each message that arrives or leaves."""
        if record.ends is None:
            return
        source, target = record.ends
        what = "Sent" if record.outgoing else "Received"
        text = message_text(octets, client.components)
        if TRACEPARENT in client.components and (context := trace_context(octets)) is not None:
            text = f"{text[:-1]}{'' if text.endswith('{}') else ', '}{TRACEPARENT}={context}}}"
        self._log.trace(
            "MESSAGE", f"[C{client.number}]: {what} {text} on link '{record.link.name}' ({source} -> {target})"
        )
