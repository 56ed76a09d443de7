"""Whoever is shown the messages of links, when they come and when they go.

A link is marked (`logged`) while somebody wants its messages; without the mark a delivery costs one test of a flag.
"""

from typing import TYPE_CHECKING, Protocol

from router.amqp.text.messages import message_text
from router.amqp.text.trace_context import TRACEPARENT, trace_context
from router.log import TRACE, Log

if TYPE_CHECKING:
    from workers.connections.handler import ConnectionHandler
    from workers.links.record import LinkRecord


class MessageSink(Protocol):
    """Takes messages of links. Owner: the worker's `Tracing`."""

    def settings_changed(self) -> None:
        """The log settings have changed; `wants` is asked anew for each link."""
        ...

    def wants(self, client: "ConnectionHandler") -> bool:
        """Whether messages on links of this connection are to be shown."""
        ...

    def message(self, client: "ConnectionHandler", record: "LinkRecord", octets: bytes) -> None:
        """A message received, or about to be sent (`record.outgoing`); octets: the first ones."""
        ...


class LogSink:
    """Writes the parts of messages that messageLoggingComponents names to module MESSAGE (management.md 4.7)."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._enabled = False
        self.settings_changed()

    def settings_changed(self) -> None:
        """Look at the level of the module."""
        self._enabled = self._log.enabled("MESSAGE", TRACE)

    def wants(self, client: "ConnectionHandler") -> bool:
        """Of connections whose listener or connector names parts."""
        return self._enabled and bool(client.components)

    def message(self, client: "ConnectionHandler", record: "LinkRecord", octets: bytes) -> None:
        """One line for each time a message comes or goes."""
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
