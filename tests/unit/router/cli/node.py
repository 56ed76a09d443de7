"""Scripted management node on an AMQP listener of Qpid Proton, as the peer of command-line tools.

Tests use it for entities that a single router does not have (edge routers, vhosts, neighbours), and for answers that a
router never gives.
"""

import os
import queue
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector

_CREDIT = 10
PREFIX = "org.apache.qpid.dispatch."

Answer = tuple[int, str, Any]


@dataclass(frozen=True)
class ReceivedRequest:
    """Received request: target address of the link, application properties, body, correlation-id."""

    address: str
    properties: dict[str, Any]
    body: Any
    correlation: Any


class ScriptedManagementNode(MessagingHandler):
    """Management node on `port`. answer: returns the answers to a request, in order; all get its correlation-id. mute:
    address whose senders get no credit.
    """

    def __init__(self, answer: Callable[[ReceivedRequest], list[Answer]], mute: str | None = None) -> None:
        super().__init__(prefetch=0, auto_accept=True)
        self.requests: list[ReceivedRequest] = []
        self._answer = answer
        self._mute = mute
        self._news = threading.Semaphore(0)
        self._replies: dict[str, Any] = {}
        self._ports: queue.Queue[int] = queue.Queue()
        self._injector = EventInjector()
        self._container = Container(self)
        self._thread = threading.Thread(target=self._container.run, daemon=True)
        self._thread.start()
        self.port = self._ports.get(timeout=30)
        self.url = f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        """Stop the node and break its connections."""
        self._injector.trigger(ApplicationEvent("end"))
        self._thread.join(30)

    def wait_request(self) -> None:
        """Wait until a further request has arrived."""
        assert self._news.acquire(timeout=30)

    def on_end(self, event: Any) -> None:
        self._container.stop()

    def on_start(self, event: Any) -> None:
        event.container.selectable(self._injector)
        acceptor = event.container.listen("127.0.0.1:0")
        with socket.socket(fileno=os.dup(acceptor._selectable.fileno())) as listening:
            self._ports.put(listening.getsockname()[1])

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        if link.is_sender:
            address = f"amqp:/_topo/0/T/temp.{len(self._replies)}"
            link.source.address = address
            self._replies[address] = link
        else:
            link.target.address = link.remote_target.address
            if link.target.address != self._mute:
                link.flow(_CREDIT)

    def on_message(self, event: Any) -> None:
        message = event.message
        request = ReceivedRequest(
            event.link.target.address, dict(message.properties or {}), message.body, message.correlation_id
        )
        self.requests.append(request)
        self._news.release()
        event.receiver.flow(1)
        for status, text, body in self._answer(request):
            properties = {"statusCode": status, "statusDescription": text}
            reply = Message(
                address=message.reply_to,
                correlation_id=request.correlation,
                properties=properties,
                body=body,
                inferred=False,
            )
            self._replies[message.reply_to].send(reply)


def rows_node(
    tables: Mapping[str, list[dict[str, Any]]], calls: Mapping[str, Any] | None = None
) -> ScriptedManagementNode:
    """Return a node with rows by short type, and bodies by operation. It pages and selects columns like a router."""
    bodies = {"GET-MGMT-NODES": [], **(calls or {})}

    def answer(request: ReceivedRequest) -> list[Answer]:
        operation = request.properties["operation"]
        if operation != "QUERY":
            return [(200, "OK", bodies[operation])]
        rows = tables[request.properties["entityType"].removeprefix(PREFIX)]
        columns = request.body["attributeNames"] or list(rows[0] if rows else [])
        start, count = request.properties["offset"], request.properties["count"]
        page = [[row.get(column) for column in columns] for row in rows[start : start + count]]
        return [(200, "OK", {"attributeNames": columns, "results": page})]

    return ScriptedManagementNode(answer)
