"""Typed configuration of the policy: limits and vhosts with their groups, with defaults filled in."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from msgspec import field

from sluice.router.config.entity import EntityConfig
from sluice.router.record import Record


class PolicyConfig(EntityConfig, frozen=True, kw_only=True):
    """Policy section. `directory` is a folder with files of further vhosts; empty: there is none."""

    type: ClassVar[str] = "policy"

    max_connections: int
    max_message_size: int  # octets; 0: no limit
    vhosts_enabled: bool
    vhost_patterns: bool
    directory: str
    default_vhost: str


class SharedLimits(Record, frozen=True, kw_only=True):
    """Limits shared by all connections of a vhost, or of one of its groups. 0: no limit."""

    connections: int = 0  # groups only
    links: int = 0
    addresses: int = 0
    messages_per_second: int = 0
    octets_per_second: int = 0
    buffered_octets: int = 0

    def by_attribute(self) -> Iterator[tuple[str, int]]:
        """Iterate over the limits that are set, with the names of their attributes."""
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
        """Whether workers have to count messages and octets."""
        return bool(self.messages_per_second or self.octets_per_second or self.buffered_octets)


class GroupConfig(Record, frozen=True, kw_only=True):
    """Rules for one group of a vhost's users. None: the value of the vhost, or of the listener, applies.

    `line` is the line of its name in the file of the vhost; 0: not from a file. `lines` has those of its attributes.
    """

    UNCOMPARED: ClassVar[frozenset[str]] = frozenset({"line", "lines"})

    name: str
    users: tuple[str, ...] = ()
    remote_hosts: tuple[str, ...] = ()  # empty: no host is allowed
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
    management: str = "all"  # role; see router/policy/management.py
    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    source_pattern: tuple[str, ...] | None = None  # if set, replaces `sources`; likewise `target_pattern`
    target_pattern: tuple[str, ...] | None = None
    line: int = 0
    lines: Mapping[str, int] = field(default_factory=dict)


class VhostConfig(EntityConfig, frozen=True, kw_only=True):
    """Vhost section. `addresses` has the addresses of its groups' host names, resolved when the file was read."""

    type: ClassVar[str] = "vhost"
    UNCOMPARED: ClassVar[frozenset[str]] = frozenset({"line", "file", "lines", "addresses"})

    hostname: str
    aliases: tuple[str, ...]
    max_connections: int
    max_connections_per_user: int
    max_connections_per_host: int
    max_message_size: int | None  # octets; None: the value of the policy; 0: no limit
    shared: SharedLimits = SharedLimits()
    allow_unknown_user: bool
    close_on_change: bool
    groups: tuple[GroupConfig, ...]
    lines: Mapping[str, int] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)
