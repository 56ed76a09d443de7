"""Limits of policy against peers that attach or open many times at once, at interior and edge routers (security.md 6).

Check and count are one step: requests beyond the limit are refused even while earlier ones wait for their answers, as
at an edge router that queries its interior router.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.peer.links import PeerLink
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Start
from tests.system.networks import CONVERGENCE, connector, interior, ports
from tests.system.router import RouterProcess, Section, listener, poll

pytestmark = pytest.mark.adversarial

AT_ONCE = 40
GROUP = {"users": "*", "remoteHosts": "*", "sources": "*", "targets": "*", "allowDynamicSource": True}
LIMITS = {"maxReceivers": 1, "maxSenders": 2, "maxSessions": 3}
TOO_MANY = ("amqp:resource-limit-exceeded", "link disallowed by local policy")


def vhost(hostname: str, group: dict[str, Any], **attributes: Any) -> Section:
    return "vhost", {"hostname": hostname, **attributes, "groups": {"all": {**GROUP, **group}}}


POLICY: list[Section] = [
    ("policy", {"enableVhostPolicy": True}),
    vhost("$default", {}),
    vhost("small", LIMITS),
    vhost("narrow", LIMITS, onChange="close"),
    vhost("full", {}, maxConnections=4),
    vhost("each", {}, maxConnectionsPerUser=3),
    vhost("place", {}, maxConnectionsPerHost=2),
]


@pytest.fixture(params=["interior", "edge"])
def router_with_policy(request: pytest.FixtureRequest, start: Start) -> Iterator[RouterProcess]:
    """Router with policy; an edge router is connected to an interior router."""
    if request.param == "interior":
        yield start([("router", {"mode": "interior"}), listener(), *POLICY], 3)
        return
    (port,) = ports(1)
    place: Section = "listener", {"name": "net", "role": "edge", "host": "127.0.0.1", "port": port}
    start([*interior("A")[:2], place])
    to: Section = "connector", {**connector(port)[1], "role": "edge"}
    edge = start([("router", {"mode": "edge", "id": "B"}), listener(), to, *POLICY])
    edge.wait_log(r"Edge connection .* established", CONVERGENCE)
    yield edge


def _attach_all(peer: AmqpPeer, receivers: bool) -> list[PeerLink]:
    session = peer.session
    if receivers:
        return [session.receiver(f"x{number}", wait=False) for number in range(AT_ONCE)]
    return [session.sender(f"x{number}", wait=False, credit=False) for number in range(AT_ONCE)]


@pytest.mark.parametrize("receivers", [True, False], ids=["receivers", "senders"])
def test_links_attached_at_once_keep_the_limit(router_with_policy: RouterProcess, receivers: bool) -> None:
    most = LIMITS["maxReceivers" if receivers else "maxSenders"]
    with AmqpPeer.opened(router_with_policy.port, hostname="small") as peer:
        for _ in range(2):  # detached and refused links no longer count
            links = _attach_all(peer, receivers)
            for link in links:
                link.wait_attached()
            peer.barrier()
            gone = [link for link in links if link.detached is not None]
            assert len(gone) == AT_ONCE - most
            assert {link.wait_detached() for link in gone} == {TOO_MANY}
            for link in links:
                if link.detached is not None:
                    link.send_detach()
                else:
                    link.detach()


def test_links_detached_before_their_answer_do_not_count(router_with_policy: RouterProcess) -> None:
    with AmqpPeer.opened(router_with_policy.port, hostname="small") as peer:
        for _ in range(AT_ONCE):
            session = peer.begin(channel=1)
            session.receiver("left", wait=False)
            session.end()
        peer.begin(channel=1).receiver("stays")


@pytest.mark.parametrize(("name", "most"), [("full", 4), ("each", 3), ("place", 2)])
def test_connections_opened_at_once_keep_the_limit(router_with_policy: RouterProcess, name: str, most: int) -> None:
    with AmqpPeer.opened(router_with_policy.port) as own, ExitStack() as stack:
        management = Management(own)
        peers = [stack.enter_context(AmqpPeer(router_with_policy.port)) for _ in range(AT_ONCE)]
        for peer in peers:
            peer.send_open(hostname=name)

        def decided() -> dict[str, Any] | None:
            row = management.one("vhostStats", hostname=name)
            return row if row["connectionsApproved"] + row["connectionsDenied"] == AT_ONCE else None

        row = poll(decided, "all opens are decided")
        assert (row["connectionsCurrent"], row["connectionsDenied"]) == (most, AT_ONCE - most)


def test_sessions_begun_at_once_keep_the_limit(router_with_policy: RouterProcess) -> None:
    with AmqpPeer.opened(router_with_policy.port, hostname="small") as peer:
        for channel in range(AT_ONCE):
            peer.frame("begin", channel=channel, next_outgoing_id=0, incoming_window=1, outgoing_window=1)
        error = peer.expect_close()
        assert error is not None
        assert "above negotiated channel_max 2" in str(error[1])


def test_links_waiting_for_answers_follow_changed_rules(router_with_policy: RouterProcess) -> None:
    """Links allowed before the change are checked again, whether their attach was answered or not."""
    with (
        AmqpPeer.opened(router_with_policy.port, hostname="narrow") as peer,
        AmqpPeer.opened(router_with_policy.port) as own,
    ):
        links = _attach_all(peer, receivers=False)
        nobody = {"all": {**GROUP, "targets": ""}}
        Management(own).update("vhost", "vhost/narrow", groups=nobody)
        for link in links:
            assert link.wait_detached() in (TOO_MANY, ("amqp:unauthorized-access", "link disallowed by local policy"))
        peer.barrier()


@pytest.mark.parametrize("end", ["close", "drop", "detach"])
def test_end_of_a_connection_is_logged_with_its_use(start: Start, workers: int, end: str) -> None:
    """The text is that of Dispatch 1.19, at level debug (security.md P-72)."""
    debug: Section = "log", {"module": "POLICY", "enable": "debug+"}
    router = start([listener(), debug, *POLICY], workers)
    with AmqpPeer.opened(router.port, hostname="small") as other:  # stays open
        other.begin()
        peer = AmqpPeer.opened(router.port, hostname="small")
        session = peer.begin()
        peer.begin()
        senders = [session.sender(f"s{number}", credit=False) for number in range(2)]
        receivers = [session.receiver("r")]
        for denied in (session.sender("s2", wait=False, credit=False), session.receiver("r2", wait=False)):
            assert denied.wait_detached() is not None
        if end == "detach":
            for link in (*senders, *receivers):
                link.detach()
        if end == "drop":
            peer.drop()
        else:
            peer.close()
        used = "n_senders=0, n_receivers=0" if end == "detach" else "n_senders=2, n_receivers=1"
        router.wait_log(
            rf"POLICY \(debug\) \[C\d+\] Connection '127\.0\.0\.1:\d+' closed with resources n_sessions=2, {used}, "
            r"sessions_denied=0, senders_denied=1, receivers_denied=1, max_message_size_denied:0, "
            r"nConnections= [1-9]\d*\.$"
        )


def test_end_of_a_connection_without_policy_is_not_logged(start: Start) -> None:
    router = start([listener(), ("log", {"module": "POLICY", "enable": "debug+"})], 3)
    AmqpPeer.opened(router.port).close()
    router.wait_log("Connection Closed")
    assert "closed with resources" not in router.log
