"""Multi-tenancy (routing-semantics.md 12)."""

import pytest

from tests.peer import message
from tests.peer.frames import target
from tests.peer.management import Management
from tests.peer.message import annotations_of
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Connect, Fresh, pass_one
from tests.system.router import Section, listener

pytestmark = pytest.mark.adversarial

SECTIONS: list[Section] = [
    listener("tenants", multiTenant=True),
    listener("tenants_open", multiTenant=True, stripAnnotations="no"),
    ("address", {"prefix": "acme.com/all", "distribution": "multicast"}),
]


def connect_tenant(connect: Connect, hostname: str | None = "acme.com", listener_name: str = "tenants") -> AmqpPeer:
    """Return a connection to a multi-tenant listener."""
    return connect(listener_name, hostname=hostname)


# brokers-and-edge.md L-10.
def test_tenants_are_separate_and_others_use_the_prefix(connect: Connect, fresh: Fresh) -> None:
    address = fresh("plain")
    mine = connect_tenant(connect).receiver(address, 10)
    assert mine.source["address"] == address
    other = connect_tenant(connect, "other.org").receiver(address, 10)
    outside = connect().receiver(address, 10)
    pass_one(connect_tenant(connect).sender(f"/{address}"), mine, "tenant, targeted")
    pass_one(connect_tenant(connect).sender(), mine, "tenant, anonymous", to=address)
    pass_one(connect().sender(f"acme.com/{address}"), mine, "outside, targeted")
    pass_one(connect().sender(), mine, "outside, anonymous", to=f"acme.com/{address}")
    pass_one(connect_tenant(connect, "other.org").sender(address), other, "other tenant")
    pass_one(connect().sender(address), outside, "nobody's")


def test_address_rows_have_the_tenant_prefix(connect: Connect, fresh: Fresh, management: Management) -> None:
    address = fresh("plain")
    connect_tenant(connect).receiver(address)
    keys = {row["key"] for row in management.query("router.address", "key")}
    assert f"M0acme.com/{address}" in keys
    assert f"M0{address}" not in keys


def test_connection_shows_its_tenant(connect: Connect, management: Management) -> None:
    connect("tenants", hostname="acme.com", container_id="the tenant")
    assert management.one("connection", container="the tenant")["tenant"] == "acme.com/"


def test_connection_without_hostname_has_no_tenant(connect: Connect, fresh: Fresh) -> None:
    address = fresh("plain")
    receiver = connect_tenant(connect, None).receiver(address, 5)
    pass_one(connect().sender(address), receiver)


def test_local_addresses_are_not_prefixed(connect: Connect, fresh: Fresh) -> None:
    name = fresh("local").replace("/", "")
    receiver = connect_tenant(connect).receiver(f"_local/{name}", 5)
    pass_one(connect().sender(f"_local/{name}"), receiver)
    pass_one(connect_tenant(connect, "other.org").sender(), receiver, to=f"_topo/0/QDR/{name}")


def test_management_is_reached_by_its_local_name_only(connect: Connect) -> None:
    peer = connect_tenant(connect)
    hidden = peer.sender("$management", credit=False)
    peer.barrier()
    assert not hidden.flows
    assert peer.sender("_local/$management").request(message.message("x")).name == "accepted"


def test_dynamic_source_is_reached_from_all_tenants(connect: Connect) -> None:
    receiver = connect_tenant(connect).receiver(dynamic=True, credit=10)
    assert receiver.address.startswith("amqp:/_topo/0/QDR/temp.")
    pass_one(connect_tenant(connect).sender(), receiver, to=receiver.address)
    pass_one(connect_tenant(connect, "other.org").sender(receiver.address), receiver)
    pass_one(connect().sender(receiver.address), receiver)


def test_dynamic_target_has_no_tenant_prefix(connect: Connect) -> None:
    sender = connect_tenant(connect).sender(target=target(None, dynamic=True), credit=False)
    assert sender.target["address"].startswith("amqp:/_$temp.")


def test_address_settings_match_the_prefixed_address(connect: Connect, fresh: Fresh) -> None:
    address = fresh("all")
    receivers = [connect_tenant(connect).receiver(address, 5) for _ in range(2)]
    connect_tenant(connect).sender(address).send(message.message("to all"), settled=True)
    for receiver in receivers:
        receiver.next()
    only = fresh("multicast")
    first, second = (connect_tenant(connect).receiver(only, 5) for _ in range(2))
    sender = connect_tenant(connect).sender(only)
    sender.send(message.message("one"), settled=True)
    sender.send(message.message("two"), settled=True)
    first.next()
    second.next()
    assert len(first.deliveries) == len(second.deliveries) == 1


# brokers-and-edge.md L-13.
def test_annotation_shows_the_prefixed_address(connect: Connect, fresh: Fresh) -> None:
    address = fresh("plain")
    receiver = connect_tenant(connect, listener_name="tenants_open").receiver(address, 5)
    connect_tenant(connect).sender(address).send(message.message("x"), settled=True)
    connect_tenant(connect).sender().send(message.message("x", to=address), settled=True)
    for delivery in receiver.receive(2):
        found = annotations_of(delivery.payload)
        assert found is not None
        assert found["x-opt-qd.to"] == f"acme.com/{address}"
