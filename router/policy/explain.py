"""Explanation of policy decisions: the result, the reason, and the line of the configuration file.

The decisions are made by the functions that the router uses.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from sluice.router.config.entities import Configuration
from sluice.router.config.policy_entities import VhostConfig
from sluice.router.policy.decisions import (
    LinkDenied,
    LinkFacts,
    LinkOwner,
    OpenAllowed,
    OpenDenied,
    decide_group,
    decide_link,
)
from sluice.router.policy.hosts import HostError, HostRules, known
from sluice.router.policy.rules import DEFAULT, EVERYBODY, GroupRules, VhostRules, Vhosts


class Finding(Struct, frozen=True):
    """Result for one question: whether `what` is allowed, why, and where the rule is written.

    `file` is None for a rule created by management.
    """

    allowed: bool
    what: str
    why: str
    file: str | None
    line: int | None

    def as_map(self) -> dict[str, object]:
        """Return the finding as plain values."""
        return {
            "allowed": self.allowed,
            "what": self.what,
            "why": self.why,
            "file": self.file,
            "line": self.line or None,
        }


class PolicyClient(Struct, frozen=True):
    """Client that a question is about.

    `user` is None for an unauthenticated client. `vhost` is the host name of the open, or policyVhost.
    """

    user: str | None
    host: str
    vhost: str
    groups: tuple[str, ...] = ()  # groups in the token

    def __str__(self) -> str:
        user = "nobody" if self.user is None else f"user '{self.user}'"
        if self.groups:
            user = f"{user} (token: {', '.join(self.groups)})"
        return f"{user} from {self.host}"


# Links without an address.
ANONYMOUS: Final = LinkFacts(consumer=False, address=None)
DYNAMIC: Final = LinkFacts(consumer=True, address=None, dynamic=True)


def explain(
    configuration: Configuration, client: PolicyClient, links: Iterable[LinkFacts], vhosts: Vhosts | None = None
) -> Iterator[Finding]:
    """Yield a finding for the client's open and, if that is allowed, for each of its links.

    Limits on numbers of connections and links are not checked, since they depend on other clients. `vhosts` has the
    compiled rules, if the caller has them.
    """
    policy = configuration.policy
    what = f"a connection of {client} to vhost '{client.vhost}'"
    if not policy.vhosts_enabled:
        why = "enableVhostPolicy is not set: vhosts are not looked at, and everything is allowed"
        yield Finding(True, what, why, configuration.path, policy.line)
        return
    vhosts = Vhosts(policy, configuration.vhosts) if vhosts is None else vhosts
    decision = decide_group(vhosts.find(client.vhost), client.user, client.host, client.groups)
    yield _opened(configuration, decision, client, what)
    if isinstance(decision, OpenAllowed):
        yield from _limits(configuration, decision)
        who = LinkOwner(client.user, client.host, client.vhost)
        for link in links:
            yield _linked(configuration, decision, link, who)


def _opened(
    configuration: Configuration, decision: OpenAllowed | OpenDenied, client: PolicyClient, what: str
) -> Finding:
    policy = configuration.policy
    if decision.vhost is None:
        why = f"no vhost has this name or alias, and there is no default vhost '{policy.default_vhost}'"
        return Finding(False, what, why, configuration.path, policy.line)
    vhost = decision.vhost.config
    file = _file(vhost, configuration)
    found = _which(decision.vhost, client.vhost)
    if decision.group is None:
        why = f"{found}: the user is in none of its groups, and allowUnknownUser is not set"
        return Finding(False, what, why, file, vhost.lines.get("allowUnknownUser", vhost.line))
    group = decision.group.config
    found = f"{found}, {_by(decision.group, client)}"
    line = group.lines.get("remoteHosts", group.line)
    if isinstance(decision, OpenDenied):
        hosts = ", ".join(group.remote_hosts)
        why = f"{found}: remoteHosts {'is not set' if not hosts else f'({hosts}) does not contain {client.host}'}"
        return Finding(False, what, why, file, line)
    return Finding(True, what, f"{found}: remoteHosts '{_host(decision.group, client.host)}'", file, line)


def _file(vhost: VhostConfig, configuration: Configuration) -> str | None:
    return (vhost.file or configuration.path) if vhost.line else None


def _which(vhost: VhostRules, name: str) -> str:
    if vhost.name == name:
        return f"vhost '{name}'"
    if name in vhost.config.aliases:
        return f"vhost '{vhost.name}' by its alias '{name}'"
    return f"vhost '{vhost.name}', which is the default or has a pattern that matches '{name}'"


def _by(group: GroupRules, client: PolicyClient) -> str:
    if client.user in group.config.users:
        return f"group '{group.config.name}' by its users"
    if group.config.name in client.groups:
        return f"group '{group.config.name}' by the token"
    if EVERYBODY in group.config.users:
        return f"group '{group.config.name}' of everybody"
    assert group.config.name == DEFAULT
    return f"group '{DEFAULT}' by allowUnknownUser"


def _host(group: GroupRules, host: str) -> str:
    """Return the item of remoteHosts that allows a host."""
    for each in group.config.remote_hosts:
        try:
            if HostRules([each], known(group.addresses)).allows(host):
                return each
        except HostError:
            continue
    raise ValueError(f"{host} is not allowed")


def _limits(configuration: Configuration, allowed: OpenAllowed) -> Iterator[Finding]:
    """Yield the limits that the connection shares with others."""
    vhost, group = allowed.vhost.config, allowed.group.config
    for whose, shared, lines in (
        (f"all connections of vhost '{vhost.hostname}'", vhost.shared, vhost.lines),
        (f"all users of group '{group.name}'", group.shared, group.lines),
    ):
        for attribute, limit in shared.by_attribute():
            why = f"shared by {whose}; who else uses it is not looked at"
            line = lines.get(attribute, vhost.line or 0)
            yield Finding(True, f"{attribute} {limit}", why, _file(vhost, configuration), line)


def _linked(configuration: Configuration, opened: OpenAllowed, link: LinkFacts, who: LinkOwner) -> Finding:
    vhost, group = opened.vhost.config, opened.group.config
    file = _file(vhost, configuration)
    denied = decide_link(opened.group.links, link, who)
    if not link.address:
        flag = "allowDynamicSource" if link.consumer else "allowAnonymousSender"
        what = "a receiver with a dynamic address" if link.consumer else "a sender without an address"
        why = f"group '{group.name}': {flag} is {'set' if denied is None else 'not set'}"
        return Finding(denied is None, what, why, file, group.lines.get(flag, group.line))
    return _address(opened, link, who, denied, file)


def _address(
    opened: OpenAllowed, link: LinkFacts, who: LinkOwner, denied: LinkDenied | None, file: str | None
) -> Finding:
    group, rules = opened.group.config, opened.group.links
    addresses, kind = (rules.sources, "source") if link.consumer else (rules.targets, "target")
    attribute = f"{kind}Pattern" if addresses.patterns else f"{kind}s"
    what = f"{'receiving from' if link.consumer else 'sending to'} '{link.address}'"
    line = group.lines.get(attribute, group.line)
    if denied is None:
        item = addresses.first_allowing_item(link.address or "", who.user)
        return Finding(True, what, f"group '{group.name}': {attribute} has '{item}'", file, line)
    if denied.reason == "management":
        why = f"group '{group.name}': management is '{group.management}'"
        return Finding(False, what, why, file, group.lines.get("management", group.line))
    missing = "is not set" if not addresses.items else "has nothing that allows it"
    return Finding(False, what, f"group '{group.name}': {attribute} {missing}", file, line)
