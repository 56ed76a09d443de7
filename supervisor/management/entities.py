"""Entities of the store, with attributes as plain values (management.md 1, 5.6, 6).

They are created for each request from the configuration and the counters, and not kept.
"""

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from sluice.router.config.entities import SELF
from sluice.router.config.entity import EntityConfig
from sluice.router.config.schema import SCHEMA, EntityType
from sluice.supervisor.listeners.acceptor import MAX_CONNECTIONS
from sluice.supervisor.management.context import AgentContext
from sluice.supervisor.management.memory import pools
from sluice.supervisor.management.nodes import nodes
from sluice.supervisor.management.settings import NUMBERED
from sluice.supervisor.policy.shared_usage import VHOST, SharedUsage

_LEVELS: Final = ("trace", "debug", "info", "notice", "warning", "error", "critical")


class StoreEntity(NamedTuple):
    """Entity of the store.

    attributes: what requests return without naming attributes, for types of Dispatch 1.19 as there. config: its
    configuration, or None if it is not configurable. in_file: whether a restart would keep it; None: not configurable.
    """

    type: EntityType
    attributes: Mapping[str, Any]
    config: EntityConfig | None = None
    in_file: bool | None = None

    def value(self, name: str) -> Any:
        """Return the value of an attribute that a request names; None: it has none."""
        return self.in_file if name == "inFile" else self.attributes.get(name)

    @property
    def name(self) -> str:
        """Return its name."""
        return str(self.attributes["name"])

    @property
    def identity(self) -> str:
        """Return its identity."""
        return str(self.attributes["identity"])


Source = Callable[[AgentContext], Iterable[StoreEntity]]


def entity(
    kind: str, name: str, identity: str, own: Mapping[str, Any], config: EntityConfig | None = None
) -> StoreEntity:
    """Return an entity of the type with the short name `kind`. Attributes without a value are left out."""
    found = SCHEMA.types[kind]
    attributes = {key: value for key, value in own.items() if value is not None}
    attributes.update(name=name, identity=identity, type=found.long_name)
    return StoreEntity(found, attributes, config)


def shown(context: AgentContext, config: EntityConfig, more: Mapping[str, Any] | None = None) -> StoreEntity:
    """Return a configured entity without its secrets. more: attributes besides the configured ones."""
    attributes = config.entity_type.attributes
    open_to_all = {name: value for name, value in config.values.items() if not attributes[name].hidden}
    made = entity(config.type, config.name, config.identity, {**open_to_all, **(more or {})}, config)
    return made._replace(in_file=context.changes.in_file(config))


def entities(context: AgentContext, kind: EntityType | None = None) -> Iterator[StoreEntity]:
    """Iterate over the entities of a type and of derived types, or of all types, in order of creation."""
    for name, source in _SOURCES.items():
        if kind is None or SCHEMA.types[name].is_a(kind):
            yield from source(context)


def named(context: AgentContext, name: str | None, identity: str | None) -> Iterator[StoreEntity]:
    """Iterate over the entities with this name, otherwise with this identity.

    Types with many entities are not searched linearly.
    """
    for config in context.changes.find(name, identity):
        if config.type in _MANY and (config.line or config.type not in NUMBERED):
            yield shown(context, config)
    for kind, source in _SOURCES.items():
        if kind not in _MANY:
            for each in source(context):
                if each.name == name if name is not None else each.identity == identity:
                    yield each


def management(context: AgentContext) -> StoreEntity:
    """Return the management entity, the target of operations without target (management.md 6.10)."""
    return entity("management", SELF, SELF, {})


def _configured(kind: str) -> Source:
    return lambda context: (
        shown(context, config, context.core.live_attributes(config)) for config in context.changes.entities(kind)
    )


def _from_file(kind: str) -> Source:
    """Return the source for a core type: entities from the file. Those created by requests are only in the core.

    management.md 1.
    """
    return lambda context: (shown(context, config) for config in context.changes.entities(kind) if config.line)


def _router(context: AgentContext) -> Iterator[StoreEntity]:
    router = context.changes.configuration.router
    live = {
        "id": router.id,
        "mode": router.mode,
        "area": "0",
        "version": context.version,
        "hostName": socket.gethostname(),
        "workerThreads": router.workers,
        # As in 1.19: only the row of the core (type `org.apache.qpid.dispatch.router`) has these counts.
        "addrCount": 0,
        "linkCount": 0,
        "nodeCount": 0,
    }
    for config in context.changes.entities("router"):
        yield shown(context, config, live)


def _policy(context: AgentContext) -> Iterator[StoreEntity]:
    core = context.core
    live = {
        "connectionsProcessed": core.connections.accepted + core.connections.denied,
        "connectionsDenied": core.connections.denied,
        "connectionsCurrent": core.connections.count,
        "unknownVhostsDenied": core.policy.unknown_vhosts_denied,
        "linksDenied": core.policy.links_denied,
        "maxMessageSizeDenied": core.policy.message_size_denied,
        "totalDenials": core.connections.denied + core.policy.total_denials,
    }
    for config in context.changes.entities("policy"):
        yield shown(context, config, {"maxConnections": MAX_CONNECTIONS, **live})


def _vhost_stats(context: AgentContext) -> Iterator[StoreEntity]:
    for vhost, stats in context.core.policy.stats().items():
        identity = f"vhostStats/{vhost}"
        attributes = {"id": vhost, "hostname": vhost, **stats.shown(), **_shares(context.core.policy.shares(vhost))}
        yield entity("vhostStats", identity, identity, attributes)


def _shares(shares: Mapping[str, SharedUsage]) -> dict[str, Any]:
    """Return the usage of a vhost and of its groups."""
    own = shares.get(VHOST, SharedUsage()).shown()
    del own["connections"]
    return {
        "linksCurrent": own.pop("links"),
        "addressesCurrent": own.pop("addresses"),
        **own,
        "groupState": {group: share.shown() for group, share in shares.items() if group != VHOST},
    }


def _allocator(context: AgentContext) -> Iterator[StoreEntity]:
    for name, own in pools(context.region, context.core.counter_slots.used).items():
        identity = f"allocator/{name}"
        yield entity("allocator", identity, identity, {"typeName": name, **own})


def _nodes(context: AgentContext) -> Iterator[StoreEntity]:
    for own in nodes(context):
        identity = f"router.node/{own['id']}"
        yield entity("router.node", identity, identity, own)


def _log_stats(context: AgentContext) -> Iterator[StoreEntity]:
    for module, counts in context.log.counters().items():
        own = {f"{level}Count": counts[level] for level in _LEVELS}
        yield entity("logStats", module, f"logStats/{module}", own)


# Types that may have many entities, whose attributes need no further lookup.
_MANY: Final = frozenset({*NUMBERED, "vhost", "dummy", "listener"})

# By type, in the order in which a router creates them (management.md 2.7).
_SOURCES: Final[Mapping[str, Source]] = {
    "log": _configured("log"),
    "router": _router,
    "management": lambda context: (management(context),),
    "policy": _policy,
    "sslProfile": _configured("sslProfile"),
    **{kind: _from_file(kind) for kind in NUMBERED},
    "vhost": _configured("vhost"),
    **{kind: _configured(kind) for kind in ("console", "dummy", "saslUsers", "tokenIssuer", "authServicePlugin")},
    "telemetry": _configured("telemetry"),
    "openTelemetry": _configured("openTelemetry"),
    "tracing": _configured("tracing"),
    "connector": _configured("connector"),
    "listener": _configured("listener"),
    "placement": _configured("placement"),
    "audit": _configured("audit"),
    "vhostStats": _vhost_stats,
    "router.node": _nodes,
    "allocator": _allocator,
    "logStats": _log_stats,
}
