"""The configuration as the workers hear of it: listeners and address settings as ops."""
from collections.abc import Iterable
from typing import Any, Final

from router.config.entities import AddressConfig, ConnectorConfig, EndpointConfig, ListenerConfig
from router.ipc.control import OP_OFFER
from router.routing.pattern import PatternError, canonical, duplicate_pattern, from_prefix
from supervisor.table import Op

# Seconds that a peer has, from the TCP connection of a connector on, until its open must have come.
CONNECTOR_HANDSHAKE: Final = 30

# Deliveries that one link between routers of ours may have in flight where linkCapacity does not say it: a hop is a
# round trip more, and 250 would leave routers idle for much of it (1.19 has 250, and gets that).
BUNDLE_CAPACITY: Final = 1000


def offer_op(endpoint: ListenerConfig | ConnectorConfig, offer_key: str) -> Op:
    """The op that tells the workers what connections of a listener or connector may do; intervals in seconds, sizes in
    octets.

    offer_key: what a hand-over refers to.
    """
    attributes = _attributes(endpoint)
    if isinstance(endpoint, ListenerConfig):
        attributes["initialHandshakeTimeoutSeconds"] = endpoint.initial_handshake_timeout_seconds
        attributes["failoverServers"] = [
            {"scheme": server.scheme, "host": server.host, "port": server.port} for server in endpoint.failover_servers
        ]
    else:
        attributes["initialHandshakeTimeoutSeconds"] = CONNECTOR_HANDSHAKE
        attributes["failoverServers"] = []
    return [OP_OFFER, offer_key, attributes]


def _attributes(endpoint: EndpointConfig) -> dict[str, Any]:
    between_routers = endpoint.role == "inter-router"  # their annotations stay (brokers-and-edge.md, W-13)
    return {
        "host": endpoint.host,
        "port": endpoint.port_text,
        "role": endpoint.role,
        "cost": endpoint.cost,
        "saslMechanisms": list(endpoint.sasl_mechanisms),
        "maxFrameSize": endpoint.max_frame_size,
        "maxSessions": endpoint.max_sessions,
        "maxSessionFrames": endpoint.max_session_frames,
        "idleTimeoutSeconds": endpoint.idle_timeout_seconds,
        "stripAnnotationsIn": endpoint.strip_annotations_in and not between_routers,
        "stripAnnotationsOut": endpoint.strip_annotations_out and not between_routers,
        "linkCapacity": endpoint.link_capacity,
        "bundleCapacity": endpoint.link_capacity if endpoint.values.get("linkCapacity") else BUNDLE_CAPACITY,
        "maxBufferedMegabytes": endpoint.buffered_megabytes,
        "multiTenant": endpoint.multi_tenant,
        "openProperties": dict(endpoint.open_properties),
        "messageLoggingComponents": endpoint.message_components,
    }


def address_entry(address: AddressConfig) -> tuple[str, dict[str, Any]]:
    """The canonical pattern of an address and what the `setting` op says about it. Raises PatternError."""
    pattern = from_prefix(address.prefix) if address.prefix is not None else address.pattern or ""
    attributes = {
        "distribution": address.distribution,
        "ingressPhase": address.ingress_phase,
        "egressPhase": address.egress_phase,
        "priority": address.priority,
        "fallback": address.fallback,
        "presettledOverflow": address.presettled_overflow,
    }
    return "/".join(canonical(pattern)), attributes


def address_entries(addresses: Iterable[AddressConfig]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """All settings by canonical pattern, and a text for each address that is left out: why its pattern cannot be."""
    entries: dict[str, dict[str, Any]] = {}
    refused: list[str] = []
    for address in addresses:
        try:
            pattern, attributes = address_entry(address)
        except PatternError as error:
            refused.append(str(error))
            continue
        if pattern in entries:
            refused.append(str(duplicate_pattern(pattern)))
        else:
            entries[pattern] = attributes
    return entries, refused
