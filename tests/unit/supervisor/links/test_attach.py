"""Decision about an attach (routing-semantics.md 4.2 to 4.5, section 12)."""

import re

import pytest

from sluice.router.addressing.settings import AddressSetting, AddressSettings
from sluice.supervisor.addresses.consumer_edge import ConsumerEdge
from sluice.supervisor.links.attach import (
    FORBIDDEN,
    MOST_PEERS,
    NO_COORDINATOR,
    NO_ROUTE,
    NOT_FOUND,
    TABLE_FULL,
    TOO_MANY_PEERS,
    WRONG_LINK,
    WRONG_ROLE,
    AttachAccepted,
    AttachDecider,
)
from tests.unit.supervisor.harness import attach
from tests.unit.supervisor.journaled_table import JournaledTable

SETTINGS = [
    ("closest/#", AddressSetting("closest")),
    ("multicast/#", AddressSetting("multicast")),
    ("unavailable/#", AddressSetting("unavailable")),
    ("way/#", AddressSetting(ingress_phase=0, egress_phase=1)),
    ("back/#", AddressSetting(fallback=True, priority=7)),
    ("acme.com/closest/#", AddressSetting("closest")),
    ("near/#", AddressSetting(scope="local")),
]


class TableWithDecisions:
    def __init__(self, mode="standalone", default="balanced", limit=1000):
        self.table = JournaledTable(limit).table
        self.attaching = AttachDecider("QDR", mode, AddressSettings(SETTINGS, default), self.table)

    def decide(self, direction, address, role="normal", **more):
        return self.attaching.decide(attach(1, direction, address, **more), role)

    def key(self, direction, address, **more):
        decision = self.decide(direction, address, **more)
        assert isinstance(decision, AttachAccepted), decision
        assert decision.record is not None
        return decision.record.key


@pytest.fixture
def router():
    return TableWithDecisions()


def caps(*symbols, array=False):
    return [list(symbols), array]


@pytest.mark.parametrize("address", [None, ""])
def test_attach_without_address_is_anonymous(router, address):
    assert router.decide("in", address) == AttachAccepted(None)
    assert router.decide("out", address) is NO_ROUTE


@pytest.mark.parametrize("direction", ["in", "out"])
@pytest.mark.parametrize("capability", ["qd.router", "qd.router-data"])
def test_router_capabilities_are_forbidden(router, direction, capability):
    assert router.decide(direction, "a", caps=caps(capability)) is FORBIDDEN
    assert router.decide(direction, None, caps=caps(capability)) is FORBIDDEN
    assert isinstance(router.decide(direction, "a", caps=caps(capability, array=True)), AttachAccepted)
    assert FORBIDDEN == ("qd:forbidden", "Connectivity to the node is forbidden")


def test_clients_at_router_listener_are_refused(router):
    assert router.decide("in", None, role="inter-router") is WRONG_ROLE
    assert router.decide("out", "a", role="inter-router") is WRONG_ROLE
    assert isinstance(router.decide("out", "a", role="edge"), AttachAccepted)


def test_links_of_other_edge_router_are_limited():
    """Links of an inter-edge connection follow docs/internals/edge.md."""
    router = TableWithDecisions("edge")

    def decide(direction, address, **more):
        return router.decide(direction, address, role="inter-edge", **more)

    assert decide("out", "a").record.key == "M0a"
    assert decide("out", "back/a", caps=caps("qd.fallback")).record.key == "MFback/a"
    assert decide("out", "way/a", caps=caps("qd.waypoint.1")).record.key == "M0way/a"
    downlink = decide("out", "F", caps=caps("qd.router-edge-downlink"))
    assert (downlink.record.key, downlink.link_type) == ("HF", "edge-downlink")
    assert decide("in", "_$qd.edge_heartbeat").service == "heartbeat"
    assert decide("in", None) == AttachAccepted(None), "for streams"
    for direction, address, more in (
        ("in", "a", {}),
        ("in", None, {"coordinator": True}),
        ("in", "_$qd.addr_lookup", {}),
        ("out", None, {"dynamic": True}),
        ("out", "_$qd.edge_addr_tracking", {}),
        ("out", "_local/x", {}),
        ("out", "_topo/0/A/x", {}),
        ("out", "_edge/F/x", {}),
        ("out", "QDR", {"caps": caps("qd.router-edge-downlink")}),
    ):
        assert decide(direction, address, **more) is WRONG_LINK, (direction, address)
    assert decide("out", None) is NO_ROUTE
    assert decide("out", "near/a") is NO_ROUTE, "its scope is local"


def test_edge_routers_per_address_are_bounded():
    router = TableWithDecisions("edge")
    for number in range(MOST_PEERS):
        record = router.decide("out", "a", role="inter-edge").record
        router.table.add_consumer(record, 0, number, 1, 10, ConsumerEdge(7, 1, f"mark{number}"))
    assert router.decide("out", "a", role="inter-edge") is TOO_MANY_PEERS
    assert isinstance(router.decide("out", "a"), AttachAccepted), "clients are not limited"


def test_coordinator_attach_is_refused():
    for default in ("balanced", "unavailable"):
        assert TableWithDecisions(default=default).decide("in", None, coordinator=True) is NO_COORDINATOR
    assert NO_COORDINATOR.condition == "amqp:precondition-failed"


@pytest.mark.parametrize(
    ("mode", "direction", "pattern", "prefix"),
    [
        ("standalone", "out", r"amqp:/_topo/0/QDR/temp\.[a-zA-Z0-9+_]{15}", "Ltemp."),
        ("interior", "out", r"amqp:/_topo/0/QDR/temp\.[a-zA-Z0-9+_]{15}", "Ltemp."),
        ("edge", "out", r"amqp:/_edge/QDR/temp\.[a-zA-Z0-9+_]{15}", "Ltemp."),
        ("edge", "in", r"amqp:/_\$temp\.[a-zA-Z0-9+_]{15}", "M0_$temp."),
        ("standalone", "in", r"amqp:/_\$temp\.[a-zA-Z0-9+_]{15}", "M0_$temp."),
    ],
)
@pytest.mark.parametrize("tenant", [None, "acme.com/"])
def test_dynamic_address_is_generated(mode, direction, pattern, prefix, tenant):
    router = TableWithDecisions(mode, default="unavailable")
    decision = router.decide(direction, "ignored", dynamic=True, tenant=tenant)
    assert re.fullmatch(pattern, decision.generated)
    assert decision.record.key.startswith(prefix)
    assert decision.record.treatment == "balanced"
    assert decision.to == (decision.generated if direction == "in" else None)
    assert router.key("in", decision.generated) == decision.record.key
    assert router.decide(direction, None, dynamic=True).record is not decision.record


def test_dynamic_address_property_needs_link_route(router):
    assert router.decide("out", None, dynamic=True, dynamic_address="a") is NO_ROUTE


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("a", "M0a"),
        ("/a/", "M0a"),
        ("amqp://host:1/a", "M0a"),
        ("_local/zz", "Lzz"),
        ("_topo/0/QDR/zz", "Lzz"),
        ("_edge/QDR/zz", "Lzz"),
        ("$management", "M0$management"),
    ],
)
def test_equivalent_names_share_one_address(router, text, key):
    assert router.key("out", text) == key
    decision = router.decide("in", text)
    assert decision.record.key == key
    assert decision.to == text  # as the client wrote it


@pytest.mark.parametrize("text", ["_topo/0/OTHER/x", "_topo/all/X", "_topo/1/x", "_edge/E/x"])
@pytest.mark.parametrize("default", ["balanced", "unavailable"])
def test_addresses_of_other_routers_accept_producers(text, default):
    router = TableWithDecisions("interior", default)
    assert router.decide("out", text) is NO_ROUTE
    assert router.decide("in", text).record.treatment == "closest"


# brokers-and-edge.md ED-14.
def test_address_beyond_uplink_has_edge_record():
    router = TableWithDecisions("edge")
    assert router.key("in", "_topo/0/OTHER/x") == "L_edge"
    assert router.decide("out", "_topo/0/OTHER/x") is NO_ROUTE
    assert router.decide("out", "_local/_edge") is NO_ROUTE
    assert TableWithDecisions().key("out", "_local/_edge") == "L_edge"


@pytest.mark.parametrize("direction", ["in", "out"])
def test_unavailable_address_is_not_found(router, direction):
    assert router.decide(direction, "unavailable.x") is NOT_FOUND
    assert NOT_FOUND == ("amqp:not-found", "Node not found")
    assert not router.table.records
    everything = TableWithDecisions(default="unavailable")
    assert everything.decide(direction, "a") is NOT_FOUND
    assert everything.decide(direction, "_local/a") is NOT_FOUND
    assert isinstance(everything.decide(direction, "closest/a"), AttachAccepted)


def test_known_address_is_bound_despite_settings(router):
    record = router.table.create("M0unavailable/x", "closest", None, "throttle")
    assert router.decide("in", "unavailable/x").record is record
    assert record.treatment == "closest"


def test_address_settings_choose_treatment(router):
    assert router.decide("in", "closest/a").record.treatment == "closest"
    assert router.decide("in", "multicast.a").record.treatment == "multicast"
    assert router.decide("in", "other").record.treatment == "balanced"
    assert router.decide("in", "_local/multicast/a").record.treatment == "balanced"
    assert router.decide("in", "back/a").record.priority == 7


# inter-router.md 3.3.
@pytest.mark.parametrize(
    ("capabilities", "producer", "consumer"),
    [
        (caps(), 0, 0),
        (caps("qd.waypoint"), 1, 0),
        (caps("qd.waypoint_1"), 1, 0),
        (caps("qd.waypoint.3"), 3, 2),
        (caps("qd.waypoint_9"), 9, 8),
        (caps("qd.waypoint_0"), 0, 0),
        (caps("qd.waypoint_10"), 0, 0),
        (caps("qd.waypoint4"), 0, 0),
        (caps("other", "qd.waypoint_4", array=True), 4, 3),
    ],
)
def test_waypoint_capability_sets_phase(router, capabilities, producer, consumer):
    for direction, phase in (("in", producer), ("out", consumer)):
        decision = router.decide(direction, "a", caps=capabilities)
        assert (decision.record.key, decision.phase) == (f"M{phase}a", phase)


def test_configured_phases_are_used(router):
    assert router.key("in", "way/1") == "M0way/1"
    assert router.key("out", "way/1") == "M1way/1"
    assert router.key("out", "way/1", caps=caps("qd.waypoint")) == "M0way/1"
    assert router.decide("out", "way/1").phase == 1


@pytest.mark.parametrize("array", [False, True])
def test_fallback_capability_selects_fallback_instance(router, array):
    capability = caps("qd.fallback", array=array)
    consumer = router.decide("out", "back/a", caps=capability)
    assert (consumer.record.key, consumer.phase) == ("MFback/a", 22)
    assert "M0back/a" in router.table.records
    producer = router.decide("in", "back/a", caps=capability)
    assert (producer.record.key, producer.phase, producer.fallback) == ("M0back/a", 0, False)
    assert router.decide("in", "back/a").fallback


def test_tenant_prefixes_address(router):
    decision = router.decide("in", "/closest/a", tenant="acme.com/")
    assert (decision.record.key, decision.to) == ("M0acme.com/closest/a", "acme.com/closest/a")
    assert decision.record.treatment == "closest"
    assert router.decide("in", "multicast/a", tenant="acme.com/").record.treatment == "balanced"
    assert router.key("out", "acme.com/closest/a") == "M0acme.com/closest/a"
    assert router.key("out", "$management", tenant="acme.com/") == "M0acme.com/$management"
    assert router.key("out", "_local/a", tenant="acme.com/") == "La"
    assert router.key("out", "a", tenant="/") == "M0/a"


def test_full_table_refuses_new_addresses():
    router = TableWithDecisions(limit=3)
    for name in "ab":
        assert isinstance(router.decide("in", name), AttachAccepted)
    assert router.decide("in", "c") is TABLE_FULL
    assert router.decide("out", None, dynamic=True) is TABLE_FULL
    assert isinstance(router.decide("in", "a"), AttachAccepted)
