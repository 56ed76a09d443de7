"""The configuration as the workers hear of it: listeners and address settings as ops."""
from collections.abc import Iterable
from typing import Any

from router.config.entities import AddressConfig, ListenerConfig
from router.ipc.control import OP_LISTENER
from router.routing.pattern import PatternError, canonical, duplicate_pattern, from_prefix
from supervisor.table import Op


def listener_op(listener: ListenerConfig, offer_key: str) -> Op:
    """The op that tells the workers what connections of a listener may do; intervals in seconds, sizes in octets.

    offer_key: what a hand-over refers to.
    """
    attributes: dict[str, Any] = {
        "host": listener.host,
        "port": listener.port_text,
        "role": listener.role,
        "cost": listener.cost,
        "saslMechanisms": list(listener.sasl_mechanisms),
        "maxFrameSize": listener.max_frame_size,
        "maxSessions": listener.max_sessions,
        "maxSessionFrames": listener.max_session_frames,
        "idleTimeoutSeconds": listener.idle_timeout_seconds,
        "initialHandshakeTimeoutSeconds": listener.initial_handshake_timeout_seconds,
        "stripAnnotationsIn": listener.strip_annotations_in,
        "stripAnnotationsOut": listener.strip_annotations_out,
        "linkCapacity": listener.link_capacity,
        "multiTenant": listener.multi_tenant,
        "failoverServers": [
            {"scheme": server.scheme, "host": server.host, "port": server.port} for server in listener.failover_servers
        ],
        "openProperties": dict(listener.open_properties),
        "messageLoggingComponents": listener.message_components,
    }
    return [OP_LISTENER, offer_key, attributes]


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
