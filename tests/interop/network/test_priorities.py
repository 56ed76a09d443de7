"""Data links by priority (inter-router.md 2.6, 11.1)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.interop.network.conftest import MiddleNetwork
from tests.peer import frames, message
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.peer import AmqpPeer
from tests.peer.router19 import control
from tests.peer.router19.router import Router19

Fresh = Callable[..., str]


def arrival_priority(router: Router19) -> int:
    """Return the priority of the link on which a 1.19 router received its last message."""
    with router.world.lock:
        connection, link, _head = router.forward.seen[-1]
        return int(connection.data_in.index(link))


@pytest.mark.parametrize(("priority", "link"), [(None, 4), (0, 0), (3, 3), (4, 4), (9, 9), (200, 9)])
def test_header_priority_selects_link(middle: MiddleNetwork, fresh: Fresh, priority: int | None, link: int) -> None:
    address = fresh()
    consumer = middle.right.consumer(address)
    middle.s.wait_remote(consumer.key, "R")
    header = message.header(priority=priority) if priority is not None else b""
    middle.s.client().sender(address).send(header + message.value("x"))
    consumer.next()
    assert arrival_priority(middle.right) == link


@pytest.mark.parametrize("priority", [None, 2])
def test_address_priority_overrides_header(middle: MiddleNetwork, fresh: Fresh, priority: int | None) -> None:
    address = fresh("urgent")
    consumer = middle.right.consumer(address)
    middle.s.wait_remote(consumer.key, "R")
    header = message.header(priority=priority) if priority is not None else b""
    middle.s.client().sender(address).send(header + message.value("x"))
    consumer.next()
    assert arrival_priority(middle.right) == 8


def test_priority_is_decided_at_each_hop(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh("urgent")
    consumer = middle.right.consumer(address)
    middle.left.wait_key(consumer.key, "R")
    middle.s.wait_remote(consumer.key, "R")
    middle.left.send(address, message.header(priority=1) + message.value("x"))
    consumer.next()
    assert arrival_priority(middle.right) == 8


def test_link_rows_show_priority(middle: MiddleNetwork) -> None:
    rows = [row for row in middle.s.rows("router.link") if row["linkType"] in ("inter-router", "router-control")]
    for direction in ("in", "out"):
        data = [row["priority"] for row in rows if (row["linkType"], row["linkDir"]) == ("inter-router", direction)]
        assert {priority: data.count(priority) >= 2 for priority in range(10)} == dict.fromkeys(range(10), True)
        mine = [row for row in rows if (row["linkType"], row["linkDir"]) == ("router-control", direction)]
        assert [row["priority"] for row in mine] == [9, 9]


def attach_neighbour(middle: MiddleNetwork, pairs: int, name: str) -> tuple[AmqpPeer, list[PeerReceiver]]:
    """Connect a router with only `pairs` pairs of data links, all with credit; return it and its receivers."""
    peer = AmqpPeer.opened(middle.s.ports["ir"], container_id=name, idle_time_out=0)
    receivers: list[PeerReceiver] = []
    for number in range(pairs + 1):
        session = peer.begin()
        capability = "qd.router-data" if number else "qd.router"
        source, target = frames.source(capabilities=capability), frames.target(capabilities=capability)
        receiver = session.receiver(source=source, target=target, credit=250)
        sender = session.sender(source=source, target=target)
        receivers.append(receiver)
        if not number:
            control_link = sender
    control_link.send(control.hello(name, 5, ["S"]), settled=True)
    return peer, receivers


@pytest.mark.parametrize(("priority", "expected"), [(0, 0), (2, 2), (7, 2)])
def test_missing_priority_link_falls_back_to_lower(
    middle: MiddleNetwork, fresh: Fresh, priority: int, expected: int
) -> None:
    name = fresh("few").replace("/", "-")
    address = fresh("closest")
    peer, receivers = attach_neighbour(middle, 3, name)
    try:
        middle.s.wait_rows(
            "router.node", lambda rows: any(name in row["linkState"] for row in rows), f"{name} is a neighbour"
        )
        session = peer.sessions[0]
        announcing = next(link for link in session.links if isinstance(link, PeerSender))
        announcing.send(control.mobile_update(name, 1, [("M0" + address, 2)], []), settled=True)
        middle.s.wait_remote("M0" + address, name)
        sender = middle.s.client().sender(address)
        sender.send(message.header(priority=priority) + message.value("x"))
        delivery = receivers[expected + 1].next()
        assert message.body(delivery.payload) == "x"
    finally:
        peer.drop()


def test_neighbour_without_data_links_has_no_path(middle: MiddleNetwork, fresh: Fresh) -> None:
    name = fresh("none").replace("/", "-")
    address = fresh("closest")
    peer, _receivers = attach_neighbour(middle, 0, name)
    try:
        middle.s.wait_rows(
            "router.node", lambda rows: any(name in row["linkState"] for row in rows), f"{name} is a neighbour"
        )
        announcing = next(link for link in peer.sessions[0].links if isinstance(link, PeerSender))
        announcing.send(control.mobile_update(name, 1, [("M0" + address, 2)], []), settled=True)
        middle.s.wait_remote("M0" + address, name)
        outcome = middle.s.client().sender().request(message.message("x", to=address))
        assert outcome.name == "released"
    finally:
        peer.drop()
