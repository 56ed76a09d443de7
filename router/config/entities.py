"""Typed configuration: an immutable object for each section, with defaults filled in."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress, count, repeat
from operator import is_
from typing import ClassVar

from msgspec import Struct, field
from msgspec.structs import replace

from sluice.router.addressing.pattern import canonical, from_prefix
from sluice.router.config.allowed_routers import AllowedRouter
from sluice.router.config.collector_tls import CollectorTls
from sluice.router.config.entity import EntityConfig
from sluice.router.config.jsontext import JsonValue
from sluice.router.config.policy_entities import PolicyConfig, VhostConfig
from sluice.router.log import LogSettings, ModuleSettings
from sluice.router.record import Record

DEFAULT_LINK_CAPACITY = 250  # deliveries; credit granted by a listener without linkCapacity
MIN_FRAME_SIZE = 512  # octets; every peer must accept frames of this size (AMQP 1.0 section 2.4.1)
SELF = "self"  # reserved name and identity of the management entity
MANAGEMENT = "ManagementEntity(name=self, identity=self)"  # management entity as shown in error texts
MAX_SESSIONS = 32768  # sessions of one connection, as in Dispatch


class RouterConfig(EntityConfig, frozen=True, kw_only=True):
    """Router section. Intervals and ages are in seconds; `workers` is resolved to a number."""

    type: ClassVar[str] = "router"

    id: str
    mode: str
    workers: int
    buffered_megabytes: int  # limit of each worker
    shutdown_grace_seconds: int  # time limit of a drain after SIGTERM; 0: none
    shutdown_connections_per_second: int  # rate at which a drain closes connections
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
    sasl_config_dir: str | None  # for the SASL library; None: its own default
    sasl_config_name: str
    ready_without_uplink: bool = True  # edge router only
    metrics_users: int = 100  # users, and vhosts, with metrics of their own
    history_file: str | None = None  # file that keeps the history of figures over restarts
    watch_configuration: bool = False  # the router reloads a changed file by itself
    files_by_management: bool = False  # management requests may name files and secrets
    all_uplinks: bool = False  # edge router: all connections to Sluice interior routers are active
    router_absence_seconds: int = 0  # time for which messages wait for another uplink or path; 0: they do not


class SslProfileConfig(EntityConfig, frozen=True, kw_only=True):
    """`sslProfile` section. `password` is as written: the password, or a reference. `lines` has those of attributes."""

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
    retires_old: bool  # close connections established with earlier credentials
    list_urls: tuple[str, ...]  # URLs of revocation lists
    list_refresh_seconds: int
    closes_revoked: bool  # close connections whose certificate is in a new revocation list
    lines: Mapping[str, int] = field(default_factory=dict)


class FailoverServer(Struct, frozen=True):
    """Alternative router for clients, as in the connection property `failover-server-list`."""

    scheme: str | None
    host: str
    port: str


class EndpointConfig(EntityConfig, frozen=True, kw_only=True):
    """Base class of listeners and connectors. `port_text` is the port as written."""

    host: str
    port_text: str
    family: str | None  # IPv4, IPv6 or None
    role: str
    cost: int
    sasl_mechanisms: tuple[str, ...] | None  # None: all
    max_frame_size: int  # octets, at least MIN_FRAME_SIZE
    max_sessions: int  # 1..MAX_SESSIONS
    max_session_frames: int | None  # None: practically unlimited
    idle_timeout_seconds: int  # 0: no timeout
    strip_annotations_in: bool
    strip_annotations_out: bool
    link_capacity: int  # deliveries
    buffered_megabytes: int
    open_properties: Mapping[str, JsonValue]
    message_components: str  # parts of messages that log module MESSAGE writes: names with commas, `all` or `none`
    ssl_profile: str | None
    allowed_routers: tuple[AllowedRouter, ...] = ()  # for roles between routers; empty: all routers may join
    multi_tenant: bool = False
    policy_vhost: str | None = None  # replaces the host name in the open


class ProxyConfig(Record, frozen=True):
    """HTTP proxy of a connector. `password` is as written: the password, or a reference."""

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"password"})

    host: str
    port: str
    user: str | None
    password: str | None


class ConnectorConfig(EndpointConfig, frozen=True, kw_only=True):
    """Connector section. `sasl_password` is as written: the password, or a reference."""

    type: ClassVar[str] = "connector"
    HIDDEN: ClassVar[frozenset[str]] = frozenset({"values", "sasl_password"})

    sasl_username: str | None
    sasl_password: str | None
    verify_hostname: bool
    websockets: bool
    websocket_path: str
    proxy: ProxyConfig | None
    parallel_connections: int = 1  # role edge only
    ready_without: bool = True  # False: the router is ready only while the connector and its links are up
    allow_redirect: bool = True  # the peer may name other addresses to connect to

    @property
    def place(self) -> str:
        """Host and port, as shown in the log."""
        return f"{self.host}:{self.port_text}"


def console_url(host: str, port: int | str, *, encrypted: bool) -> str:
    """Return the URL of a listener's first page."""
    bracketed = f"[{host}]" if ":" in host else host
    return f"{'https' if encrypted else 'http'}://{bracketed}:{port}/"


class ListenerConfig(EndpointConfig, frozen=True, kw_only=True):
    """Listener section. `port` 0: chosen by the kernel. `metrics_token` is as written: the token, or a reference."""

    type: ClassVar[str] = "listener"
    HIDDEN: ClassVar[frozenset[str]] = frozenset({"values", "metrics_token"})

    port: int
    initial_handshake_timeout_seconds: int  # 0: no timeout
    authenticate_peer: bool
    require_encryption: bool  # requireSsl or requireEncryption
    failover_servers: tuple[FailoverServer, ...]
    sasl_plugin: str | None  # name of an authServicePlugin
    sasl_users: str | None  # name of a saslUsers
    token_issuers: tuple[str, ...]  # names of tokenIssuers
    http: bool  # speaks HTTP instead of AMQP
    healthz: bool  # with `http`: serves health checks
    metrics: bool  # with `http`: serves metrics
    metrics_token: str | None  # with `http`: token required for metrics
    websockets: bool  # with `http`: AMQP over WebSocket
    http_root: str | None  # with `http`: the directory whose files it serves
    proxy_networks: tuple[str, ...]  # networks of proxies that use the PROXY protocol
    allowed_origins: tuple[str, ...]  # with `http`: origins, in lower case, of further web pages that may use it

    @property
    def speaks_amqp(self) -> bool:
        """Whether AMQP clients can connect, directly or over WebSocket."""
        return not self.http or self.websockets

    def console_url(self, port: int | str) -> str | None:
        """Return the URL of the console on `port` for a browser on this machine; None if this listener has none."""
        if not self.http or not self.websockets or self.http_root is not None:
            return None
        host = "localhost" if self.host in ("", "0.0.0.0", "::") else self.host
        return console_url(host, port, encrypted=self.ssl_profile is not None)

    @property
    def verifies_peer(self) -> bool:
        """Whether TLS clients have to present a certificate (security.md T-10, brokers-and-edge.md H-6)."""
        if self.http:
            return self.authenticate_peer
        asked = self.values.get("saslMechanisms")
        return isinstance(asked, str) and "EXTERNAL" in asked.replace(",", " ").split()

    @property
    def certificate_optional(self) -> bool:
        """Whether a client whose certificate is requested may connect without one, because it can log in by password or
        token. Browsers seldom have a certificate. The files of `httpRootDir` have no login."""
        return self.http and self.http_root is None and (self.sasl_users is not None or bool(self.token_issuers))

    @property
    def hosts(self) -> tuple[str, ...]:
        """Addresses or names to listen on. An empty host means all interfaces of both families.

        brokers-and-edge.md L-2.
        """
        if self.host:
            return (self.host,)
        every = {"IPv4": ("0.0.0.0",), "IPv6": ("::",)}
        return every["IPv4"] + every["IPv6"] if self.family is None else every[self.family]


class AddressConfig(EntityConfig, frozen=True, kw_only=True):
    """Address section. Exactly one of `prefix` and `pattern` is set, as written in the file."""

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
    scope: str = "network"  # effective on edge routers

    @property
    def tokens(self) -> tuple[str, ...]:
        """Canonical pattern of the prefix or pattern."""
        return tuple(canonical(from_prefix(self.prefix) if self.prefix is not None else self.pattern or ""))


class AutoLinkConfig(EntityConfig, frozen=True, kw_only=True):
    """`autoLink` section. At most one of `container_id` and `connection` is set; with neither it has no effect."""

    type: ClassVar[str] = "router.config.autoLink"

    address: str
    direction: str  # in: from the container to the router; out: to the container
    phase: int
    container_id: str | None
    connection: str | None  # name of a listener or connector
    external_address: str | None
    fallback: bool
    absence: int  # seconds that deliveries and senders wait for the return of a lost broker; 0: they do not


class LogConfig(EntityConfig, frozen=True, kw_only=True):
    """Log section. None in settings: inherited from module DEFAULT."""

    type: ClassVar[str] = "log"

    module: str
    settings: ModuleSettings


class ExchangeConfig(EntityConfig, frozen=True, kw_only=True):
    """Exchange section."""

    type: ClassVar[str] = "router.config.exchange"

    address: str
    phase: int
    alternate_address: str | None
    alternate_phase: int
    match_method: str


class BindingConfig(EntityConfig, frozen=True, kw_only=True):
    """Binding section. Its exchange exists."""

    type: ClassVar[str] = "router.config.binding"

    exchange_name: str
    binding_key: str
    next_hop_address: str
    next_hop_phase: int


class TapConfig(EntityConfig, frozen=True, kw_only=True):
    """Tap section. Its pattern matches the address of no tap."""

    type: ClassVar[str] = "router.config.tap"

    pattern: str
    address: str  # gets the copies
    mode: str  # copy or required

    @property
    def tokens(self) -> tuple[str, ...]:
        """Canonical pattern."""
        return tuple(canonical(self.pattern))

    @property
    def required(self) -> bool:
        """True if the outcome of a message waits for that of its copy."""
        return self.mode == "required"


class LinkRouteConfig(EntityConfig, frozen=True, kw_only=True):
    """`linkRoute` section, or a link route created by a client. Exactly one of prefix and pattern is set."""

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
        """Pattern that addresses are matched against."""
        return from_prefix(self.prefix) if self.prefix is not None else (self.pattern or "")

    @property
    def key(self) -> str:
        """Key of the link route's address in the table (brokers-and-edge.md LR-3, LR-4).

        A pattern whose only wildcard is a final `#` is equal to a prefix.
        """
        text = (self.prefix if self.prefix is not None else self.pattern or "").strip("./")
        *head, last = canonical(self.whole_pattern)
        prefix = last == "#" and not {"*", "#"}.intersection(head) and bool(head)
        if prefix and self.prefix is None:
            text = text[:-1].rstrip("./")
        return ("C" if prefix else "E") + text if self.direction == "in" else ("D" if prefix else "F") + text


class SaslUsersConfig(EntityConfig, frozen=True, kw_only=True):
    """`saslUsers` section: a file written by `sluice passwd`."""

    type: ClassVar[str] = "saslUsers"

    users_file: str
    user_prefix: str
    closes_deleted: bool = True  # close connections of users that are not in the new file


class TokenIssuerConfig(EntityConfig, frozen=True, kw_only=True):
    """`tokenIssuer` section. Exactly one of `jwks_file` and `jwks_url` is set."""

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
    """Telemetry section."""

    type: ClassVar[str] = "telemetry"

    path: str
    interval_seconds: int
    file_seconds: int
    max_megabytes: int
    keep_hours: int
    live: bool


class TracingConfig(EntityConfig, frozen=True, kw_only=True):
    """Tracing section."""

    type: ClassVar[str] = "tracing"

    endpoint: str | None  # None: that of the section openTelemetry
    tls: CollectorTls  # for `endpoint`
    ratio: float  # from 0 to 1
    addresses: tuple[str, ...]  # patterns
    parent_based: bool
    spans_per_second: int  # of each worker


class OpenTelemetryConfig(EntityConfig, frozen=True, kw_only=True):
    """Collector of OpenTelemetry, and what it gets."""

    type: ClassVar[str] = "openTelemetry"

    endpoint: str  # without the path of a signal
    tls: CollectorTls
    logs: bool
    metrics: bool
    metrics_interval_seconds: int


class PlacementConfig(EntityConfig, frozen=True, kw_only=True):
    """Placement section. At least one of `listener` and `host` is set; `host` is an address or a network."""

    type: ClassVar[str] = "placement"

    listener: str | None
    host: str | None
    worker: int


class AuditConfig(EntityConfig, frozen=True, kw_only=True):
    """Audit section. `path` is set if and only if `output` is `file`; sizes in octets."""

    type: ClassVar[str] = "audit"

    output: str
    path: str | None
    max_size: int
    keep: int
    max_queued: int
    refuses: bool  # refuse logins and changes while the queue is full


class AuthServiceConfig(EntityConfig, frozen=True, kw_only=True):
    """`authServicePlugin` section."""

    type: ClassVar[str] = "authServicePlugin"

    host: str
    port_text: str
    port: int
    realm: str | None
    ssl_profile: str | None


class ConsoleConfig(EntityConfig, frozen=True, kw_only=True):
    """Console section; without effect."""

    type: ClassVar[str] = "console"


class DummyConfig(EntityConfig, frozen=True, kw_only=True):
    """Entity for tests of management clients."""

    type: ClassVar[str] = "dummy"


class Configuration(Struct, frozen=True, kw_only=True):
    """Whole configuration. `warnings` are pairs of log module and text, which the supervisor logs at its start.

    `logs` has an entity for every log module: those of the file in its order, then all others.
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
    taps: tuple[TapConfig, ...] = ()
    vhosts: tuple[VhostConfig, ...]
    others: tuple[EntityConfig, ...]
    warnings: list[tuple[str, str]]

    @classmethod
    def of(cls, path: str, entities: Iterable[EntityConfig], warnings: list[tuple[str, str]]) -> "Configuration":
        """Return the configuration of `entities`, among them a router and a policy. Order matters within a type."""
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
        """Return the configuration with some entities removed and others added.

        Added entities take the positions of removed ones of their type as far as possible. Router and policy cannot be
        changed this way. Only the lists of the affected types are copied.
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
        yield from self.taps
        yield from self.vhosts
        yield from self.others
        yield from self.connectors
        yield from self.listeners

    def log_settings(self) -> LogSettings:
        """Return the log settings of this configuration."""
        return LogSettings(
            modules={log.module: log.settings for log in self.logs},
            timestamp_format=self.router.timestamp_format,
            utc=self.router.timestamps_in_utc,
        )


# Field of Configuration for each type of entity; all other types are in the last one.
_FIELDS = {
    "router": "router",
    "policy": "policy",
    "log": "logs",
    "sslProfile": "ssl_profiles",
    "router.config.address": "addresses",
    "router.config.autoLink": "auto_links",
    "router.config.exchange": "exchanges",
    "router.config.binding": "bindings",
    "router.config.tap": "taps",
    "router.config.linkRoute": "link_routes",
    "vhost": "vhosts",
    "connector": "connectors",
    "listener": "listeners",
    "": "others",
}
