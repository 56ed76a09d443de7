"""Profiles of listeners and connectors for workers, and address settings by pattern."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.router.addressing.settings import AddressSetting
from sluice.router.config.entities import AddressConfig, ConnectorConfig, ListenerConfig
from sluice.router.config.load import load_text
from sluice.router.control.ops import Profile
from sluice.supervisor.configuration.ops import BUNDLE_CAPACITY, CONNECTOR_HANDSHAKE, address_entries, profile_op

ROUTER = "router {\nid: A\nmode: interior\n}\n"
USERS = "saslUsers {\nname: u\nfile: /dev/null\n}\n"


def endpoint(section: str, *attributes: str) -> ListenerConfig | ConnectorConfig:
    """Return a listener or connector with these attributes."""
    place = "host: h\nport: 7"
    configuration = load_text(
        "router.conf", f"{ROUTER}{USERS}{section} {{\n{place}\n" + "\n".join(attributes) + "\n}\n"
    )
    found: Any = (*configuration.listeners, *configuration.connectors)
    (each,) = found
    assert isinstance(each, ListenerConfig | ConnectorConfig)
    return each


def profile(section: str, *attributes: str) -> Profile:
    return profile_op(endpoint(section, *attributes), "key").profile


def test_profile_has_key_and_place_of_endpoint() -> None:
    op = profile_op(endpoint("listener"), "key", asks_for_sasl=True)
    assert (op.key, op.profile.host, op.profile.port, op.profile.asks_for_sasl) == ("key", "h", "7", True)


@pytest.mark.parametrize(
    ("role", "strips"), [("normal", (True, True)), ("inter-router", (False, False)), ("edge", (False, False))]
)
def test_annotations_are_never_stripped_between_routers(role: str, strips: tuple[bool, bool]) -> None:
    found = profile("listener", f"role: {role}", "stripAnnotations: both")
    assert (found.strip_annotations_in, found.strip_annotations_out) == strips


@pytest.mark.parametrize(("attributes", "capacity"), [((), BUNDLE_CAPACITY), (("linkCapacity: 70",), 70)])
def test_links_between_sluice_routers_have_larger_default_capacity(attributes: tuple[str, ...], capacity: int) -> None:
    found = profile("connector", "role: inter-router", *attributes)
    assert found.bundle_capacity == capacity
    assert found.link_capacity == (70 if attributes else 250)


@pytest.mark.parametrize(
    ("attributes", "binds"),
    [
        ((), False),
        (("saslUsers: u",), True),
        (("saslUsers: u", "saslMechanisms: PLAIN"), False),
        (("saslUsers: u", "saslMechanisms: PLAIN SCRAM-SHA-256-PLUS"), True),
        (("saslMechanisms: SCRAM-SHA-256-PLUS",), False),
    ],
)
def test_channel_binding_needs_users_and_mechanism(attributes: tuple[str, ...], binds: bool) -> None:
    assert profile("listener", *attributes).binds_logins is binds


def test_listener_has_attributes_for_clients() -> None:
    found = profile("listener", "initialHandshakeTimeoutSeconds: 9", "failoverUrls: amqps://a:1, b", "http: yes")
    assert found.initial_handshake_timeout_seconds == 9
    assert found.websockets
    assert [(each.scheme or "", each.host, each.port) for each in found.failover_servers] == [
        ("amqps", "a", "1"),
        ("", "b", "5672"),
    ]


def test_connector_does_not_authenticate_its_peer_by_sasl() -> None:
    found = profile("connector", "websockets: yes", "websocketPath: /amqp", "verifyHostname: no")
    assert (found.websockets, found.websocket_path, found.verify_hostname) == (True, "/amqp", False)
    assert (found.authenticate_peer, found.require_encryption, found.verify_peer) == (False, False, False)
    assert found.initial_handshake_timeout_seconds == CONNECTOR_HANDSHAKE
    assert found.failover_servers == []


# -- Address settings


def addresses(*sections: str) -> tuple[AddressConfig, ...]:
    text = "".join(f"address {{\n{section}\n}}\n" for section in sections)
    return load_text("router.conf", ROUTER + text).addresses


def test_prefix_and_pattern_have_canonical_pattern() -> None:
    entries, refused = address_entries(
        addresses("prefix: a/b\ndistribution: multicast", "pattern: c/*\nscope: site\npriority: 3")
    )
    assert refused == []
    assert entries == {
        "a/b/#": AddressSetting("multicast"),
        "c/*": AddressSetting(scope="site", priority=3),
    }


def test_second_setting_of_pattern_is_left_out() -> None:
    first, second, other = (addresses(each)[0] for each in ("prefix: a\npriority: 1", "pattern: a/#", "prefix: b"))
    entries, refused = address_entries((first, second, other))
    assert {pattern: setting.priority for pattern, setting in entries.items()} == {"a/#": 1, "b/#": None}
    (text,) = refused
    assert "a/#" in text
