"""The configuration as the workers hear of it: listeners and address settings as ops."""
from typing import Any

from router.config.entities import Configuration, ListenerConfig
from router.ipc.control import OP_LISTENER, OP_SETTINGS
from router.routing.pattern import PatternError, PatternTree, from_prefix
from router.routing.settings import AddressSettings, from_ops
from supervisor.table import Op


def listener_op(listener: ListenerConfig) -> Op:
    """The op that tells the workers what connections of a listener may do; intervals in seconds, sizes in octets."""
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
    }
    return [OP_LISTENER, listener.name, attributes]


def settings_op(configuration: Configuration) -> tuple[Op, list[str]]:
    """The op with all address settings, and a text for each section that is left out: why its pattern cannot be."""
    entries: list[list[Any]] = []
    refused: list[str] = []
    seen: PatternTree[None] = PatternTree()
    for address in configuration.addresses:
        try:
            pattern = from_prefix(address.prefix) if address.prefix is not None else address.pattern or ""
            seen.insert(pattern, None)
        except PatternError as error:
            refused.append(str(error))
            continue
        attributes = {
            "distribution": address.distribution,
            "ingressPhase": address.ingress_phase,
            "egressPhase": address.egress_phase,
            "priority": address.priority,
            "fallback": address.fallback,
            "presettledOverflow": address.presettled_overflow,
        }
        entries.append([pattern, attributes])
    return [OP_SETTINGS, entries, configuration.router.default_distribution], refused


def address_settings(op: Op) -> AddressSettings:
    """The same settings for the supervisor's own decisions."""
    return from_ops([op])
