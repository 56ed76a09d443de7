"""Tenants of a router with policy: the address space of a tenant is the vhost with its rules (brokers-and-edge.md
L-11)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.peer import message
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.route_container import RouteContainer
from tests.system.fixtures import Connect, Fresh, Start, pass_one
from tests.system.networks import CONVERGENCE, connector, interior, ports
from tests.system.router import RouterProcess, Section, listener, poll

pytestmark = pytest.mark.adversarial

GROUP = {
    "users": "*", "remoteHosts": "*", "sources": "*", "targets": "*", "allowDynamicSource": True,
    "allowAnonymousSender": True,
}  # fmt: skip
RED, BLUE, SHARED, DEFAULT = "red.example", "blue.example", "shared.example", "$default"


def vhost(hostname: str, **attributes: Any) -> Section:
    return "vhost", {"hostname": hostname, **attributes, "groups": {"all": GROUP}}


POLICY: list[Section] = [
    ("policy", {"enableVhostPolicy": True, "enableVhostNamePatterns": False}),
    vhost(RED, aliases="red"),
    vhost(BLUE),
    vhost(SHARED),
    vhost(DEFAULT),
    vhost("red.example/inner"),
]
TENANTS: list[Section] = [
    listener("tenants", multiTenant=True),
    listener("shared", multiTenant=True, policyVhost=SHARED),
]
SECTIONS = [*TENANTS, *POLICY]
#: Listener, hostname of the open, and address by which an intruder tries to reach the address `{}` of RED.
INTRUDERS = [
    ("tenants", None, "red.example/{}"),
    ("tenants", "", "red.example/{}"),
    ("tenants", "unknown", "red.example/{}"),
    ("tenants", BLUE, "red.example/{}"),
    ("tenants", BLUE, "/red.example/{}"),
    ("tenants", BLUE, "amqp://red.example/{}"),
    ("tenants", BLUE, "../red.example/{}"),
    ("tenants", "RED.example", "{}"),
    ("tenants", "red.example.", "{}"),
    ("tenants", " red.example", "{}"),
    ("shared", RED, "{}"),
    ("shared", "red", "{}"),
    ("shared", None, "red.example/{}"),
]


@pytest.fixture(params=INTRUDERS, ids=lambda param: " ".join(map(repr, param)))
def intruder(request: pytest.FixtureRequest) -> tuple[str, str | None, str]:
    found: tuple[str, str | None, str] = request.param
    return found


def test_intruder_cannot_send_to_the_tenant(
    connect: Connect, fresh: Fresh, intruder: tuple[str, str | None, str]
) -> None:
    address = fresh("orders")
    name, hostname, named = intruder
    victim = connect("tenants", hostname=RED).receiver(address, 10)
    stranger = connect(name, hostname=hostname)
    targeted = stranger.sender(named.format(address), credit=False)
    stranger.barrier()
    assert not targeted.credit
    assert stranger.sender().request(message.message("x", to=named.format(address))).name in {"modified", "released"}
    pass_one(connect("tenants", hostname=RED).sender(address), victim, "of the tenant")


def test_intruder_receives_nothing_of_the_tenant(
    connect: Connect, fresh: Fresh, intruder: tuple[str, str | None, str]
) -> None:
    address = fresh("orders")
    name, hostname, named = intruder
    stranger = connect(name, hostname=hostname)
    wanted = stranger.receiver(named.format(address), 10)
    victim = connect("tenants", hostname=RED).receiver(address, 10)
    sender = connect("tenants", hostname=RED).sender(address)
    for number in range(8):
        pass_one(sender, victim, f"secret {number}")
    stranger.barrier()
    assert not wanted.deliveries


@pytest.mark.parametrize(
    ("name", "hostname", "space"),
    [
        ("tenants", RED, RED), ("tenants", "red", RED), ("tenants", "unknown", DEFAULT), ("tenants", None, DEFAULT),
        ("tenants", "", DEFAULT), ("shared", RED, SHARED), ("shared", None, SHARED), ("", RED, None),
    ],
)  # fmt: skip
def test_tenant_space_is_the_resolved_vhost(
    connect: Connect, fresh: Fresh, management: Management, name: str, hostname: str | None, space: str | None
) -> None:
    prefix = "" if space is None else f"{space}/"
    address, container = fresh("orders"), fresh("container")
    client = connect(name, hostname=hostname, container_id=container)
    receiver = client.receiver(address, 10)
    assert receiver.source["address"] == address
    assert management.one("connection", container=container)["tenant"] == (prefix or None)
    assert f"M0{prefix}{address}" in {row["key"] for row in management.query("router.address", "key")}
    outside = connect(hostname=RED)
    pass_one(outside.sender(prefix + address), receiver, "outside, targeted")
    pass_one(outside.sender(), receiver, "outside, anonymous", to=prefix + address)


def test_alias_shares_the_space_of_its_vhost(connect: Connect, fresh: Fresh) -> None:
    address = fresh("orders")
    receiver = connect("tenants", hostname=RED).receiver(address, 10)
    pass_one(connect("tenants", hostname="red").sender(address), receiver, "targeted")
    pass_one(connect("tenants", hostname="red").sender(), receiver, "anonymous", to=address)


def test_tenant_name_with_slash_is_refused(connect: Connect) -> None:
    refused = connect("tenants", hostname="red.example/inner")
    text = "The name of a tenant must not contain a slash: vhost 'red.example/inner'"
    assert refused.expect_close() == ("amqp:invalid-field", text)
    connect(hostname="red.example/inner").barrier()  # the listener without tenants


def test_tenant_name_with_slash_is_refused_without_policy(start: Start, workers: int) -> None:
    router = start([listener("tenants", multiTenant=True)], workers)
    with AmqpPeer.opened(router.ports["tenants"], hostname="t1/a") as refused:
        text = "The name of a tenant must not contain a slash: hostname 't1/a'"
        assert refused.expect_close() == ("amqp:invalid-field", text)


def test_policy_checks_the_address_as_the_tenant_writes_it(start: Start, workers: int) -> None:
    own = {**GROUP, "sources": "orders", "targets": "orders"}
    limited: Section = "vhost", {"hostname": RED, "groups": {"all": own}}
    router = start([*TENANTS, ("policy", {"enableVhostPolicy": True}), limited, vhost(DEFAULT)], workers)
    with AmqpPeer.opened(router.ports["tenants"], hostname=RED) as tenant:
        tenant.receiver("orders", 10)
        denied = tenant.receiver("red.example/orders", wait=False)
        assert denied.wait_detached() == ("amqp:unauthorized-access", "link disallowed by local policy")


def test_tenant_connection_is_closed_when_its_vhost_changes(start: Start, workers: int) -> None:
    """Links of the connection belong to addresses of its former vhost, so the connection is closed."""
    policy: Section = "policy", {"enableVhostPolicy": True}
    vhosts = [vhost(RED, aliases="red", onChange="close"), vhost(DEFAULT, onChange="close")]
    router = start([listener(), *TENANTS, policy, *vhosts], workers)
    with AmqpPeer.opened(router.ports["tenants"], hostname="red") as tenant, AmqpPeer.opened(router.port) as own:
        tenant.receiver("orders", 10)
        Management(own).update("vhost", f"vhost/{RED}", aliases="")
        why = "A changed configuration puts this connection into another vhost"
        assert tenant.expect_close() == ("amqp:connection:forced", why)


def test_link_routes_and_auto_links_of_vhost_serve_its_alias_only(start: Start, workers: int) -> None:
    """Link routes and auto links are configured with the vhost's name: an alias reaches them, a stranger naming them
    does not. brokers-and-edge.md L-12."""
    brokers = listener("brokers", role="route-container", policyVhost=DEFAULT)
    waypoint: Section = "address", {"prefix": "red.example/queue", "waypoint": True}
    routed: list[Section] = [
        ("linkRoute", {"prefix": "red.example/link", "direction": way, "containerId": "broker"})
        for way in ("in", "out")
    ]  # fmt: skip
    linked: list[Section] = [
        ("autoLink", {"address": "red.example/queue", "direction": way, "containerId": "broker"})
        for way in ("in", "out")
    ]  # fmt: skip
    router = start([listener(), brokers, waypoint, *routed, *linked, *SECTIONS], workers)
    broker = RouteContainer.connected(router.ports["brokers"])
    broker.session_begun()
    ends = [broker.link_attached() for _ in range(2)]
    (queue,) = (end for end in ends if isinstance(end, PeerReceiver))
    queue.flow(10)
    with AmqpPeer.opened(router.ports["tenants"], hostname="red") as tenant:
        pass_one(tenant.sender("queue"), queue, "by the auto link")
        with AmqpPeer.opened(router.ports["shared"], hostname=RED) as stranger:
            named = ("link.a", "red.example/link.a", "queue", "red.example/queue")
            senders = [stranger.sender(address, credit=False) for address in named]
            stranger.barrier()
            assert not any(sender.credit for sender in senders)
        sender = tenant.sender("link.a", wait=False)
        broker.session_begun()
        end = broker.link_attached()
        assert end.target["address"] == "red.example/link.a"
        assert isinstance(end, PeerReceiver)
        end.flow(10)
        sender.wait_credit()
        pass_one(sender, end, "by the link route")
    broker.drop()


def _attach_pair(red: AmqpPeer, other: AmqpPeer) -> tuple[PeerReceiver, PeerSender]:
    receiver = red.receiver("orders", 10)
    sender = other.sender("orders")
    sender.wait_credit(timeout=CONVERGENCE)
    return receiver, sender


@pytest.mark.parametrize("role", ["inter-router", "edge"])
def test_tenants_at_two_routers_share_the_vhost_space(start: Start, role: str) -> None:
    """RED is reached by alias at one router and by name at the other; a stranger is in another vhost at both."""
    (port,) = ports(1)
    place: Section = "listener", {"name": "net", "role": role, "host": "127.0.0.1", "port": port}
    first = start([*interior("A")[:2], place, *SECTIONS])
    mode = "edge" if role == "edge" else "interior"
    to: Section = "connector", {**connector(port)[1], "role": role}
    second = start([("router", {"mode": mode, "id": "B"}), listener(), to, *SECTIONS])
    for mine, beyond in ((first, second), (second, first)):
        with (
            AmqpPeer.opened(mine.ports["tenants"], hostname=RED) as victim,
            AmqpPeer.opened(beyond.ports["tenants"], hostname="red") as friend,
            AmqpPeer.opened(beyond.ports["shared"], hostname=RED) as stranger,
        ):
            receiver, sender = _attach_pair(victim, friend)
            wanted = stranger.receiver("orders", 10)
            attempt = stranger.sender("orders")  # to the stranger's own receiver
            pass_one(attempt, wanted, "of the stranger")
            pass_one(friend.sender(), receiver, "anonymous", to="orders")
            assert len(wanted.deliveries) == 1
            for number in range(8):
                pass_one(sender, receiver, f"secret {number}")
            assert len(wanted.deliveries) == 1
            named = stranger.sender().request(message.message("x", to="red.example/orders"))
            assert named.name in {"modified", "released"}
            # Another router that reduced the whole address again would reach the victim's address.
            twice = "y:/x:/red.example/orders"
            assert stranger.sender().request(message.message("x", to=twice)).name == "rejected"
            for attempted in (stranger.sender(twice, wait=False), stranger.receiver(twice, 10, wait=False)):
                why = "The address of a tenant must not begin with more than one scheme"
                assert attempted.wait_detached() == ("amqp:invalid-field", why)
            stranger.barrier()
            assert len(receiver.deliveries) == 9
        poll(partial(_unknown, mine, "orders"), "the address is gone")


def _unknown(router: RouterProcess, address: str) -> bool:
    with AmqpPeer.opened(router.port) as own:
        return not any(address in row["key"] for row in Management(own).query("router.address", "key"))
