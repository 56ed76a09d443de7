"""What a configuration means: one immutable object for each section, all values typed and defaults filled in."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from router.config.jsontext import JsonValue
from router.log import LogSettings, ModuleSettings

DEFAULT_LINK_CAPACITY = 250  # deliveries; what a listener without linkCapacity grants
MIN_FRAME_SIZE = 512  # octets; AMQP 1.0 section 2.4.1: every peer must take frames of this size
MAX_SESSIONS = 32768  # sessions of one connection; Dispatch allowed as many


@dataclass(frozen=True, kw_only=True)
class EntityConfig:
    """What all entities have. Immutable after creation.

    `line` is the line of the section (None: made by the router), `named` whether the file gave the name, `values` the
    attributes under their management names: those given, converted, and those with a default.
    """

    name: str
    identity: str
    named: bool = False
    line: int | None = field(default=None, compare=False)
    values: Mapping[str, JsonValue] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class RouterConfig(EntityConfig):
    """The router section. Intervals and ages in seconds; `workers` is resolved, never absent."""

    id: str
    mode: str
    workers: int
    hello_interval_seconds: int
    hello_max_age_seconds: int
    ra_interval_seconds: int
    ra_interval_flux_seconds: int
    remote_ls_max_age_seconds: int
    allow_unsettled_multicast: bool
    default_distribution: str
    metadata: str | None
    timestamp_format: str | None
    timestamps_in_utc: bool


@dataclass(frozen=True, slots=True)
class FailoverServer:
    """Another router for clients, as told in the connection property `failover-server-list`."""

    scheme: str | None
    host: str
    port: str


@dataclass(frozen=True, kw_only=True)
class ListenerConfig(EntityConfig):
    """A listener section. `port` 0: the kernel chooses. `port_text` is the port as written, for log and identity."""

    host: str
    port: int
    port_text: str
    family: str | None  # IPv4, IPv6 or None: whatever the host has
    role: str
    cost: int
    sasl_mechanisms: tuple[str, ...]
    max_frame_size: int  # octets, at least MIN_FRAME_SIZE
    max_sessions: int  # 1..MAX_SESSIONS
    max_session_frames: int | None  # None: practically unlimited
    idle_timeout_seconds: int  # 0: never
    initial_handshake_timeout_seconds: int  # 0: never
    strip_annotations_in: bool
    strip_annotations_out: bool
    link_capacity: int  # deliveries
    multi_tenant: bool
    failover_servers: tuple[FailoverServer, ...]
    open_properties: Mapping[str, JsonValue]

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the addresses or names to listen on: an empty host means all interfaces of both families."""
        if self.host:
            return (self.host,)
        every = {"IPv4": ("0.0.0.0",), "IPv6": ("::",)}
        return every["IPv4"] + every["IPv6"] if self.family is None else every[self.family]


@dataclass(frozen=True, kw_only=True)
class AddressConfig(EntityConfig):
    """An address section. Exactly one of `prefix` and `pattern` is a text, as written in the file."""

    prefix: str | None
    pattern: str | None
    distribution: str
    waypoint: bool
    ingress_phase: int
    egress_phase: int
    priority: int | None
    fallback: bool
    presettled_overflow: str


@dataclass(frozen=True, kw_only=True)
class LogConfig(EntityConfig):
    """A log section. None: as module DEFAULT."""

    module: str
    settings: ModuleSettings


@dataclass(frozen=True, kw_only=True)
class ExchangeConfig(EntityConfig):
    """An exchange section."""

    address: str
    phase: int
    alternate_address: str | None
    alternate_phase: int
    match_method: str


@dataclass(frozen=True, kw_only=True)
class BindingConfig(EntityConfig):
    """A binding section of an exchange that exists."""

    exchange_name: str
    binding_key: str
    next_hop_address: str
    next_hop_phase: int


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A whole file. `warnings` are pairs of log module and text, which the supervisor logs at its start."""

    path: str
    router: RouterConfig
    listeners: tuple[ListenerConfig, ...]
    addresses: tuple[AddressConfig, ...]
    logs: tuple[LogConfig, ...]
    exchanges: tuple[ExchangeConfig, ...]
    bindings: tuple[BindingConfig, ...]
    warnings: list[tuple[str, str]]

    def log_settings(self) -> LogSettings:
        """Return the settings of the log that this configuration asks for."""
        return LogSettings(
            modules={log.module: log.settings for log in self.logs},
            timestamp_format=self.router.timestamp_format,
            utc=self.router.timestamps_in_utc,
        )
