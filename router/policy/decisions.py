"""Policy decisions about opens and attaches, as functions of the request and the rules, without state.

Log texts and the order of the checks are those of 1.19 (security.md 6.3 to 6.8). `reason` is the label for metrics.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from sluice.router.policy.management import ManagementRights, forbids_management
from sluice.router.policy.rules import CONNECTOR, GroupRules, LinkRules, VhostRules

RESOURCE_LIMIT: Final = "amqp:resource-limit-exceeded"
UNAUTHORIZED: Final = "amqp:unauthorized-access"
CONNECTION_TEXT: Final = "connection disallowed by local policy"
LINK_TEXT: Final = "link disallowed by local policy"

_WAYPOINT: Final = "qd.waypoint"
_FALLBACK: Final = "qd.fallback"


class ConnectionCounts(NamedTuple):
    """Numbers of existing connections of a vhost: all, of this user, from this host, and of all users of the group."""

    vhost: int = 0
    user: int = 0
    host: int = 0
    group: int = 0


class OpenDenied(Struct, frozen=True):
    """Denied open. `vhost` is None if no vhost was found. `texts`: log texts, one for each violated rule."""

    reason: str
    texts: tuple[str, ...]
    vhost: VhostRules | None = None
    group: GroupRules | None = None


class OpenAllowed(Struct, frozen=True):
    """Allowed open, with the vhost and the group whose rules apply to the connection."""

    vhost: VhostRules
    group: GroupRules


def decide_group(
    vhost: VhostRules | None, user: str | None, host: str, groups: Collection[str] = ()
) -> OpenDenied | OpenAllowed:
    """Decide about a client's open by group and host, without the limits (security.md P-13, P-14).

    `vhost` is None if no vhost was found. `host` is the client's address, `groups` has the groups in the user's token.
    """
    if vhost is None:
        return OpenDenied("no_vhost", ("No policy defined for vhost",))
    group = vhost.group_of(user, groups)
    if group is None:
        return OpenDenied("unknown_user", ("User is not in a user group and unknown users are denied",), vhost)
    if not group.hosts.allows(host):
        return OpenDenied("remote_host", ("User is not allowed to connect from this network host",), vhost, group)
    return OpenAllowed(vhost, group)


def decide_connection_limits(allowed: OpenAllowed, counts: ConnectionCounts) -> OpenDenied | OpenAllowed:
    """Decide whether the limits allow another connection of a group (security.md P-15)."""
    vhost, group = allowed.vhost, allowed.group
    of_group = group.config.shared.connections
    full = [
        (reason, f"Connection denied by {what} limit")
        for reason, what, count, limit in (
            ("connections", "application connection", counts.vhost, vhost.config.max_connections),
            ("connections_per_user", "per user", counts.user, group.max_connections_per_user),
            ("connections_per_host", "per host", counts.host, group.max_connections_per_host),
            ("connections_per_group", "group", counts.group, of_group or counts.group + 1),
        )
        if count >= limit
    ]
    return OpenDenied(full[0][0], tuple(text for _, text in full), vhost, group) if full else allowed


def decide_connector(vhost: VhostRules | None) -> OpenDenied | OpenAllowed:
    """Decide about a connection opened by the router whose policyVhost is `vhost` (security.md P-60)."""
    group = None if vhost is None else vhost.group(CONNECTOR)
    if vhost is None or group is None:
        return OpenDenied("no_connector_group", ("Failed to find policyVhost settings",), vhost)
    return OpenAllowed(vhost, group)


class LinkFacts(NamedTuple):
    """Facts of an attach. `consumer`: the client receives. `capabilities` are those of the terminus at the router."""

    consumer: bool
    address: str | None  # exactly as the client wrote it
    dynamic: bool = False
    coordinator: bool = False
    capabilities: Sequence[str] = ()
    wanted: str | None = None  # address requested for a dynamic terminus, by a link route
    rights: ManagementRights | None = None  # rights with which a link to the agent of another router is attached


class LinkOwner(Struct, frozen=True):
    """Owner of a link, as shown in the log. `vhost` is the host name of the open."""

    user: str | None
    host: str
    vhost: str | None

    def __str__(self) -> str:
        user = "(null)" if self.user is None else self.user
        return f"for user '{user}', rhost '{self.host}', vhost '{self.vhost or ''}'"


class LinkDenied(Struct, frozen=True):
    """Denied attach. `text` is the log text."""

    reason: str
    condition: str
    text: str


def decide_link(rules: LinkRules, link: LinkFacts, who: LinkOwner, links: int = 0) -> LinkDenied | None:
    """Decide about an attach (security.md P-31, P-32, P-45). Return None if it is allowed.

    `links` is the number of existing links of the same direction. management.md 5.13; security.md P-48.
    """
    kind, limit = ("receiver", rules.max_receivers) if link.consumer else ("sender", rules.max_senders)
    if limit and links >= limit:
        text = f"{kind} {who} based on max{kind.capitalize()}s limit"
        return LinkDenied(f"{kind}s", RESOURCE_LIMIT, text)
    if link.consumer and link.dynamic:
        if rules.dynamic_source and (link.wanted is None or rules.sources.allows(link.wanted, who.user)):
            return None
        return LinkDenied("dynamic_source", UNAUTHORIZED, f"receiver dynamic source {who},")
    if link.address and not link.coordinator:
        return (
            _capability_denied(rules, link, kind, who)
            or _address_denied(rules, link, kind, who)
            or _management_denied(rules, link, kind, who)
        )
    if link.consumer:
        return LinkDenied("source", UNAUTHORIZED, f"receiver link '' {who}")
    allowed = link.wanted is None or rules.targets.allows(link.wanted, who.user)
    if rules.anonymous_sender and allowed:
        return None
    return LinkDenied("anonymous_sender", UNAUTHORIZED, f"anonymous sender {who}")


def _capability_denied(rules: LinkRules, link: LinkFacts, kind: str, who: LinkOwner) -> LinkDenied | None:
    for allowed, prefix, what in (
        (rules.waypoint_links, _WAYPOINT, "Waypoint"),
        (rules.fallback_links, _FALLBACK, "Fallback"),
    ):
        if not allowed and any(each.startswith(prefix) for each in link.capabilities):
            text = f"{kind} link '{link.address}' {who} {what} capability not permitted"
            return LinkDenied(what.lower(), UNAUTHORIZED, text)
    return None


def _address_denied(rules: LinkRules, link: LinkFacts, kind: str, who: LinkOwner) -> LinkDenied | None:
    addresses, terminus = (rules.sources, "source") if link.consumer else (rules.targets, "target")
    if addresses.allows(link.address or "", who.user):
        return None
    return LinkDenied(terminus, UNAUTHORIZED, f"{kind} link '{link.address}' {who} based on link {terminus} name")


def _management_denied(rules: LinkRules, link: LinkFacts, kind: str, who: LinkOwner) -> LinkDenied | None:
    """Deny a link to a management node if the group has no role, or other rights than the link was attached with."""
    rights = rules.management
    if not forbids_management(rights, link.address or "") and (link.rights is None or link.rights == rights):
        return None
    return LinkDenied("management", UNAUTHORIZED, f"{kind} link '{link.address}' {who} based on management role")
