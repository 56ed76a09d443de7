"""Effects of listener attributes on clients and in management; the scan for stuck and blocked links (-T)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from proton import Message, Timeout
from proton.utils import BlockingConnection

from tests.interop.dispatch.node import ManagementNode
from tests.system.router import RouterProcess, Section, listener, poll

Fresh = Callable[[str], str]

SECTIONS: list[Section] = [
    listener("tenants", multiTenant=True),
    listener("broker", role="route-container"),
    listener(
        "open",
        maxFrameSize=2048,
        maxSessions=10,
        linkCapacity=7,
        idleTimeoutSeconds=30,
        failoverUrls="first.example, amqps://second.example:5000",
        openProperties={"location": "cellar", "floor": -1},
    ),
]


def client(shared_router: RouterProcess, name: str, **options: Any) -> BlockingConnection:
    """Connect to a listener."""
    return BlockingConnection(f"127.0.0.1:{shared_router.ports[name]}", sasl_enabled=False, timeout=10, **options)


def test_tenant_addresses_carry_prefix(shared_router: RouterProcess, node: ManagementNode) -> None:
    """A tenant's addresses show its name. `$management` is one of them; `_local/$management` is the router's."""
    connection = client(shared_router, "tenants", virtual_host="acme")
    connection.create_receiver("news")
    row = node.one("connection", container=connection.container.container_id)
    assert row["tenant"] == "acme/"
    assert node.rows("router.address", key="M0acme/news")
    assert node.rows("router.link", connectionId=row["identity"])[0]["owningAddr"] == "M0acme/news"
    sender = connection.create_sender("$management")
    assert sender.link.credit == 0
    own = ManagementNode(connection, "_local/$management")
    assert own.one("router")["id"] == "QDR"
    connection.close()


def test_listener_role_appears_on_connection(shared_router: RouterProcess, node: ManagementNode) -> None:
    connection = client(shared_router, "broker")
    assert node.one("connection", container=connection.container.container_id)["role"] == "route-container"
    connection.close()


def test_open_frame_carries_listener_attributes(shared_router: RouterProcess, node: ManagementNode) -> None:
    """Open frame, link capacity and credit follow the attributes of the listener."""
    connection = client(shared_router, "open")
    peer: Any = connection.conn
    assert peer.remote_container == "QDR"
    properties = {str(key): value for key, value in peer.remote_properties.items()}
    assert (properties["location"], properties["floor"]) == ("cellar", -1)
    assert properties["version"] == node.one("router")["version"]
    [first, second] = properties["failover-server-list"]
    assert (first["network-host"], str(first["port"])) == ("first.example", "5672")
    assert (second["network-host"], str(second["port"]), second["scheme"]) == ("second.example", "5000", "amqps")
    transport = peer.transport
    assert transport.remote_max_frame_size == 2048
    assert transport.remote_idle_timeout == 15.0
    connection.create_receiver("open/a")
    sender = connection.create_sender("open/a", name="seven")
    poll(lambda: node.one("router.link", linkName="seven")["capacity"] == 7, "the capacity shows")
    assert sender.link.credit == 7
    connection.close()


def test_stuck_deliveries_and_blocked_links_are_counted(tmp_path: Path) -> None:
    """With -T the scan runs every 5 s and counts waits of more than 3 s.

    A stuck delivery counts once on each of its two links.
    """
    router = RouterProcess(tmp_path, [listener(idleTimeoutSeconds=120)], options=["-T"])
    router.start()
    node = ManagementNode.connect(router.port)
    connection = BlockingConnection(f"127.0.0.1:{router.port}", sasl_enabled=False, timeout=15)
    receiver = connection.create_receiver("stuck", credit=5)
    connection.create_receiver("blocked", name="blocked", credit=0)
    sender = connection.create_sender("stuck")
    sender.link.send(Message(body="x"))
    receiver.receive(timeout=10)

    def found() -> bool:
        row = node.one("router")
        return (row["deliveriesStuck"], row["linksBlocked"]) == (2, 1)

    poll(found, "a stuck delivery and a blocked link", 15)
    links = node.rows("router.link", owningAddr="M0stuck")
    assert [row["deliveriesStuck"] for row in links] == [1, 1]
    assert node.one("router.link", linkName="blocked")["zeroCreditSeconds"] >= 3
    router.wait_log(r"\[C2\]\[L\d+\] Stuck delivery: At least one delivery on this link has been undelivered/unsettled")
    router.wait_log(r"\[C2\]\[L\d+\] Link blocked with zero credit for \d+ seconds")
    receiver.accept()
    connection.create_sender(None)
    poll(lambda: node.one("router")["deliveriesStuck"] == 0, "nothing is stuck any more")
    connection.close()
    poll(lambda: node.one("router")["linksBlocked"] == 0, "no link is blocked any more")
    node.close()
    router.stop()


def test_sender_without_receiver_gets_no_credit(shared_router: RouterProcess, node: ManagementNode) -> None:
    """A sender has no credit until a receiver attaches; its row shows none."""
    connection = client(shared_router, "open")
    sender = connection.create_sender("nobody", name="waits")
    row = node.one("router.link", linkName="waits")
    assert (row["creditAvailable"], sender.link.credit) == (0, 0)
    with pytest.raises(Timeout):
        sender.send(Message(body="x"), timeout=0.2)
    receiver = connection.create_receiver("nobody")
    assert receiver.receive(timeout=10).body == "x"
    assert node.one("router.link", linkName="waits")["deliveryCount"] == 1
    connection.close()
