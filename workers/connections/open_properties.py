"""Properties of an open: encoding of the router's own, and a peer's as JSON.

routing-semantics.md C-8, inter-router.md 2.2.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from sluice.router.amqp.codec import Symbol, encode_int, encode_string, encode_symbol, encode_value
from sluice.router.config.roles import INTER_EDGE
from sluice.router.control import edge_properties
from sluice.router.control.ops import ProfileFailoverServer
from sluice.workers.connections.router import BUNDLE, BUNDLE_CHECKS, COST, VERSION

if TYPE_CHECKING:
    from sluice.workers.connections.handler import ConnectionHandler

ANNOTATIONS_VERSION: Final = 1  # version of router annotations, as in 1.19
DEFAULT_PORT: Final = "5672"
# Value of JSON.
PlainValue: TypeAlias = "bool | int | float | str | list[PlainValue] | dict[str, PlainValue] | None"


def open_properties(handler: "ConnectionHandler") -> list[bytes]:
    """Return keys and values alternately, encoded: those of 1.19, and those that only Sluice routers read.

    brokers-and-edge.md W-2; inter-router-protocol.md 2.2.
    """
    router = handler.worker.router
    items = [*_identity(router.product, router.version), encode_value(handler.number)]
    if handler.profile.cost > 1:
        items += [encode_symbol(COST), encode_int(handler.profile.cost)]
    if handler.role.relays:
        items += [encode_symbol(VERSION), encode_int(ANNOTATIONS_VERSION)]
    if handler.role.edge:
        to_edge = handler.profile.role == INTER_EDGE
        mark = edge_properties.EDGE_VERSION if handler.initiate is None and not to_edge else handler.role.mark
        items += [encode_symbol(edge_properties.EDGE), encode_value(mark)]
        items += [encode_symbol(edge_properties.CHECKS), encode_int(edge_properties.CHECKS_VERSION)]
        if to_edge:
            version = encode_int(edge_properties.BETWEEN_EDGES_VERSION)
            items += [encode_symbol(edge_properties.BETWEEN_EDGES), version]
        if handler.initiate is not None and handler.initiate.uplinks:
            items += [encode_symbol(edge_properties.UPLINKS), encode_value(True)]
    servers = handler.profile.failover_servers
    if servers:
        items += [encode_symbol("failover-server-list"), encode_value([failover(server) for server in servers])]
    for key, value in handler.profile.open_properties.items():
        items += [encode_symbol(key), encode_value(value)]
    if handler.router is not None:
        items += [encode_symbol(BUNDLE), encode_int(BUNDLE_CHECKS)]
    return items


@lru_cache(maxsize=1)
def _identity(product: str, version: str) -> tuple[bytes, ...]:
    """Return the encoded properties that all opens of a router begin with, up to the key of the connection number."""
    return (
        encode_symbol("product"),
        encode_string(product),
        encode_symbol("version"),
        encode_string(version),
        encode_symbol("qd.conn-id"),
    )


def failover(server: ProfileFailoverServer) -> dict[Symbol, str]:
    """Return one map of failover-server-list (routing-semantics.md C-8; brokers-and-edge.md L-9)."""
    entry = {Symbol("network-host"): server.host, Symbol("port"): server.port or DEFAULT_PORT}
    if server.scheme:
        entry[Symbol("scheme")] = server.scheme
    return entry


def plain(value: object) -> PlainValue:
    """Convert an AMQP value to JSON types. Values of other types become text."""
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, dict):
        return plain_map(value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value.hex() if isinstance(value, bytes) else str(value)


def plain_map(values: Mapping[object, object]) -> dict[str, PlainValue]:
    """Convert an AMQP map to JSON types, with text as keys."""
    return {str(key): plain(item) for key, item in values.items()}
