"""The typed configuration: an immutable object for each section, with defaults filled in."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress, count, repeat
from operator import is_
from typing import ClassVar

from msgspec import Struct, field
from msgspec.structs import replace

from router.addressing.pattern import canonical, from_prefix
from router.config.allowed_routers import AllowedRouter
from router.config.jsontext import JsonValue
from router.config.schema import SCHEMA, EntityType
from router.log import LogSettings, ModuleSettings
from router.record import Record

DEFAULT_LINK_CAPACITY = 250  # deliveries; what a listener without linkCapacity grants
MIN_FRAME_SIZE = 512  # octets; AMQP 1.0 section 2.4.1: every peer must take frames of this size
SELF = "self"  # name and identity of the management entity, reserved for it
MANAGEMENT = "ManagementEntity(name=self, identity=self)"  # it, as texts of errors show it
MAX_SESSIONS = 32768  # sessions of one connection; Dispatch allowed as many


class EntityConfig(Record, frozen=True, kw_only=True):
    """Base of all entities. Immutable.

    `type` is the short name of the type, `line` the line of the section (None: made by the router or a request), `file`
    the file that it is in (None: the configuration file itself), `named` whether the user gave the name, `values` the
    attributes under their management names: those given, converted, and those with a default; `generated` names those
    that the router generated.
    """

    type: ClassVar[str]
    HIDDEN: ClassVar[frozenset[str]] = frozenset({"values"})
    UNCOMPARED: ClassVar[frozenset[str]] = frozenset({"line", "file"})

    name: str
    identity: str
    named: bool = False
    line: int | None = None
    file: str | None = None
    values: Mapping[str, JsonValue] = field(default_factory=dict)
    generated: frozenset[str] = frozenset()

    @property
    def entity_type(self) -> EntityType:
        """Return the type of the entity in the schema."""
        return SCHEMA.types[self.type]

    @property
    def given(self) -> dict[str, JsonValue]:
        """Return `values` without generated ones."""
        return {name: value for name, value in self.values.items() if name not in self.generated}

    @property
    def attributes(self) -> dict[str, JsonValue]:
        """Return all attributes that have a value, in reporting order, as READ shows them."""
        every = {**self.values, "name": self.name, "identity": self.identity, "type": self.entity_type.long_name}
        return {name: every[name] for name in self.entity_type.attributes if every.get(name) is not None}


class RouterConfig(EntityConfig, frozen=True, kw_only=True):
    """The router section. Intervals and ages in seconds; `workers` is resolved, never absent."""

    type: ClassVar[str] = "router"

    id: str
    mode: str
    workers: int
    buffered_megabytes: int  # of each worker
    remembered_containers: int
    hello_interval_seconds: int
    hello_max_age_seconds: int
    ra_interval_seconds: int
    ra_interval_flux_seconds: int
    remote_ls_max_age_seconds: int
    allow_unsettled_multicast: bool
    resumable_routed_links: bool
    default_distribution: str
    metadata: str | None
    timestamp_format: str | None
    timestamps_in_utc: bool
    sasl_config_dir: str | None  # of the SASL library; None: its own default
    sasl_config_name: str
    ready_without_uplink: bool = True  # of an edge router
    files_by_management: bool = False  # management may name files and secrets
    all_uplinks: bool = False  # of an edge router: all connections to interior routers of ours are at work


class SslProfileConfig(EntityConfig, frozen=True, kw_only=True):
    """An sslProfile section. `password` as written: where the password is, or itself. `lines` of the attributes."""

    type: ClassVar[str] = "sslProfile"
    HIDDEN: ClassVar[frozenset[str]] = frozenset({"values", "password", "lines"})
    UNCOMPARED: ClassVar[frozenset[str]] = frozenset({"line", "file", "lines"})

    certificate_file: str | None
    key_file: str | None
    password: str | None
    trusted_file: str | None
    ciphers: str | None
    protocols: tuple[str, ...]
    uid_format: str | None
    uid_mapping_file: str | None
    user_prefix: str
    retires_old: bool  # connections that were made with credentials before
    retired_per_second: int
    list_urls: tuple[str, ...]  # of revocation lists
    list_refresh_seconds: int
    closes_revoked: bool  # connections whose certificate a new revocation list names
    lines: Mapping[str, int] = field(default_factory=dict)


class FailoverServer(Struct, frozen=True):
    """Another router for clients, as in the connection property `failover-server-list`."""

    scheme: str | None
    host: str
    port: str


class EndpointConfig(EntityConfig, frozen=True, kw_only=True):
    """Base of listeners and connectors. `port_text` is the port as written."""

    host: str
    port_text: str
    family: str | None  # IPv4, IPv6 or None
    role: str
    cost: int
    sasl_mechanisms: tuple[str, ...] | None  # None: all
    max_frame_size: int  # octets, at least MIN_FRAME_SIZE
    max_sessions: int  # 1..MAX_SESSIONS
    max_session_frames: int | None  # None: practically unlimited
    idle_timeout_seconds: int  # 0: never
    strip_annotations_in: bool
    strip_annotations_out: bool
    link_capacity: int  # deliveries
    buffered_megabytes: int
    open_properties: Mapping[str, JsonValue]
    message_components: str  # parts of messages that log module MESSAGE writes: names by commas, `all` or `none`
    ssl_profile: str | None
    allowed_routers: tuple[AllowedRouter, ...] = ()  # of roles between routers: who may join; none: everybody
    multi_tenant: bool = False
    policy_vhost: str | None = None  # instead of the host name that the open has


class ProxyConfig(Record, frozen=True):
    """An HTTP proxy on the way of a connector. `password` as written: the password, or where it is."""

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"password"})

    host: str
    port: str
    user: str | None
    password: str | None


class ConnectorConfig(EndpointConfig, frozen=True, kw_only=True):
    """A connector section. `sasl_password` as written: the password, or where it is."""

    type: ClassVar[str] = "connector"
    HIDDEN: ClassVar[frozenset[str]] = frozenset({"values", "sasl_password"})

    sasl_username: str | None
    sasl_password: str | None
    verify_hostname: bool
    websockets: bool
    websocket_path: str
    proxy: ProxyConfig | None
    parallel_connections: int = 1  # of role edge

    @property
    def place(self) -> str:
        """Return its host and port, as in the log."""
        return f"{self.host}:{self.port_text}"


def console_url(host: str, port: int | str, *, encrypted: bool) -> str:
    """The address of a listener's first page."""
    bracketed = f"[{host}]" if ":" in host else host
    return f"{'https' if encrypted else 'http'}://{bracketed}:{port}/"


class ListenerConfig(EndpointConfig, frozen=True, kw_only=True):
    """A listener section. `port` 0: the kernel chooses. `metrics_token` as written: the token, or where it is."""

    type: ClassVar[str] = "listener"
    HIDDEN: ClassVar[frozenset[str]] = frozenset({"values", "metrics_token"})

    port: int
    initial_handshake_timeout_seconds: int  # 0: never
    authenticate_peer: bool
    require_encryption: bool  # requireSsl or requireEncryption
    failover_servers: tuple[FailoverServer, ...]
    sasl_plugin: str | None  # name of an authServicePlugin
    sasl_users: str | None  # name of a saslUsers
    token_issuers: tuple[str, ...]  # names of tokenIssuers
    http: bool  # speaks HTTP instead of AMQP
    healthz: bool  # with `http`: serves health checks
    metrics: bool  # with `http`: serves metrics
    metrics_token: str | None  # with `http`: who shows it may see them
    websockets: bool  # with `http`: AMQP over WebSocket
    http_root: str | None  # with `http`: the directory whose files it serves
    proxy_networks: tuple[str, ...]  # of proxies, which say whom they forward by the PROXY protocol
    allowed_origins: tuple[str, ...]  # with `http`: in lower case, of web pages that may use it, beside its own

    @property
    def speaks_amqp(self) -> bool:
        """Whether clients of AMQP connect here, over WebSocket if not directly."""
        return not self.http or self.websockets

    def console_url(self, port: int | str) -> str | None:
        """Where a browser on this machine finds the console, on `port`; None: there is none on this listener."""
        if not self.http or not self.websockets or self.http_root is not None:
            return None
        host = "localhost" if self.host in ("", "0.0.0.0", "::") else self.host
        return console_url(host, port, encrypted=self.ssl_profile is not None)

    @property
    def verifies_peer(self) -> bool:
        """Whether clients of TLS have to present a certificate (security.md T-10, brokers-and-edge.md H-6)."""
        if self.http:
            return self.authenticate_peer
        asked = self.values.get("saslMechanisms")
        return isinstance(asked, str) and "EXTERNAL" in asked.replace(",", " ").split()

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the addresses or names to listen on: an empty host means all interfaces of both families."""
        if self.host:
            return (self.host,)
        every = {"IPv4": ("0.0.0.0",), "IPv6": ("::",)}
        return every["IPv4"] + every["IPv6"] if self.family is None else every[self.family]


class AddressConfig(EntityConfig, frozen=True, kw_only=True):
    """An address section. Exactly one of `prefix` and `pattern` is a text, as written in the file."""

    type: ClassVar[str] = "router.config.address"

    prefix: str | None
    pattern: str | None
    distribution: str
    waypoint: bool
    ingress_phase: int
    egress_phase: int
    priority: int | None
    fallback: bool
    presettled_overflow: str
    scope: str = "network"  # of an edge router

    @property
    def tokens(self) -> tuple[str, ...]:
        """Return the canonical pattern of its prefix or pattern."""
        return tuple(canonical(from_prefix(self.prefix) if self.prefix is not None else self.pattern or ""))


class AutoLinkConfig(EntityConfig, frozen=True, kw_only=True):
    """An autoLink section. At most one of `container_id` and `connection` is a text; with neither it does nothing."""

    type: ClassVar[str] = "router.config.autoLink"

    address: str
    direction: str  # in: from the container to the router, out: to the container
    phase: int
    container_id: str | None
    connection: str | None  # name of a listener or connector
    external_address: str | None
    fallback: bool


class LogConfig(EntityConfig, frozen=True, kw_only=True):
    """A log section. None: as module DEFAULT."""

    type: ClassVar[str] = "log"

    module: str
    settings: ModuleSettings


class ExchangeConfig(EntityConfig, frozen=True, kw_only=True):
    """An exchange section."""

    type: ClassVar[str] = "router.config.exchange"

    address: str
    phase: int
    alternate_address: str | None
    alternate_phase: int
    match_method: str


class BindingConfig(EntityConfig, frozen=True, kw_only=True):
    """A binding section of an exchange that exists."""

    type: ClassVar[str] = "router.config.binding"

    exchange_name: str
    binding_key: str
    next_hop_address: str
    next_hop_phase: int


class LinkRouteConfig(EntityConfig, frozen=True, kw_only=True):
    """A linkRoute section, or a link route of a client. Has exactly one of prefix and pattern."""

    type: ClassVar[str] = "router.config.linkRoute"

    prefix: str | None
    pattern: str | None
    direction: str
    container_id: str | None
    connection: str | None
    add_prefix: str | None
    delete_prefix: str | None

    @property
    def whole_pattern(self) -> str:
        """Return the pattern that addresses are matched with."""
        return from_prefix(self.prefix) if self.prefix is not None else (self.pattern or "")

    @property
    def key(self) -> str:
        """Return the key of the address in the table: a pattern that only ends in `#` is a prefix.

        brokers-and-edge.md LR-3, LR-4.
        """
        text = (self.prefix if self.prefix is not None else self.pattern or "").strip("./")
        *head, last = canonical(self.whole_pattern)
        prefix = last == "#" and not {"*", "#"}.intersection(head) and bool(head)
        if prefix and self.prefix is None:
            text = text[:-1].rstrip("./")
        return ("C" if prefix else "E") + text if self.direction == "in" else ("D" if prefix else "F") + text


class SaslUsersConfig(EntityConfig, frozen=True, kw_only=True):
    """A saslUsers section: a file that `sluice passwd` writes."""

    type: ClassVar[str] = "saslUsers"

    users_file: str
    user_prefix: str
    closes_deleted: bool = True  # connections of users that a new file does not have


class TokenIssuerConfig(EntityConfig, frozen=True, kw_only=True):
    """A tokenIssuer section. Of `jwks_file` and `jwks_url` exactly one is there."""

    type: ClassVar[str] = "tokenIssuer"

    issuer: str
    audiences: tuple[str, ...]
    algorithms: tuple[str, ...]
    jwks_file: str | None
    jwks_url: str | None
    ca_cert_file: str | None
    refresh_seconds: int
    leeway_seconds: int
    user_claim: str
    group_claim: str | None
    user_prefix: str


class TelemetryConfig(EntityConfig, frozen=True, kw_only=True):
    """A telemetry section."""

    type: ClassVar[str] = "telemetry"

    path: str
    interval_seconds: int
    file_seconds: int
    max_megabytes: int
    keep_hours: int
    live: bool


class PlacementConfig(EntityConfig, frozen=True, kw_only=True):
    """A placement section. Of `listener` and `host` at least one is there; `host` is an address or a network."""

    type: ClassVar[str] = "placement"

    listener: str | None
    host: str | None
    worker: int


class AuditConfig(EntityConfig, frozen=True, kw_only=True):
    """An audit section. `path` is there exactly where `output` is `file`; sizes in octets."""

    type: ClassVar[str] = "audit"

    output: str
    path: str | None
    max_size: int
    keep: int
    max_queued: int
    refuses: bool  # logins and changes while no line can be added


class AuthServiceConfig(EntityConfig, frozen=True, kw_only=True):
    """An authServicePlugin section."""

    type: ClassVar[str] = "authServicePlugin"

    host: str
    port_text: str
    port: int
    realm: str | None
    ssl_profile: str | None


class PolicyConfig(EntityConfig, frozen=True, kw_only=True):
    """The policy section. `directory`: of further vhosts; empty: none."""

    type: ClassVar[str] = "policy"

    max_connections: int
    max_message_size: int  # octets; 0: no limit
    vhosts_enabled: bool
    vhost_patterns: bool
    directory: str
    default_vhost: str


class SharedLimits(Record, frozen=True, kw_only=True):
    """Limits that all connections of a vhost, or of one of its groups, share. 0: no limit."""

    connections: int = 0  # of a group
    links: int = 0
    addresses: int = 0
    messages_per_second: int = 0
    octets_per_second: int = 0
    buffered_octets: int = 0

    def by_attribute(self) -> Iterator[tuple[str, int]]:
        """Iterate over the limits that there are by name of the attribute."""
        named = (
            ("maxConnections", self.connections),
            ("maxLinks", self.links),
            ("maxAddresses", self.addresses),
            ("maxMessagesPerSecond", self.messages_per_second),
            ("maxOctetsPerSecond", self.octets_per_second),
            ("maxBufferedOctets", self.buffered_octets),
        )
        return ((name, limit) for name, limit in named if limit)

    @property
    def measured(self) -> bool:
        """Return whether workers have to count what is sent."""
        return bool(self.messages_per_second or self.octets_per_second or self.buffered_octets)


class GroupConfig(Record, frozen=True, kw_only=True):
    """What one group of a vhost's users may do. None: as the vhost, or the listener, has it.

    `lines`: those of its attributes in the file of the vhost; `line` that of its name; 0: in no file.
    """

    UNCOMPARED: ClassVar[frozenset[str]] = frozenset({"line", "lines"})

    name: str
    users: tuple[str, ...] = ()
    remote_hosts: tuple[str, ...] = ()  # none: nobody
    max_connections_per_user: int | None = None
    max_connections_per_host: int | None = None
    max_message_size: int | None = None  # octets; 0: no limit
    max_frame_size: int | None = None
    max_session_window: int | None = None  # octets
    max_sessions: int | None = None
    max_senders: int
    max_receivers: int
    allow_dynamic_source: bool
    allow_anonymous_sender: bool
    allow_user_id_proxy: bool
    allow_waypoint_links: bool
    allow_fallback_links: bool
    allow_dynamic_link_routes: bool
    allow_admin_status_update: bool
    shared: SharedLimits = SharedLimits()
    management: str = "all"  # role, see router/policy/management.py
    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    source_pattern: tuple[str, ...] | None = None  # a tuple: instead of the list
    target_pattern: tuple[str, ...] | None = None
    line: int = 0
    lines: Mapping[str, int] = field(default_factory=dict)


class VhostConfig(EntityConfig, frozen=True, kw_only=True):
    """A vhost section. `addresses`: what host names in its groups stood for when it was read from a file."""

    type: ClassVar[str] = "vhost"
    UNCOMPARED: ClassVar[frozenset[str]] = frozenset({"line", "file", "lines", "addresses"})

    hostname: str
    aliases: tuple[str, ...]
    max_connections: int
    max_connections_per_user: int
    max_connections_per_host: int
    max_message_size: int | None  # octets; None: as the policy has it, 0: no limit
    shared: SharedLimits = SharedLimits()
    allow_unknown_user: bool
    close_on_change: bool
    groups: tuple[GroupConfig, ...]
    lines: Mapping[str, int] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)


class ConsoleConfig(EntityConfig, frozen=True, kw_only=True):
    """A console section, without effect."""

    type: ClassVar[str] = "console"


class DummyConfig(EntityConfig, frozen=True, kw_only=True):
    """An entity for tests of management clients."""

    type: ClassVar[str] = "dummy"


class Configuration(Struct, frozen=True, kw_only=True):
    """A whole file. `warnings` are pairs of log module and text, which the supervisor logs at its start.

    `logs` has an entity for every log module: those of the file in its order, then the rest.
    """

    path: str
    router: RouterConfig
    policy: PolicyConfig
    ssl_profiles: tuple[SslProfileConfig, ...]
    connectors: tuple[ConnectorConfig, ...]
    listeners: tuple[ListenerConfig, ...]
    addresses: tuple[AddressConfig, ...]
    logs: tuple[LogConfig, ...]
    link_routes: tuple[LinkRouteConfig, ...]
    auto_links: tuple[AutoLinkConfig, ...]
    exchanges: tuple[ExchangeConfig, ...]
    bindings: tuple[BindingConfig, ...]
    vhosts: tuple[VhostConfig, ...]
    others: tuple[EntityConfig, ...]
    warnings: list[tuple[str, str]]

    @classmethod
    def of(cls, path: str, entities: Iterable[EntityConfig], warnings: list[tuple[str, str]]) -> "Configuration":
        """Return the configuration of `entities`, which include a router and a policy; order matters within a type."""
        found: dict[str, list[EntityConfig]] = {}
        for entity in entities:
            kind = entity.type if entity.type in _FIELDS else ""
            found.setdefault(kind, []).append(entity)
        fields = {_FIELDS[kind]: tuple(same) for kind, same in found.items()}
        (router,), (policy,) = fields.pop("router"), fields.pop("policy")
        every = {name: fields.get(name, ()) for name in _FIELDS.values() if name not in ("router", "policy")}
        return cls(path=path, warnings=warnings, router=router, policy=policy, **every)  # type: ignore[arg-type]

    def of_type(self, kind: str) -> tuple[EntityConfig, ...]:
        """Return the entities of the type with this short name, in order of creation."""
        name = _FIELDS.get(kind, "others")
        found = getattr(self, name)
        if not isinstance(found, tuple):
            return (found,)
        return tuple(each for each in found if each.type == kind) if name == "others" else found

    def changed(self, gone: Sequence[EntityConfig], made: Sequence[EntityConfig]) -> "Configuration":
        """Return the configuration with some entities removed and others added, in the places of removed ones as far as
        possible.

        Not for router and policy. Only lists of the types concerned are copied.
        """
        fields: dict[str, list[EntityConfig]] = {}

        def same(entity: EntityConfig) -> list[EntityConfig]:
            name = _FIELDS.get(entity.type, "others")
            return fields.setdefault(name, list(getattr(self, name)))

        places: dict[str, list[int]] = {}
        for entity in gone:
            have = same(entity)
            at = next(compress(count(), map(is_, have, repeat(entity))))
            del have[at]
            places.setdefault(entity.type, []).append(at)
        for entity in made:
            have = same(entity)
            free = places.get(entity.type)
            have.insert(free.pop(0) if free else len(have), entity)
        return replace(self, **{name: tuple(each) for name, each in fields.items()})

    def entities(self) -> Iterator[EntityConfig]:
        """Yield every entity in the order in which a router creates them."""
        yield from self.logs
        yield self.router
        yield self.policy
        yield from self.ssl_profiles
        yield from self.addresses
        yield from self.link_routes
        yield from self.auto_links
        yield from self.exchanges
        yield from self.bindings
        yield from self.vhosts
        yield from self.others
        yield from self.connectors
        yield from self.listeners

    def log_settings(self) -> LogSettings:
        """Return the settings of the log that this configuration asks for."""
        return LogSettings(
            modules={log.module: log.settings for log in self.logs},
            timestamp_format=self.router.timestamp_format,
            utc=self.router.timestamps_in_utc,
        )


# Field of Configuration for each type of entity; other types are in the last one.
_FIELDS = {
    "router": "router",
    "policy": "policy",
    "log": "logs",
    "sslProfile": "ssl_profiles",
    "router.config.address": "addresses",
    "router.config.autoLink": "auto_links",
    "router.config.exchange": "exchanges",
    "router.config.binding": "bindings",
    "router.config.linkRoute": "link_routes",
    "vhost": "vhosts",
    "connector": "connectors",
    "listener": "listeners",
    "": "others",
}
