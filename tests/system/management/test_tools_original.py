"""Unchanged tools of Dispatch 1.19, represented by a client with the same protocol exchange (management.md 8.1).

No SASL layer; a sender to the management address and a dynamic receiver with credit 1; one request at a time;
correlation-ids are the texts 1, 2, …, and that of the reply must be equal. The client sends no close; its socket just
ends.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest
from proton import Message
from proton.utils import BlockingConnection, SyncRequestResponse

from tests.system.router import ROOT, RouterProcess

LONG = "org.apache.qpid.dispatch."
NODE = {"type": "org.amqp.management", "name": "self"}


class DispatchToolClient:
    """Management client of the tools."""

    def __init__(self, port: int, address: str = "$management") -> None:
        self.connection: Any = BlockingConnection(f"127.0.0.1:{port}", timeout=30, sasl_enabled=False)
        # Each tool is a process of its own, so the count begins at 0.
        SyncRequestResponse.correlation_id.count = 0
        self.client: Any = SyncRequestResponse(self.connection, address)

    def call(self, body: Any = None, **properties: Any) -> Any:
        """Send one request and return the reply."""
        return self.client.call(Message(properties=properties, body={} if body is None else body))

    def query(self, short_type: str, count: int = 500) -> list[list[Any]]:
        """Return all rows of a type, queried in pages."""
        rows: list[list[Any]] = []
        while True:
            paging = {"offset": len(rows), "count": count}
            reply = self.call({"attributeNames": []}, operation="QUERY", entityType=LONG + short_type, **paging, **NODE)
            assert reply.properties["statusCode"] == 200
            rows += reply.body["results"]
            if len(reply.body["results"]) < count:
                return rows


def ask_and_leave() -> None:
    """Send a query as a tool: connect to the port in the only argument, and exit without closing."""
    DispatchToolClient(int(sys.argv[1])).query("router")
    os._exit(0)


@pytest.mark.parametrize("address", ["$management", "_local/$management", "_topo/0/QDR/$management"])
def test_requests_of_qdstat_are_answered(router: RouterProcess, address: str) -> None:
    tool = DispatchToolClient(router.port, address)
    assert re.fullmatch(r"amqp:/_topo/0/QDR/temp\.[\w+]{15}", tool.client.reply_to)
    assert tool.call(operation="GET-MGMT-NODES", **NODE).body == []
    assert len(tool.query("router")) == 1
    for short_type in (
        "connection", "router.link", "router.address", "router.node", "allocator", "policy", "vhost", "vhostStats",
        "router.config.autoLink", "router.config.linkRoute",
    ):  # fmt: skip
        tool.query(short_type)
    assert len(tool.query("router.address", count=1)) >= 2


def test_requests_of_qdmanage_are_answered(router: RouterProcess) -> None:
    tool = DispatchToolClient(router.port)
    created = tool.call(
        {"prefix": "original"}, operation="CREATE", type=LONG + "router.config.address", name="original"
    )
    assert (created.properties["statusCode"], created.properties["statusDescription"]) == (201, "Created")
    assert created.correlation_id == "1"
    target = {"type": LONG + "router.config.address", "name": "original"}
    assert tool.call(operation="READ", **target).body["prefix"] == "original"
    deleted = tool.call(operation="DELETE", **target)
    assert (deleted.properties["statusCode"], deleted.body) == (204, {})
    assert tool.call(operation="GET-SCHEMA").properties["statusCode"] == 200
    assert tool.call(operation="READ", **target).properties["statusCode"] == 404


def test_tool_exiting_without_close_does_no_harm(router: RouterProcess) -> None:
    """A tool's process exits, which ends its connection."""
    program = "from tests.system.management.test_tools_original import ask_and_leave; ask_and_leave()"
    for _ in range(3):
        before = len(router.lines)
        subprocess.run([sys.executable, "-c", program, str(router.port)], cwd=ROOT, check=True, timeout=60)
        router.wait_log(r"\[C\d+\] Connection Closed", after=before)
    assert len(DispatchToolClient(router.port).query("router")) == 1
