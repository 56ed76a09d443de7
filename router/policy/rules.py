"""The rules of vhosts and their groups, ready to be asked. No input or output here.

What is compiled is compiled when the first connection needs it, once for a group: most groups of a large policy have no
connection. security.md 6.3 to 6.7.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from router.addressing.pattern import SEPARATORS, PatternTree
from router.config.entities import GroupConfig, PolicyConfig, VhostConfig
from router.policy.hosts import HostError, HostRules, known, names
from router.policy.management import UNLIMITED, ManagementRights
from router.policy.names import NameRules, compile_names

DEFAULT: Final = "$default"  # group of users that no other names
CONNECTOR: Final = "$connector"  # group of connections that the router opens
EVERYBODY: Final = "*"  # as a user
RESERVED: Final = "$"  # begins the names of groups that no token can put a user into

_numbers: Final = itertools.count(1)


class Addresses(Struct, frozen=True, dict=True):
    """Addresses that links may name: a list, or patterns."""

    items: tuple[str, ...]
    patterns: bool = False

    @cached_property
    def rules(self) -> NameRules:
        """The compiled rules."""
        return compile_names(self.items, self.patterns)

    def allows(self, address: str, user: str | None) -> bool:
        """Whether a link of this user may name this address."""
        return self.rules.permits(address, user)

    def allowing(self, address: str, user: str | None) -> str | None:
        """The first item that allows an address."""
        found = (item for item in self.items if compile_names([item], self.patterns).permits(address, user))
        return next(found, None)


class LinkRules(Struct, frozen=True):
    """What the links of a connection may do. max_senders, max_receivers: 0 is no limit, as for max_message_size."""

    sources: Addresses
    targets: Addresses
    max_senders: int = 0
    max_receivers: int = 0
    max_message_size: int = 0  # octets
    dynamic_source: bool = True
    anonymous_sender: bool = True
    user_id_proxy: bool = True
    waypoint_links: bool = True
    fallback_links: bool = True
    dynamic_link_routes: bool = True
    management: ManagementRights = UNLIMITED


def with_service(rules: LinkRules | None, sends: Iterable[str], receives: Iterable[str]) -> LinkRules:
    """The rules of a connection for which an authentication service has named addresses, and of its group where it has
    one; the group's patterns go before the service's lists (security.md A-8, A-10)."""
    sources, targets = Addresses(tuple(receives)), Addresses(tuple(sends))
    if rules is None:
        return LinkRules(sources, targets)
    return replace(
        rules,
        sources=rules.sources if rules.sources.patterns else sources,
        targets=rules.targets if rules.targets.patterns else targets,
        dynamic_source=True,
        anonymous_sender=True,
    )


class GroupRules(Struct, frozen=True, dict=True):
    """What one group of a vhost may do. `number` is unique in this process, for who keeps something by it."""

    vhost: str
    config: GroupConfig
    links: LinkRules
    max_connections_per_user: int
    max_connections_per_host: int
    addresses: Mapping[str, str]  # what host names stand for
    number: int

    @cached_property
    def hosts(self) -> HostRules:
        """Where its users may connect from. A name that nobody could look up allows no host."""
        usable = []
        for each in self.config.remote_hosts:
            try:
                HostRules([each], known(self.addresses))
            except HostError:
                continue
            usable.append(each)
        return HostRules(usable, known(self.addresses))


class VhostRules:
    """The rules of one vhost. Immutable."""

    def __init__(self, config: VhostConfig, policy: PolicyConfig, addresses: Mapping[str, str]) -> None:
        """addresses: what its host names stand for."""
        self.config: Final = config
        self.addresses: Final = addresses
        self._policy: Final = policy
        self._configs: Final = {group.name: group for group in config.groups}
        self._made: dict[str, GroupRules] = {}

    @cached_property
    def _group_of(self) -> Mapping[str, str]:
        return {user: group.name for group in self.config.groups for user in group.users}

    @property
    def name(self) -> str:
        return self.config.hostname

    def group(self, name: str) -> GroupRules | None:
        """A group by its name."""
        made = self._made.get(name)
        if made is None and (config := self._configs.get(name)) is not None:
            made = self._made[name] = group_rules(config, self.config, self._policy, self.addresses)
        return made

    def group_of(self, user: str | None, claimed: Collection[str] = ()) -> GroupRules | None:
        """The group of a user (None: nobody is known); None: unknown users are denied (security.md P-13). claimed:
        groups in the user's token, which count behind those that list the user."""
        name = None if user is None else self._group_of.get(user)
        if name is None and claimed:
            name = next((each for each in self._configs if each in claimed and not each.startswith(RESERVED)), None)
        if name is None:
            name = self._group_of.get(EVERYBODY)
        if name is None and self.config.allow_unknown_user:
            name = DEFAULT
        return None if name is None else self.group(name)


def group_rules(
    config: GroupConfig, vhost: VhostConfig, policy: PolicyConfig, addresses: Mapping[str, str]
) -> GroupRules:
    """The rules of a group, with what its vhost and the policy say where it says nothing (security.md P-15, P-21)."""
    size = config.max_message_size
    if size is None:
        size = policy.max_message_size if vhost.max_message_size is None else vhost.max_message_size
    links = LinkRules(
        sources=_addresses(config.sources, config.source_pattern),
        targets=_addresses(config.targets, config.target_pattern),
        max_senders=config.max_senders,
        max_receivers=config.max_receivers,
        max_message_size=size,
        dynamic_source=config.allow_dynamic_source,
        anonymous_sender=config.allow_anonymous_sender,
        user_id_proxy=config.allow_user_id_proxy,
        waypoint_links=config.allow_waypoint_links,
        fallback_links=config.allow_fallback_links,
        dynamic_link_routes=config.allow_dynamic_link_routes,
        management=ManagementRights(config.management, config.allow_admin_status_update),
    )
    per_user, per_host = config.max_connections_per_user, config.max_connections_per_host
    return GroupRules(
        vhost=vhost.hostname,
        config=config,
        links=links,
        max_connections_per_user=vhost.max_connections_per_user if per_user is None else per_user,
        max_connections_per_host=vhost.max_connections_per_host if per_host is None else per_host,
        addresses=addresses,
        number=next(_numbers),
    )


def host_names(vhost: VhostConfig) -> frozenset[str]:
    """The host names in the groups of a vhost, which stand for addresses."""
    return frozenset(name for group in vhost.groups for name in names(group.remote_hosts))


def _addresses(items: tuple[str, ...], patterns: tuple[str, ...] | None) -> Addresses:
    return Addresses(items) if patterns is None else Addresses(patterns, patterns=True)


class Vhosts:
    """All vhosts, by what clients call them (security.md P-11, P-12). Immutable."""

    def __init__(
        self, policy: PolicyConfig, vhosts: Iterable[VhostConfig], before: "Vhosts | None" = None,
        addresses: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """before: rules of vhosts that have not changed are taken over, with what is compiled. addresses: what host
        names stand for, beside what files have found."""
        self.policy: Final = policy
        self._vhosts: dict[str, VhostRules] = {}
        self._aliases: dict[str, str] = {}
        self._patterns: PatternTree[str] | None = PatternTree() if policy.vhost_patterns else None
        for config in vhosts:
            mine = config.addresses
            if addresses:
                mine = {**mine, **{name: addresses[name] for name in host_names(config) if name in addresses}}
            rules = None if before is None or before.policy != policy else before.get(config.hostname)
            if rules is None or rules.config != config or rules.addresses != mine:
                rules = VhostRules(config, policy, mine)
            self._vhosts[config.hostname] = rules
            for alias in config.aliases:
                self._aliases[alias] = config.hostname
            if self._patterns is not None:
                for pattern in (config.hostname, *config.aliases):
                    if pattern.strip(SEPARATORS):
                        self._patterns.put(pattern, pattern)

    def __iter__(self) -> Iterator[VhostRules]:
        return iter(self._vhosts.values())

    def get(self, hostname: str) -> VhostRules | None:
        """The vhost with exactly this name."""
        return self._vhosts.get(hostname)

    def find(self, name: str) -> VhostRules | None:
        """The vhost of connections that ask for this name, or the default one; None where there is neither."""
        if self._patterns is not None:
            name = self._patterns.match(name) or ""
        found = self._vhosts.get(self._aliases.get(name, name))
        return self._vhosts.get(self.policy.default_vhost) if found is None else found
