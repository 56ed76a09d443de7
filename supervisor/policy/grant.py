"""Permissions of one connection, from its open to its end."""

from collections.abc import Sequence
from typing import NamedTuple

from sluice.router.addressing.address import normalise
from sluice.router.config.entities import EndpointConfig, ListenerConfig
from sluice.router.policy.decisions import RESOURCE_LIMIT, LinkDenied, LinkFacts, LinkOwner, decide_link
from sluice.router.policy.rules import GroupRules, LinkRules, VhostRules
from sluice.supervisor.audit.trail import AuditTrail, remote
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.policy.denials import NO_VHOST, DenialKind
from sluice.supervisor.policy.shared_usage import LimitedUsage
from sluice.supervisor.policy.stats import VhostStats


class OpenFacts(NamedTuple):
    """Facts that the decision about an open depends on.

    user: None if the client is anonymous. peer: `ip:port`. service: addresses that an authentication service allows
    the user to send to, and to receive from. groups: from the user's token.
    """

    number: int
    user: str | None
    hostname: str | None
    peer: str
    endpoint: EndpointConfig
    service: tuple[Sequence[str], Sequence[str]] | None = None
    groups: tuple[str, ...] = ()

    @property
    def host(self) -> str:
        """Return the IP address of the peer."""
        return self.peer.rpartition(":")[0].strip("[]")

    def who(self, vhost: str | None) -> dict[str, str | int | None]:
        """Return a description of the client for the audit log."""
        endpoint = self.endpoint
        way = "listener" if isinstance(endpoint, ListenerConfig) else "connector"
        known = {"user": self.user, **remote(self.peer), "connection": self.number}
        return {**known, way: endpoint.name, "vhost": vhost}


class Grant:
    """Permissions and usage of one connection, from its open to its end. Owner: the policy."""

    __slots__ = (
        "announced", "at_end", "attaches", "bounds", "connection", "facts", "group", "links", "receivers", "senders",
        "stats", "vhost", "who",
    )  # fmt: skip

    def __init__(self, facts: OpenFacts, links: LinkRules) -> None:
        self.facts = facts
        self.links = links
        self.who = LinkOwner(facts.user, facts.host, facts.hostname)
        self.connection: RegisteredConnection | None = None  # set when the connection is open
        self.vhost: VhostRules | None = None  # None: only the rules of an authentication service apply
        self.group: GroupRules | None = None
        self.stats: VhostStats | None = None
        self.announced: tuple[int, int] | None = None  # worker, and the number under which it has the rules
        self.bounds: tuple[LimitedUsage, ...] = ()  # limits shared with other connections
        self.attaches: dict[int, LinkFacts] = {}  # allowed links, by the worker's number for the link
        self.senders = 0  # senders among `attaches`
        self.receivers = 0
        self.at_end: tuple[int, int] | None = None  # senders and receivers when the connection ended

    def reserve(self, number: int, facts: LinkFacts) -> LinkDenied | None:
        """Count a link if the rules allow it. Check and count are one operation.

        Returns the reason if the link is denied.
        """
        denied = decide_link(self.links, facts, self.who, self.receivers if facts.consumer else self.senders)
        if denied is None:
            denied = self._full(number, facts)
        if denied is None:
            self.count(number, facts)
        return denied

    def _full(self, number: int, facts: LinkFacts) -> LinkDenied | None:
        """Return a denial if the vhost or the group has no room for a link."""
        address = self._address(number, facts)
        for bound in self.bounds:
            attribute = bound.full(address)
            if attribute is not None:
                reason = "links" if attribute == "maxLinks" else "addresses"
                kind = "receiver" if facts.consumer else "sender"
                return LinkDenied(reason, RESOURCE_LIMIT, f"{kind} {self.who} based on {attribute} limit")
        return None

    def _address(self, number: int, facts: LinkFacts) -> str | None:
        """Return the address that a link counts for. A generated address gets a name unique to the link."""
        if facts.coordinator:
            return None
        if facts.dynamic:
            return f"{self.facts.number} {number}"
        return normalise(facts.address) if facts.address else None

    def count(self, number: int, facts: LinkFacts) -> None:
        """Count a link until `release`."""
        self.attaches[number] = facts
        for bound in self.bounds:
            bound.share.attach(facts.consumer, self._address(number, facts))
        if facts.consumer:
            self.receivers += 1
        else:
            self.senders += 1

    def release(self, number: int) -> None:
        """Stop counting a link that has ended or was never attached. Without effect if the link is not counted."""
        facts = self.attaches.pop(number, None)
        if facts is None:
            return
        for bound in self.bounds:
            bound.share.detach(facts.consumer, self._address(number, facts))
        if facts.consumer:
            self.receivers -= 1
        else:
            self.senders -= 1

    def enter(self, bounds: tuple[LimitedUsage, ...]) -> None:
        """Count the connection in these shared limits. It has no links yet."""
        self.bounds = bounds
        for bound in bounds:
            bound.share.connections += 1

    def leave(self) -> dict[int, LinkFacts]:
        """Stop counting the connection and its links in the shared limits, and return these links."""
        attaches = dict(self.attaches)
        for number in attaches:
            self.release(number)
        for bound in self.bounds:
            bound.share.connections -= 1
        self.bounds = ()
        return attaches

    def report(self, trail: AuditTrail, of: str, reason: str, **detail: str | int | None) -> None:
        """Report a refusal to the audit log. of: the kind of object that was refused."""
        kind = self.kind(reason)
        vhost = kind.vhost or None
        trail.denied(self.facts.who(vhost), kind, {"of": of, "reason": reason, "group": kind.group or None, **detail})

    def kind(self, reason: str) -> DenialKind:
        """Return the labels that a refusal is counted by."""
        return DenialKind(
            NO_VHOST if self.vhost is None else self.vhost.name,
            "" if self.group is None else self.group.config.name,
            reason,
        )
