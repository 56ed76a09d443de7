"""Rules of vhosts and their groups, ready for decisions; without input or output.

Specification: security.md 6.3 to 6.7. The rules of a group are compiled when its first connection needs them, since
most groups of a large policy have no connections.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sluice.router.addressing.pattern import SEPARATORS, PatternTree
from sluice.router.config.policy_entities import GroupConfig, PolicyConfig, VhostConfig
from sluice.router.policy.hosts import HostError, HostRules, known, names
from sluice.router.policy.management import UNLIMITED, ManagementRights
from sluice.router.policy.names import NameRules, compile_names

DEFAULT: Final = "$default"  # group of users that no other group names
CONNECTOR: Final = "$connector"  # group of connections opened by the router
EVERYBODY: Final = "*"  # item of `users` that stands for all users
RESERVED: Final = "$"  # first character of groups that a token cannot assign

_numbers: Final = itertools.count(1)


class PermittedAddresses(Struct, frozen=True, dict=True):
    """Addresses that links may use: a list, or patterns."""

    items: tuple[str, ...]
    patterns: bool = False

    @cached_property
    def rules(self) -> NameRules:
        """Compiled rules."""
        return compile_names(self.items, self.patterns)

    def allows(self, address: str, user: str | None) -> bool:
        """Return whether a link of this user may use this address."""
        return self.rules.permits(address, user)

    def first_allowing_item(self, address: str, user: str | None) -> str | None:
        """Return the first item that allows an address, or None."""
        found = (item for item in self.items if compile_names([item], self.patterns).permits(address, user))
        return next(found, None)


class LinkRules(Struct, frozen=True):
    """Rules for the links of a connection. 0 means no limit for max_senders, max_receivers and max_message_size."""

    sources: PermittedAddresses
    targets: PermittedAddresses
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


def with_service_addresses(rules: LinkRules | None, sends: Iterable[str], receives: Iterable[str]) -> LinkRules:
    """Return the rules of a connection whose authentication service has listed addresses (security.md A-8, A-10).

    `rules` are those of its group, if it has one. Patterns of the group take precedence over the service's lists; lists
    of the group are replaced.
    """
    sources, targets = PermittedAddresses(tuple(receives)), PermittedAddresses(tuple(sends))
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
    """Rules of one group of a vhost. `number` is unique in this process and identifies these rules."""

    vhost: str
    config: GroupConfig
    links: LinkRules
    max_connections_per_user: int
    max_connections_per_host: int
    addresses: Mapping[str, str]  # resolved address by host name
    number: int

    @cached_property
    def hosts(self) -> HostRules:
        """Hosts from which the group's users may connect. A name that could not be resolved allows no host."""
        usable = []
        for each in self.config.remote_hosts:
            try:
                HostRules([each], known(self.addresses))
            except HostError:
                continue
            usable.append(each)
        return HostRules(usable, known(self.addresses))


class VhostRules:
    """Rules of one vhost. Immutable, except that rules of groups are made on first use."""

    def __init__(self, config: VhostConfig, policy: PolicyConfig, addresses: Mapping[str, str]) -> None:
        """Store the configuration. `addresses` has the resolved address by host name."""
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
        """Return the rules of a group by its name, or None."""
        made = self._made.get(name)
        if made is None and (config := self._configs.get(name)) is not None:
            made = self._made[name] = group_rules(config, self.config, self._policy, self.addresses)
        return made

    def group_of(self, user: str | None, claimed: Collection[str] = ()) -> GroupRules | None:
        """Return the group of a user (security.md P-13), or None if unknown users are denied.

        `user` is None for an unauthenticated client. `claimed` has the groups in the user's token; a group that lists
        the user by name takes precedence over them.
        """
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
    """Return the rules of a group, with missing values from its vhost and the policy (security.md P-15, P-21)."""
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
    """Return the host names in the groups of a vhost that have to be resolved."""
    return frozenset(name for group in vhost.groups for name in names(group.remote_hosts))


def _addresses(items: tuple[str, ...], patterns: tuple[str, ...] | None) -> PermittedAddresses:
    return PermittedAddresses(items) if patterns is None else PermittedAddresses(patterns, patterns=True)


class Vhosts:
    """All vhosts by name, alias or pattern (security.md P-11, P-12). Immutable."""

    def __init__(
        self, policy: PolicyConfig, vhosts: Iterable[VhostConfig], before: "Vhosts | None" = None,
        addresses: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Make the rules of all vhosts.

        From `before`, the compiled rules of unchanged vhosts are taken over. `addresses` has resolved host names, in
        addition to those in the configuration.
        """
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
        """Return the vhost with exactly this name, or None."""
        return self._vhosts.get(hostname)

    def find(self, name: str) -> VhostRules | None:
        """Return the vhost of connections that request this name, else the default vhost, or None without one."""
        if self._patterns is not None:
            name = self._patterns.match(name) or ""
        found = self._vhosts.get(self._aliases.get(name, name))
        return self._vhosts.get(self.policy.default_vhost) if found is None else found
