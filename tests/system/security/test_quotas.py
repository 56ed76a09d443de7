"""Quotas of a vhost and of its groups: connections, links, addresses, and the rate and memory of messages.

A rate is tested by a lower bound on the time that many messages take, which a busy machine only extends.
"""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from tests.peer import message
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.route_container import RouteContainer
from tests.system.edges import EDGES, EdgeView, edge
from tests.system.fixtures import Connect, Fresh, Start, pass_one
from tests.system.http import get
from tests.system.networks import CONVERGENCE
from tests.system.router import EVERYTHING, RouterProcess, Section, listener, poll

WORKER_COUNTS = (1, 3)
pytestmark = pytest.mark.adversarial

LINK_FULL = ("amqp:resource-limit-exceeded", "link disallowed by local policy")
FULL = ("amqp:resource-limit-exceeded", "connection disallowed by local policy")


def vhost(hostname: str, group: dict[str, Any] | None = None, **attributes: Any) -> Section:
    return "vhost", {"hostname": hostname, **attributes, "groups": {"all": {**EVERYTHING, **(group or {})}}}


RATE, OCTETS, BUFFERED = 200, 100_000, 400_000
SECTIONS: list[Section] = [
    listener("brokers", role="route-container"),
    listener("http", http=True),
    ("linkRoute", {"prefix": "routed", "direction": "in", "containerId": "broker"}),
    ("policy", {"enableVhostPolicy": True}),
    vhost("$default"),
    vhost("links", maxLinks=5),
    vhost("group-links", {"maxLinks": 5}),
    vhost("addresses", maxAddresses=3),
    vhost("few", {"maxConnections": 2}),
    vhost("messages", maxMessagesPerSecond=RATE),
    vhost("group-messages", {"maxMessagesPerSecond": RATE}),
    vhost("octets", maxOctetsPerSecond=OCTETS),
    vhost("buffered", maxBufferedOctets=BUFFERED),
    vhost("parts", maxBufferedOctets=50_000),
]


def stats_of(management: Management, hostname: str) -> dict[str, Any]:
    return management.one("vhostStats", hostname=hostname)


@pytest.mark.parametrize("hostname", ["links", "group-links"])
def test_links_of_all_connections_share_the_limit(connect: Connect, management: Management, hostname: str) -> None:
    """Attach 40 links at once over two connections; a detached link makes room for another."""
    peers = [connect(hostname=hostname) for _ in range(2)]
    links: list[PeerSender | PeerReceiver] = []
    for number in range(20):
        for peer in peers:
            attach = peer.sender if number % 2 else peer.receiver
            links.append(attach(f"x{number}", wait=False))
    for link in links:
        link.wait_attached()
    for peer in peers:
        peer.barrier()
    refused = [link for link in links if link.detached]
    assert len(refused) == 35
    assert {link.wait_detached() for link in refused} == {LINK_FULL}
    row = stats_of(management, hostname)
    assert row["linksCurrent"] == row["groupState"]["all"]["links"] == 5
    next(link for link in links if not link.detached).detach()
    poll(lambda: stats_of(management, hostname)["linksCurrent"] == 4, "the link is gone")
    assert not peers[0].sender("y", credit=False).detached
    assert peers[1].sender("z", wait=False).wait_detached() == LINK_FULL
    for peer in peers:
        peer.drop()
    poll(lambda: stats_of(management, hostname)["linksCurrent"] == 0, "all links are gone")


def test_address_used_by_several_links_counts_once(connect: Connect, management: Management) -> None:
    peer, other = connect(hostname="addresses"), connect(hostname="addresses")
    dynamic = peer.receiver(dynamic=True, credit=1)
    links = [peer.sender("one", credit=False), other.receiver("one", 1), other.receiver("amqp:/one", 1)]
    links.append(peer.receiver("two", 1))
    assert stats_of(management, "addresses")["addressesCurrent"] == 3
    for attempt in (peer.sender("three", wait=False), other.receiver(dynamic=True, wait=False)):
        assert attempt.wait_detached() == LINK_FULL
    assert not other.sender("two", credit=False).detached
    # An anonymous sender has no address.
    assert not other.sender(credit=False).detached
    dynamic.detach()
    poll(lambda: stats_of(management, "addresses")["addressesCurrent"] == 2, "the generated address is gone")
    assert not peer.sender("three", credit=False).detached


def test_connections_of_a_group_share_the_limit(router: RouterProcess, connect: Connect) -> None:
    first, second = connect(hostname="few"), connect(hostname="few")
    assert connect(hostname="few").expect_close() == FULL
    router.wait_log(r"DENY AMQP Open for user .* vhost 'few': Connection denied by group limit")
    first.drop()
    second.barrier()
    poll(lambda: _admits(router, "few"), "there is room again")


def _admits(router: RouterProcess, hostname: str) -> bool:
    with AmqpPeer.opened(router.port, hostname=hostname) as peer:
        try:
            peer.barrier()
        except AssertionError:
            return False
        return True


def _seconds(senders: list[PeerSender], receivers: list[PeerReceiver], count: int, payload: bytes) -> float:
    """Send `count` messages over all senders as credit allows; return the seconds until all have arrived."""
    begun = time.monotonic()
    sent = 0
    while sent < count:
        for sender in senders:
            sender.wait_credit()
            while sender.credit and sent < count:
                sender.send(payload, settled=True)
                sent += 1
    _wait_received(receivers, count)
    return time.monotonic() - begun


def _wait_received(receivers: list[PeerReceiver], count: int) -> None:
    """Wait until `count` messages have arrived in all."""

    def received() -> bool:
        for receiver in receivers:
            receiver.peer.read_available()
        return sum(len(each.deliveries) for each in receivers) == count

    poll(received, f"{count} messages", 60.0)


@pytest.mark.parametrize("hostname", ["messages", "group-messages"])
def test_messages_of_all_connections_share_one_rate(
    connect: Connect, fresh: Fresh, management: Management, hostname: str
) -> None:
    """No message is lost or refused. Beyond the rate, one second's worth may pass at once, and one delivery of each
    link."""
    senders, receivers = [], []
    for _ in range(4):
        address, peer = fresh(), connect(hostname=hostname)
        receivers.append(connect(hostname=hostname).receiver(address, 5000))
        senders.append(peer.sender(address))
    before = (
        stats_of(management, hostname)["groupState"]["all"] if "group" in hostname else stats_of(management, hostname)
    )
    bystander = fresh()
    innocent = connect().receiver(bystander, 5000)
    count = 5 * RATE
    taken = _seconds(senders, receivers, count, message.message("x"))
    assert taken > count / RATE - 1.5, taken
    after = (
        stats_of(management, hostname)["groupState"]["all"] if "group" in hostname else stats_of(management, hostname)
    )
    assert after["messages"] - before["messages"] == count
    assert after["creditHeldBack"] > before["creditHeldBack"]
    begun = time.monotonic()
    pass_one(connect().sender(bystander), innocent, "not slowed down")
    assert time.monotonic() - begun < taken


def test_messages_on_anonymous_and_routed_links_keep_the_rate(
    router: RouterProcess, connect: Connect, fresh: Fresh
) -> None:
    broker = RouteContainer.connected(router.ports["brokers"])
    peer = connect(hostname="messages")
    address = fresh()
    receiver = connect(hostname="messages").receiver(address, 5000)
    anonymous = peer.sender()
    taken = _seconds([anonymous], [receiver], 3 * RATE, message.message("x", to=address))
    assert taken > 1.5, taken
    sender = peer.sender("routed.q", wait=False)
    broker.session_begun()
    end = broker.link_attached()
    assert isinstance(end, PeerReceiver)
    end.flow(5000)
    begun = time.monotonic()
    for _ in range(4 * RATE):
        sender.wait_credit()
        sender.send(message.message("x"), settled=True)
    _wait_received([end], 4 * RATE)
    assert time.monotonic() - begun > 1.5
    broker.drop()


@pytest.mark.parametrize("frames", [1, 30], ids=["messages", "streams"])
def test_octets_of_messages_and_streams_keep_the_rate(
    connect: Connect, fresh: Fresh, management: Management, frames: int
) -> None:
    address = fresh()
    receiver = connect(hostname="octets").receiver(address, 5000)
    peer = connect(hostname="octets")
    sender = peer.sender(address)
    size = 10_000 * frames
    count = 5 * OCTETS // size
    begun = time.monotonic()
    for _ in range(count):
        sender.wait_credit()
        sender.send(message.message("x" * size), settled=True)
    _wait_received([receiver], count)
    taken = time.monotonic() - begun
    # Credit that was granted before the router saw the size of messages lets one message pass early.
    assert taken > (count * size - size) / OCTETS - 1.5 - (0 if frames == 1 else 1.5), taken


def test_buffered_octets_of_all_connections_share_the_bound(
    connect: Connect, fresh: Fresh, management: Management
) -> None:
    """With consumers that take nothing, senders get neither credit nor window; other clients are not affected, and all
    recover."""
    receivers, senders = [], []
    for _ in range(4):
        address = fresh()
        receivers.append(connect(hostname="buffered").receiver(address, 0))
        senders.append(connect(hostname="buffered").sender(address))
    payload = message.message("x" * 10_000)
    sent = 0
    begun = time.monotonic()
    while sent < 400 and time.monotonic() - begun < 60:
        ready = [sender for sender in senders if sender.credit and sender.session.remote_window > 0]
        if not ready:
            if stats_of(management, "buffered")["bufferedOctets"] >= BUFFERED:
                break
            for sender in senders:
                sender.peer.barrier()
        for sender in ready:
            sender.send(payload)
            sent += 1
    held = stats_of(management, "buffered")["bufferedOctets"]
    assert held > BUFFERED - 4 * 11_000, held
    assert held < 3 * BUFFERED, held
    innocent = fresh()
    bystander = connect().receiver(innocent, 10)
    pass_one(connect().sender(innocent), bystander, "of somebody else")
    for receiver in receivers:
        receiver.flow(1000)
    _wait_received(receivers, sent)
    for receiver in receivers:
        for delivery in list(receiver.deliveries):
            delivery.settle()
    poll(lambda: stats_of(management, "buffered")["bufferedOctets"] == 0, "no octets are held")
    for sender in senders:
        sender.wait_credit()


def test_metrics_page_shows_limits_and_use(router: RouterProcess, connect: Connect) -> None:
    peer = connect(hostname="links")
    peer.sender("a", credit=False)
    connect(hostname="few")
    page = get(router.ports["http"], "/metrics").text
    assert re.search(r'^sluice_vhost_connections{group="",vhost="few"} [12]\.0$', page, re.MULTILINE)
    assert 'sluice_vhost_limit{group="",limit="maxConnections",vhost="few"} 65535.0' in page
    assert page.count('sluice_vhost_connections{group="",vhost="links"}') == 1
    assert 'sluice_vhost_links{group="",vhost="links"} 1.0' in page
    assert 'sluice_vhost_limit{group="",limit="maxLinks",vhost="links"} 5.0' in page
    assert f'sluice_vhost_limit{{group="all",limit="maxMessagesPerSecond",vhost="group-messages"}} {RATE}.0' in page


def test_changed_limits_apply_to_open_connections_with_on_change_close(start: Start, workers: int) -> None:
    policy: Section = "policy", {"enableVhostPolicy": True}
    router = start([listener(), policy, vhost("$default"), vhost("live", onChange="close")], workers)
    with AmqpPeer.opened(router.port) as own, AmqpPeer.opened(router.port, hostname="live") as peer:
        receiver, sender = peer.receiver("a", 5000), peer.sender("a")
        management = Management(own)
        management.update("vhost", "vhost/live", maxMessagesPerSecond=RATE, maxLinks=2)
        assert peer.sender("b", wait=False).wait_detached() == LINK_FULL
        taken = _seconds([sender], [receiver], 3 * RATE, message.message("x"))
        assert taken > 0.5, taken
        management.update("vhost", "vhost/live", maxMessagesPerSecond=0, maxLinks=0)
        assert not peer.sender("b", credit=False).detached


def test_edge_router_applies_the_quota_to_its_clients(start: Start, workers: int) -> None:
    policy: Section = "policy", {"enableVhostPolicy": True}
    above = start([("router", {"mode": "interior", "id": "A"}), listener(), listener(EDGES, role="edge")], workers)
    limited = vhost("messages", maxMessagesPerSecond=RATE)
    below = start([*edge("E", above), policy, vhost("$default"), limited], workers)
    view = EdgeView(above)
    with AmqpPeer.opened(above.port) as consumer, AmqpPeer.opened(below.port, hostname="messages") as peer:
        receiver = consumer.receiver("far", 5000)
        sender = peer.sender("far", credit=False)
        sender.wait_credit(timeout=CONVERGENCE)
        assert view is not None
        taken = _seconds([sender], [receiver], 3 * RATE, message.message("x"))
        assert taken > 1.5, taken


def test_killed_worker_releases_its_buffered_octets(start: Start) -> None:
    """Octets held by connections of the killed worker no longer count against the vhost."""
    policy: Section = "policy", {"enableVhostPolicy": True}
    limited = vhost("buffered", maxBufferedOctets=BUFFERED)
    router = start([listener(), policy, vhost("$default"), limited], 3)
    with AmqpPeer.opened(router.port) as own:
        management = Management(own)
        peers = [AmqpPeer.opened(router.port, hostname="buffered", container_id=f"c{number}") for number in range(6)]
        for number, peer in enumerate(peers):
            peer.receiver(f"q{number}", 0)
            sender = peer.sender(f"q{number}")
            for _ in range(3):
                sender.send(message.message("x" * 10_000))
            peer.barrier()
        poll(lambda: stats_of(management, "buffered")["bufferedOctets"] > 150_000, "octets are held")
        for peer in peers:
            peer.drop()
        poll(lambda: stats_of(management, "buffered")["bufferedOctets"] == 0, "no octets are held", 30.0)


def test_incomplete_messages_at_the_bound_are_completed(connect: Connect, fresh: Fresh, management: Management) -> None:
    """Incomplete messages that cannot be routed yet may fill the bound, and are still completed."""
    address = fresh()
    receiver = connect(hostname="parts").receiver(address, 100)
    peer = connect(hostname="parts")
    senders = [peer.sender(address) for _ in range(8)]
    # A message cannot be routed before its properties section is complete.
    long = message.properties(to="x" * 30_000, user_id=b"") + message.message("whole")
    for sender in senders:
        sender.send(long[:15_000], more=True)
    poll(lambda: stats_of(management, "parts")["bufferedOctets"] > 50_000, "parts are held")
    for sender in senders:
        sender.send(long[15_000:])
    assert len(receiver.receive(8)) == 8
