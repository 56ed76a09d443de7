"""Conversion of the configuration that workers need into ops: listeners, connectors, address settings."""

from collections.abc import Iterable
from typing import Final

from sluice.router.addressing.pattern import PatternError, canonical, duplicate_pattern, from_prefix
from sluice.router.addressing.settings import AddressSetting
from sluice.router.config.entities import AddressConfig, ConnectorConfig, ListenerConfig
from sluice.router.config.roles import BETWEEN_ROUTERS
from sluice.router.control.ops import Profile, ProfileFailoverServer, ProfileOp
from sluice.router.sasl.verifiers import BOUND_MECHANISMS

# Time limit in seconds from the TCP connection of a connector to the peer's open. A connection without any octets for
# idleTimeoutSeconds is closed earlier.
CONNECTOR_HANDSHAKE: Final = 30

# Link capacity, in deliveries, between Sluice routers without configured linkCapacity. 1.19 uses 250, and gets 250.
# With only 250 deliveries in flight routers would be idle for much of the round trip that a hop adds.
BUNDLE_CAPACITY: Final = 1000


def profile_op(endpoint: ListenerConfig | ConnectorConfig, profile_key: str, asks_for_sasl: bool = False) -> ProfileOp:
    """Return the op that announces the profile of a listener or connector.

    profile_key: key that hand-overs refer to. asks_for_sasl: see Profile.
    """
    handshake, servers = CONNECTOR_HANDSHAKE, []
    authenticate_peer = require_encryption = verifies_peer = optional = False
    verify_hostname, path = True, "/"
    origins: tuple[str, ...] = ()
    binds_logins = False
    if isinstance(endpoint, ListenerConfig):
        authenticate_peer, require_encryption = endpoint.authenticate_peer, endpoint.require_encryption
        verifies_peer, optional = endpoint.verifies_peer, endpoint.certificate_optional
        handshake = endpoint.initial_handshake_timeout_seconds
        websockets = endpoint.http
        origins = endpoint.allowed_origins
        wanted = endpoint.sasl_mechanisms
        binds_logins = endpoint.sasl_users is not None and (
            wanted is None or not {*BOUND_MECHANISMS}.isdisjoint(wanted)
        )
        servers = [
            ProfileFailoverServer(server.scheme, server.host, server.port) for server in endpoint.failover_servers
        ]
    else:
        verify_hostname = endpoint.verify_hostname
        websockets, path = endpoint.websockets, endpoint.websocket_path
    # Annotations are never stripped between routers (brokers-and-edge.md W-13).
    between_routers = endpoint.role in BETWEEN_ROUTERS
    adapts = not endpoint.values.get("linkCapacity")
    profile = Profile(
        host=endpoint.host,
        port=endpoint.port_text,
        role=endpoint.role,
        cost=endpoint.cost,
        sasl_mechanisms=None if endpoint.sasl_mechanisms is None else list(endpoint.sasl_mechanisms),
        authenticate_peer=authenticate_peer,
        asks_for_sasl=asks_for_sasl,
        binds_logins=binds_logins,
        max_frame_size=endpoint.max_frame_size,
        max_sessions=endpoint.max_sessions,
        max_session_frames=endpoint.max_session_frames,
        idle_timeout_seconds=endpoint.idle_timeout_seconds,
        strip_annotations_in=endpoint.strip_annotations_in and not between_routers,
        strip_annotations_out=endpoint.strip_annotations_out and not between_routers,
        link_capacity=endpoint.link_capacity,
        bundle_capacity=BUNDLE_CAPACITY if adapts else endpoint.link_capacity,
        capacity_adapts=adapts,
        max_buffered_megabytes=endpoint.buffered_megabytes,
        open_properties=dict(endpoint.open_properties),
        message_logging_components=endpoint.message_components,
        initial_handshake_timeout_seconds=handshake,
        failover_servers=servers,
        require_encryption=require_encryption,
        tls=endpoint.ssl_profile,
        verify_peer=verifies_peer,
        certificate_optional=optional,
        verify_hostname=verify_hostname,
        websockets=websockets,
        websocket_path=path,
        allowed_origins=list(origins),
    )
    return ProfileOp(profile_key, profile)


def address_entry(address: AddressConfig) -> tuple[str, AddressSetting]:
    """Return the canonical pattern of an address and its setting. Raises PatternError."""
    pattern = from_prefix(address.prefix) if address.prefix is not None else address.pattern or ""
    setting = AddressSetting(
        distribution=address.distribution,
        ingress_phase=address.ingress_phase,
        egress_phase=address.egress_phase,
        priority=address.priority,
        fallback=address.fallback,
        overflow=address.presettled_overflow,
        scope=address.scope,
    )
    return "/".join(canonical(pattern)), setting


def address_entries(addresses: Iterable[AddressConfig]) -> tuple[dict[str, AddressSetting], list[str]]:
    """Return all settings by canonical pattern, and a text for each invalid or duplicate pattern, which is left out."""
    entries: dict[str, AddressSetting] = {}
    refused: list[str] = []
    for address in addresses:
        try:
            pattern, setting = address_entry(address)
        except PatternError as error:
            refused.append(str(error))
            continue
        if pattern in entries:
            refused.append(str(duplicate_pattern(pattern)))
        else:
            entries[pattern] = setting
    return entries, refused
