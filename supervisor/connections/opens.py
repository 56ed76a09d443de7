"""Decisions about opens of connections, and the answers to these opens. No I/O here."""

import secrets
from typing import Final, Protocol

from sluice.router.config.entities import ListenerConfig
from sluice.router.config.roles import BETWEEN_ROUTERS, CLIENT_ROLES
from sluice.router.control.messages import Admitted, Denied, Opened
from sluice.router.log import ProcessLog
from sluice.router.policy.decisions import RESOURCE_LIMIT, UNAUTHORIZED
from sluice.supervisor.audit.trail import AuditTrail
from sluice.supervisor.connections.admission import Admission, Decision, Deny
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.connections.membership import Membership
from sluice.supervisor.connections.tenants import tenant_of
from sluice.supervisor.edge.bundles import Bundles

MARK_OCTETS: Final = 8  # random octets of the mark by which other routers recognise connections of this edge router
EXTERNAL: Final = "EXTERNAL"
UNRECORDED: Final = Deny(RESOURCE_LIMIT, "an audit log cannot be written, so new connections are refused")
NO_USER_IN_CERTIFICATE: Final = Deny(UNAUTHORIZED, "the certificate names no user")


class Identities(Protocol):
    """Identities of peers by their logins and certificates."""

    def user_of(self, connection: RegisteredConnection, message: Opened) -> str | None:
        """Return the user of a connection whose open has arrived."""

    def peer_of(self, connection: RegisteredConnection, message: Opened) -> str | None:
        """Return the identity of the peer, whichever side has opened the connection."""


class OpenDecider:
    """Decisions about opens by identity, network membership, bundle, policy and tenant. Owner: the registry."""

    def __init__(self, identities: Identities, admission: Admission, trail: AuditTrail, log: ProcessLog) -> None:
        """admission: policy for opens that pass all other checks."""
        self.mark: Final = secrets.token_hex(MARK_OCTETS)
        self._identities: Final = identities
        self._admission: Final = admission
        self._trail: Final = trail
        self._log: Final = log
        self._membership: Final = Membership(identities.peer_of, log)
        self._bundles: Final = Bundles(self.mark)

    def admits_all(self, listener: ListenerConfig) -> bool:
        """Return True if a client of a listener is admitted at present whatever its open says, and needs nothing that
        only the supervisor knows."""
        return (
            listener.role in CLIENT_ROLES
            and not listener.multi_tenant
            and not listener.allowed_routers
            and not self._trail.enabled
            and self._admission.admits_all(listener)
        )

    def identify(self, connection: RegisteredConnection, message: Opened) -> None:
        """Store the identity of a connection's peer, which its open and its login give."""
        connection.mechanism = message.mechanism
        connection.tls = message.tls
        connection.container = message.container
        connection.hostname = message.hostname
        connection.user = self._identities.user_of(connection, message)
        connection.properties = message.properties or None

    def decide(self, connection: RegisteredConnection, message: Opened) -> Decision | None:
        """Decide about an open of an identified peer. Returns None if the admission policy decides later."""
        if connection.initiator is None:
            self._trail.login(connection)
            if self._trail.refuses and connection.origin.role not in BETWEEN_ROUTERS:
                return UNRECORDED
            if message.mechanism == EXTERNAL and not connection.user:
                return NO_USER_IN_CERTIFICATE
        stranger = self._membership.refusal(connection, message)
        if stranger is not None:
            return stranger
        unfit = self._bundles.unfit(connection)
        if unfit is not None:
            text = f"[C{connection.number}] Connection with {connection.peer} refused: {unfit.description}"
            self._log.warning("ROUTER_CORE", text)
            return unfit
        return self._admission.decide(connection, message)

    def answer(self, connection: RegisteredConnection, decision: Decision) -> Admitted | Denied:
        """Return the answer to an open. If it is admitted, set the tenant and the bundle of its connection."""
        if not isinstance(decision, Deny):
            tenant = tenant_of(connection, decision.vhost)
            if not isinstance(tenant, Deny):
                connection.tenant = tenant
                connection.way = self._bundles.opened(connection)
                return Admitted(connection.number, decision.limits, connection.edge, self.mark, tenant)
            text = f"[C{connection.number}] Connection from {connection.peer} refused: {tenant.description}"
            self._log.warning("ROUTER_CORE", text)
            decision = tenant
        if not decision.by_policy:
            self._trail.open_refused(connection, decision.condition, decision.description)
        return Denied(connection.number, decision.condition, decision.description, self.mark)

    def closed(self, connection: RegisteredConnection) -> None:
        """Remove a closed connection from its bundle."""
        self._bundles.closed(connection)
