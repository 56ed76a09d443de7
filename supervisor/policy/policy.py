"""Policy: decides who may open a connection and what its links may do. The supervisor decides, workers enforce.

A connection keeps the rules of its group from its open on, as a *grant*. Changed rules apply to connections opened
later. A vhost with `onChange: close` re-evaluates its present connections. Decision record 0026.

routing-semantics.md 13.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from sluice.router.amqp.errors import CONNECTION_FORCED
from sluice.router.config.entities import Configuration, ListenerConfig
from sluice.router.config.policy_entities import SharedLimits, VhostConfig
from sluice.router.config.roles import CLIENT_ROLES, EDGE
from sluice.router.config.vhosts import host_fault
from sluice.router.control.handlers import HandlerTable
from sluice.router.control.messages import (
    Attach,
    Forbidden,
    Limits,
    Opened,
    Oversized,
    Permit,
    Rules,
    RulesGone,
    SessionDenied,
)
from sluice.router.log import DEBUG, WARNING, ProcessLog
from sluice.router.policy.decisions import (
    CONNECTION_TEXT,
    LINK_TEXT,
    RESOURCE_LIMIT,
    LinkDenied,
    LinkFacts,
    LinkOwner,
    OpenAllowed,
    OpenDenied,
    decide_connection_limits,
    decide_connector,
    decide_group,
)
from sluice.router.policy.hosts import HostError, HostRules, known, resolve_hosts
from sluice.router.policy.management import (
    UNLIMITED,
    ManagementRights,
    address_for,
    is_of_another_router,
)
from sluice.router.policy.rules import (
    Vhosts,
    host_names,
    with_service_addresses,
)
from sluice.router.ring.region import Region
from sluice.supervisor.audit.trail import AuditTrail
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.connections.admission import Admit, Decision, Deny
from sluice.supervisor.connections.connections import RegisteredConnection, RegisteredLink
from sluice.supervisor.connections.tenants import tenant_of
from sluice.supervisor.policy.connection_rules import connection_limits, link_rules
from sluice.supervisor.policy.denials import MODULE, NO_VHOST, DenialKind, Denials
from sluice.supervisor.policy.grant import Grant, OpenFacts
from sluice.supervisor.policy.shared_usage import VHOST, LimitedUsage, SharedUsage, SharedUsages
from sluice.supervisor.policy.stats import VhostStats
from sluice.supervisor.runtime.threads import Threads
from sluice.supervisor.subsystem import Subsystem

RESOLVE_SECONDS: Final = 10.0  # timeout for the names of remote hosts
MAX_RESOLVERS: Final = 8  # threads
SHOWN_HOSTNAME: Final = 100  # characters of a client's hostname in the log
VHOST_ROLES: Final = (*CLIENT_ROLES, EDGE)  # roles of listeners that vhosts apply to
# Reason for closing a connection whose links are at addresses of its former vhost.
OTHER_VHOST: Final = Deny(CONNECTION_FORCED, "A changed configuration puts this connection into another vhost")
_NO_LIMITS: Final = SharedLimits()
DENIED: Final = Deny(RESOURCE_LIMIT, CONNECTION_TEXT, by_policy=True)

_Found = Mapping[str, str | HostError]  # addresses by name, or the reason for which there is none


class ConnectionCloser(Protocol):
    """Interface for closing connections and links that are no longer permitted."""

    @property
    def count(self) -> int:
        """Return the number of accepted connections."""

    def close(
        self, connection: RegisteredConnection, condition: str | None = None, description: str | None = None
    ) -> None:
        """Make the worker close a connection."""

    def close_link(self, connection: RegisteredConnection, number: int, condition: str, description: str) -> None:
        """Make the worker close a link of a client. number: the worker's number for the link."""


class Policy(Subsystem):
    """Policy for connections and links. `join` must be called first. Owner: the core. security.md P-9."""

    def __init__(
        self, configuration: Configuration, workers: Mapping[int, WorkerProcess], trail: AuditTrail, log: ProcessLog
    ) -> None:
        self.denials = Denials(log)
        self.links_denied = 0
        self.message_size_denied = 0
        self.total_denials = 0  # denied sessions, links and messages
        self.unknown_vhosts_denied = 0
        self._router_id = configuration.router.id
        self._workers = workers
        # by worker: number of connections for each rule number that the worker has
        self._announced: dict[int, dict[int, int]] = {}
        self._closer: ConnectionCloser | None = None
        self._trail = trail
        self._log = log
        self._vhosts = Vhosts(configuration.policy, configuration.vhosts)
        self._shares = SharedUsages(lambda text: log.error(MODULE, text))
        self._stats: dict[str, VhostStats] = {vhost.name: VhostStats() for vhost in self._vhosts}
        self._grants: dict[int, Grant] = {}  # by connection number
        #: Connections with rules, by number. `attach` and `bound_address` concern no others.
        self.ruled: Final[Mapping[int, object]] = self._grants
        self._addresses: dict[str, str] = {}  # resolved names of remote hosts that files did not resolve
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: Threads | None = None

    def connect(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use this event loop from now on; host names are resolved in threads."""
        self._loop = loop
        self._threads = Threads(loop, "remote hosts", MAX_RESOLVERS)

    def measure(self, region: Region) -> None:
        """Keep quotas of vhosts and groups in this region. Must be called before the first connection."""
        self._shares.connect(region)

    def join(self, closer: ConnectionCloser) -> None:
        """Set the object that closes connections and links. It queries the policy about them."""
        self._closer = closer

    # Connections

    def decide(self, connection: RegisteredConnection, message: Opened) -> Decision:
        """Decide about an open; see Admission."""
        number = connection.number
        facts = OpenFacts(
            number, connection.user, connection.hostname, connection.peer, connection.origin, connection.permissions,
            connection.groups,
        )  # fmt: skip
        decision = self.open(facts) if connection.initiator is None else self.open_connector(facts)
        grant = self._grants.get(number)
        if grant is not None:
            grant.connection = connection
            self._announce(grant, connection)
        return decision

    def admits_all(self, listener: ListenerConfig) -> bool:
        """Return True if there are no vhosts, and no authentication service that restricts addresses; see Admission."""
        return not self._vhosts.policy.vhosts_enabled and listener.sasl_plugin is None

    def open(self, facts: OpenFacts) -> Decision:
        """Decide about the open of a client. An admitted connection counts until it is `closed`."""
        endpoint = facts.endpoint
        if not self._vhosts.policy.vhosts_enabled or endpoint.role not in VHOST_ROLES:
            if facts.service is not None:
                self._grants[facts.number] = Grant(facts, with_service_addresses(None, *facts.service))
            return Admit()
        name = endpoint.policy_vhost if endpoint.policy_vhost is not None else facts.hostname or ""
        vhost = self._vhosts.find(name)
        stats = VhostStats() if vhost is None else self._stats[vhost.name]
        decision = decide_group(vhost, facts.user, facts.host, facts.groups)
        if isinstance(decision, OpenAllowed):
            group = decision.group
            share = self._shares.bound(group.vhost, group.config.name, group.config.shared).share
            counts = stats.counts(facts.user, facts.host)._replace(group=share.connections)
            decision = decide_connection_limits(decision, counts)
        if isinstance(decision, OpenDenied):
            stats.connections_denied += 1
            self._deny_open(decision, facts, name)
            return DENIED
        stats.connections_approved += 1
        stats.enter(facts.number, facts.user, facts.host, facts.peer)
        self._grant(facts, decision, stats)
        return Admit(connection_limits(decision.group, endpoint), decision.vhost.name)

    def open_connector(self, facts: OpenFacts) -> Decision:
        """Decide about a connection that the router opened, when the peer's open has arrived."""
        endpoint = facts.endpoint
        name = endpoint.policy_vhost
        if not self._vhosts.policy.vhosts_enabled or name is None or endpoint.role not in CLIENT_ROLES:
            return Admit()
        decision = decide_connector(self._vhosts.find(name))
        if isinstance(decision, OpenDenied):
            kind = DenialKind(NO_VHOST if decision.vhost is None else decision.vhost.name, "", decision.reason)
            self.denials.add(kind)
            detail = {"of": "connector", "reason": decision.reason, "rule": list(decision.texts)}
            self._trail.denied(facts.who(name), kind, detail)
            where = f"connection '{endpoint.name}', policyVhost: '{name}'"
            self._log.error(MODULE, f"[C{facts.number}] Failed to find policyVhost settings for {where}")
            return DENIED
        self._grant(facts, decision, self._stats[decision.vhost.name])
        return Admit(Limits(message=decision.group.links.max_message_size), decision.vhost.name)

    def _grant(self, facts: OpenFacts, allowed: OpenAllowed, stats: VhostStats) -> None:
        grant = self._grants[facts.number] = Grant(facts, link_rules(allowed.group, facts))
        grant.vhost, grant.group, grant.stats = allowed.vhost, allowed.group, stats
        grant.enter(self._bounds(allowed))

    def _bounds(self, allowed: OpenAllowed) -> tuple[LimitedUsage, ...]:
        """Return the limits that a connection with these rules shares within its vhost and within its group."""
        vhost, group = allowed.vhost.config, allowed.group.config
        return (
            self._shares.bound(vhost.hostname, VHOST, vhost.shared),
            self._shares.bound(vhost.hostname, group.name, group.shared),
        )

    def _deny_open(self, denied: OpenDenied, facts: OpenFacts, name: str) -> None:
        vhost = name if denied.vhost is None else denied.vhost.name
        kind = DenialKind(
            NO_VHOST if denied.vhost is None else denied.vhost.name,
            "" if denied.group is None else denied.group.config.name,
            denied.reason,
        )
        if denied.vhost is None:
            self.unknown_vhosts_denied += 1
            text = f"Clients are refused because no vhost has their hostname: {name[:SHOWN_HOSTNAME]!r}"
            self._log.repeated(WARNING, MODULE, "unknown vhost", f"{text}, from {facts.host}")
        who = LinkOwner(facts.user, facts.host, vhost)
        self.denials.add_of_user(facts.user, kind, *(f"DENY AMQP Open {who}: {text}" for text in denied.texts))
        detail = {"of": "connection", "reason": denied.reason, "group": kind.group or None, "rule": list(denied.texts)}
        self._trail.denied(facts.who(vhost), kind, detail)

    def closed(self, number: int) -> None:
        """Remove the grant of a connection that has ended, if it has one."""
        grant = self._grants.pop(number, None)
        if grant is not None:
            self._log_end(grant)
            grant.leave()
            self._leave(grant)
            self._withdraw(grant)

    def _log_end(self, grant: Grant) -> None:
        """Log the usage of a connection that ends, and the refusals of its vhost so far (security.md P-72)."""
        connection, stats = grant.connection, grant.stats
        if connection is None or stats is None or not self._log.enabled(MODULE, DEBUG):
            return
        senders, receivers = grant.at_end or (grant.senders, grant.receivers)
        text = (
            f"[C{connection.number}] Connection '{connection.peer}' closed with resources "
            f"n_sessions={connection.sessions_at_end or 0}, n_senders={senders}, n_receivers={receivers}, "
            f"sessions_denied={stats.session_denied}, senders_denied={stats.sender_denied}, "
            f"receivers_denied={stats.receiver_denied}, max_message_size_denied:{stats.message_size_denied}, "
            f"nConnections= {0 if self._closer is None else self._closer.count}."
        )
        self._log.debug(MODULE, text)

    def _announce(self, grant: Grant, connection: RegisteredConnection) -> None:
        """Send the rules for messages to a connection's worker: before the open is answered, and after each change."""
        worker = None if connection.worker is None else self._workers.get(connection.worker)
        if worker is None:
            return
        number = -grant.facts.number if grant.group is None or grant.facts.service is not None else grant.group.number
        known = self._announced.setdefault(worker.index, {})
        if number not in known:
            targets = grant.links.targets
            quotas = [scope for bound in grant.bounds if (scope := bound.scope) is not None]
            worker.outbox.append(Rules(number, list(targets.items), targets.patterns, quotas))
        known[number] = known.get(number, 0) + 1
        rights = grant.links.management
        permit = Permit(
            conn=connection.number,
            rules=number,
            user=grant.facts.user,
            proxies=grant.links.user_id_proxy,
            rights=None if rights.unlimited else rights.name,
        )
        worker.outbox.append(permit)
        self._withdraw(grant)
        grant.announced = worker.index, number

    def _withdraw(self, grant: Grant) -> None:
        """Release the rules of a connection at its worker."""
        if grant.announced is None:
            return
        index, number = grant.announced
        grant.announced = None
        known = self._announced.get(index, {})
        if number not in known:  # the worker has been replaced by another process
            return
        known[number] -= 1
        if not known[number]:
            del known[number]
            self._workers[index].outbox.append(RulesGone(number))

    def _leave(self, grant: Grant) -> None:
        if grant.stats is not None and isinstance(grant.facts.endpoint, ListenerConfig):
            grant.stats.leave(grant.facts.number, grant.facts.user, grant.facts.host)

    # Links

    def attach(self, connection: RegisteredConnection, message: Attach) -> LinkDenied | None:
        """Decide about an attach of a peer. Returns None if it is allowed; the link then counts until `detached`."""
        grant = self._grants.get(connection.number)
        if grant is None:
            return None
        elsewhere = message.dir == "in" and is_of_another_router(message.address or "", self._router_id)
        facts = _facts(message, grant.links.management if elsewhere else None)
        denied = grant.reserve(message.link, facts)
        if denied is not None:
            self._deny_link(grant, facts, denied)
        return denied

    def bound_address(self, connection: RegisteredConnection, message: Attach) -> str | None:
        """Return the address that a link of a peer is bound to. For a management node it carries the peer's rights."""
        grant = self._grants.get(connection.number)
        if grant is None or message.dir != "in" or not message.address:
            return message.address
        return address_for(message.address, grant.links.management, self._router_id) or message.address

    def detached(self, connection: int, link: int) -> None:
        """Stop counting a link that `attach` has allowed, whether it was refused, aborted or detached."""
        grant = self._grants.get(connection)
        if grant is not None:
            grant.release(link)

    def permits(self, connection: RegisteredConnection, message: Attach) -> bool:
        """Return whether an attach allowed by `attach` is still allowed. Rules may change while the attach waits."""
        grant = self._grants.get(connection.number)
        return grant is None or message.link in grant.attaches

    def _deny_link(self, grant: Grant, facts: LinkFacts, denied: LinkDenied) -> None:
        self.links_denied += 1
        self.total_denials += 1
        if grant.stats is not None:
            if facts.consumer:
                grant.stats.receiver_denied += 1
            else:
                grant.stats.sender_denied += 1
        text = f"[C{grant.facts.number}] DENY AMQP Attach {denied.text}"
        self.denials.add_of_user(grant.facts.user, grant.kind(denied.reason), text)
        asked = {"direction": "receive" if facts.consumer else "send", "address": facts.address}
        grant.report(self._trail, "link", denied.reason, **asked, rule=denied.text)

    # Denials by workers

    def _oversized(self, worker: WorkerProcess, message: Oversized) -> None:
        """Count a message that exceeded the maximum size (security.md P-52)."""
        grant = self._grants.get(message.conn)
        if grant is not None:
            self.total_denials += 1
            self.message_size_denied += 1
            if grant.stats is not None:
                grant.stats.message_size_denied += 1
            self.denials.add_of_user(grant.facts.user, grant.kind("message_size"))
            grant.report(self._trail, "message", "message_size", link=message.link)
            text = f"[C{message.conn}][L{message.link}] DENY AMQP Transfer maxMessageSize exceeded"
            self._log.warning(MODULE, text)

    def _session_denied(self, worker: WorkerProcess, message: SessionDenied) -> None:
        """Count a session beyond the session limit (security.md P-30)."""
        grant = self._grants.get(message.conn)
        if grant is not None:
            self.total_denials += 1
            if grant.stats is not None:
                grant.stats.session_denied += 1
            text = f"[C{message.conn}] DENY AMQP Begin Session {grant.who} based on session limit"
            self.denials.add_of_user(grant.facts.user, grant.kind("sessions"), text)
            grant.report(self._trail, "session", "sessions")

    def _forbidden(self, worker: WorkerProcess, message: Forbidden) -> None:
        """Count messages that a worker rejected, for metrics only (security.md P-50, P-51)."""
        grant = self._grants.get(message.conn)
        if grant is None:
            return
        if message.targets:
            text = f"[C{message.conn}] DENY AMQP message to '{message.address}' {grant.who} based on target address"
            self.denials.add_of_user(grant.facts.user, grant.kind("message_target"), text, count=message.targets)
            asked = {"address": message.address, "count": message.targets}
            grant.report(self._trail, "message", "message_target", **asked)
        if message.users:
            text = f"[C{message.conn}] DENY AMQP message {grant.who} based on user-id"
            self.denials.add_of_user(grant.facts.user, grant.kind("user_id"), text, count=message.users)
            grant.report(self._trail, "message", "user_id", count=message.users)

    def may_send(self, connection: RegisteredConnection, address: str) -> bool:
        """Return whether a client may send to an address."""
        grant = self._grants.get(connection.number)
        return grant is None or grant.links.targets.allows(address, grant.facts.user)

    # Management

    def permits_link_routes(self, number: int | None) -> bool:
        """Return whether requests over this connection may create link routes for it (security.md P-46)."""
        grant = None if number is None else self._grants.get(number)
        return grant is None or grant.links.dynamic_link_routes

    def vhost_of(self, number: int) -> str | None:
        """Return the name of the vhost whose rules apply to a connection, or None."""
        grant = self._grants.get(number)
        return None if grant is None or grant.vhost is None else grant.vhost.name

    def rights(self, number: int | None) -> ManagementRights:
        """Return the rights of management requests over a connection (security.md P-47)."""
        grant = None if number is None else self._grants.get(number)
        return UNLIMITED if grant is None else grant.links.management

    @property
    def vhosts(self) -> Vhosts:
        """Return the rules in force."""
        return self._vhosts

    def stats(self) -> Mapping[str, VhostStats]:
        """Return the counters of all vhosts since the start, by name."""
        return self._stats

    def limited(self) -> Iterator[tuple[tuple[str, str], LimitedUsage]]:
        """Iterate over vhosts (group VHOST) and groups with shared limits, each with its usage."""
        for vhost in self._vhosts:
            groups = ((VHOST, vhost.config.shared), *((group.name, group.shared) for group in vhost.config.groups))
            for name, limits in groups:
                if limits != _NO_LIMITS:
                    yield (vhost.name, name), self._shares.bound(vhost.name, name, limits)

    def shares(self, vhost: str) -> dict[str, SharedUsage]:
        """Return the usage of a vhost (VHOST) and of each of its groups that had a connection."""
        return dict(self._shares.of_vhost(vhost))

    def bounds_of(self, connection: int) -> Iterator[tuple[str, LimitedUsage]]:
        """Iterate over the limits that a connection shares with others, each with the name of its vhost or group."""
        grant = self._grants.get(connection)
        if grant is not None and grant.vhost is not None and grant.group is not None:
            vhost = f"host '{grant.vhost.config.hostname}'"
            owners = f"V{vhost}", f"Group '{grant.group.config.name}' of v{vhost}"
            yield from zip(owners, grant.bounds, strict=True)

    # Subsystem: events

    def messages(self, handlers: HandlerTable[WorkerProcess]) -> None:
        handlers.on(Oversized, self._oversized)
        handlers.on(SessionDenied, self._session_denied)
        handlers.on(Forbidden, self._forbidden)

    def worker_lost(self, worker: WorkerProcess) -> None:
        self._announced.pop(worker.index, None)
        self._shares.worker_lost(worker.index)

    def connection_closed(self, connection: RegisteredConnection) -> None:
        self.closed(connection.number)

    def link_dropped(self, worker: WorkerProcess, link: RegisteredLink) -> None:
        grant = self._grants.get(link.connection.number)
        if grant is None:
            return
        if link.connection.sessions_at_end is not None and grant.at_end is None:
            grant.at_end = grant.senders, grant.receivers
        grant.release(link.number)

    def expire(self) -> None:
        self.denials.flush()

    @property
    def deadline(self) -> float:
        return self.denials.deadline

    # Subsystem: changes of the configuration

    def start(self, configuration: Configuration) -> None:
        for vhost in configuration.vhosts:
            self._log.info(MODULE, f"Created policy rules for vhost {vhost.hostname}")

    def gather(self, change: ConfigurationChange) -> "asyncio.Future[_Found] | None":
        """Resolve the names of remote hosts."""
        names = {name for vhost in self._changed(change) for name in host_names(vhost) - vhost.addresses.keys()}
        if not names or self._loop is None or self._threads is None:
            return None
        return self._loop.create_task(_look_up(self._threads, sorted(names)))

    def prepare(self, change: ConfigurationChange) -> None:
        if change.undo:
            return  # the reverse change must not fail: an unresolved name allows no host
        for vhost in self._changed(change):
            resolve = known({**change.gathered.get(self, {}), **vhost.addresses})
            for group in vhost.groups:
                for host in group.remote_hosts:
                    try:
                        HostRules([host], resolve)
                    except HostError as error:
                        fault = host_fault(vhost.hostname, group.name, host, error)
                        raise ChangeError(500, f"PolicyError: Policy '{vhost.hostname}' is invalid: {fault}") from error

    def commit(self, change: ConfigurationChange) -> None:
        # security.md P-81, P-83 to P-85.
        if not change.concerns(VhostConfig) and change.old.policy == change.new.policy:
            return
        before = self._vhosts
        found: _Found = change.gathered.get(self, {})
        self._addresses |= {name: address for name, address in found.items() if isinstance(address, str)}
        self._vhosts = Vhosts(change.new.policy, change.new.vhosts, before, self._addresses)
        for vhost in self._vhosts:
            old = before.get(vhost.name)
            if vhost.name not in self._stats:
                self._stats[vhost.name] = VhostStats()
            if old is None or old.config != vhost.config:
                what = "Created" if old is None else "Updated"
                self._log.info(MODULE, f"{what} policy rules for vhost {vhost.name}")
        for vhost in before:
            if self._vhosts.get(vhost.name) is None:
                self._log.info(MODULE, f"Deleted policy rules for vhost {vhost.name}")
        self._reevaluate_grants()
        vhosts = change.new.vhosts
        self._shares.keep({vhost.hostname: frozenset(group.name for group in vhost.groups) for vhost in vhosts})

    def _changed(self, change: ConfigurationChange) -> Iterable[VhostConfig]:
        """Return the vhosts that a change creates or changes."""
        return change.new.vhosts if change.whole else change.made(VhostConfig)

    def _reevaluate_grants(self) -> None:
        """Apply changed rules to the present connections of vhosts with `onChange: close`.

        Connections and links that the rules forbid are closed. security.md P-80.
        """
        for grant in list(self._grants.values()):
            old = grant.vhost
            if old is None or grant.connection is None or self._closer is None:
                continue
            now = self._vhosts.get(old.name)
            if now is not old and (now or old).config.close_on_change:
                self._reevaluate_grant(grant, grant.connection, self._closer)

    def groups_changed(self, connection: RegisteredConnection) -> None:
        """Apply the groups of a new token of the user, in the same way as changed rules."""
        grant = self._grants.get(connection.number)
        if grant is None or grant.facts.groups == connection.groups:
            return
        grant.facts = grant.facts._replace(groups=connection.groups)
        if grant.vhost is not None and grant.vhost.config.close_on_change and self._closer is not None:
            self._reevaluate_grant(grant, connection, self._closer)

    def _reevaluate_grant(self, grant: Grant, connection: RegisteredConnection, closer: ConnectionCloser) -> None:
        """Replace the rules of a connection by the rules in force."""
        facts = grant.facts
        ours = not isinstance(facts.endpoint, ListenerConfig)
        decision: OpenAllowed | OpenDenied | None = None
        if self._vhosts.policy.vhosts_enabled:
            name = facts.endpoint.policy_vhost if facts.endpoint.policy_vhost is not None else facts.hostname or ""
            vhost = self._vhosts.find(name)
            decision = decide_connector(vhost) if ours else decide_group(vhost, facts.user, facts.host, facts.groups)
            if isinstance(decision, OpenDenied):
                self._deny_open(decision, facts, name)
                closer.close(connection, DENIED.condition, DENIED.description)
                return
        if not isinstance(decision, OpenAllowed):
            return
        if connection.tenant is not None and tenant_of(connection, decision.vhost.name) != connection.tenant:
            closer.close(connection, OTHER_VHOST.condition, OTHER_VHOST.description)
            return
        self._leave(grant)
        stats = self._stats[decision.vhost.name]
        if not ours:
            stats.enter(facts.number, facts.user, facts.host, facts.peer)
        grant.vhost, grant.group, grant.stats = decision.vhost, decision.group, stats
        grant.links = link_rules(decision.group, facts)
        attaches = grant.leave()
        grant.enter(self._bounds(decision))
        self._announce(grant, connection)
        for number, attached in attaches.items():
            denied = grant.reserve(number, attached)
            if denied is not None:
                self._deny_link(grant, attached, denied)
                if number in connection.links:  # otherwise the attach is still waiting, and will be refused
                    closer.close_link(connection, number, denied.condition, LINK_TEXT)
                    grant.count(number, attached)  # until the link has ended


def _facts(message: Attach, rights: ManagementRights | None) -> LinkFacts:
    """Return the facts of an attach. rights: of the client, if it attaches to the agent of another router."""
    return LinkFacts(
        consumer=message.dir == "out",
        address=message.address,
        dynamic=message.dynamic,
        coordinator=message.coordinator,
        capabilities=tuple(message.caps[0]),
        wanted=message.dynamic_address,
        rights=rights,
    )


async def _look_up(threads: Threads, names: Sequence[str]) -> _Found:
    """Resolve host names to addresses, or to the error for each name."""
    try:
        return await threads.run(partial(resolve_hosts, names), RESOLVE_SECONDS)
    except OSError as error:  # timed out, or no free thread
        return {name: HostError(f"HostStruct: '{name}' failed to resolve: '{error.strerror}'") for name in names}
