"""Attach requests of workers, from their arrival to the decision or withdrawal. No I/O here."""

from collections.abc import Callable
from typing import Final

from sluice.router.addressing.address import escapes_tenant_prefix, normalise
from sluice.router.amqp.errors import INVALID_FIELD
from sluice.router.config.roles import INTER_ROUTER
from sluice.router.control import messages as control
from sluice.router.control.handlers import HandlerTable
from sluice.router.policy.decisions import LINK_TEXT, UNAUTHORIZED
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.connections.connections import RegisteredConnection, RegisteredLink
from sluice.supervisor.edge.lookups import Lookups, RemoteLinkRoute
from sluice.supervisor.linkroutes.pairs import LinkPairs
from sluice.supervisor.links.accepted import AcceptedLinks
from sluice.supervisor.links.attach import AttachAccepted, AttachDecider, AttachRefused, AttachRouted
from sluice.supervisor.links.links import Links
from sluice.supervisor.network.neighbour_connections import NeighbourConnections
from sluice.supervisor.policy.policy import Policy
from sluice.supervisor.subsystem import Subsystem

ESCAPES_TEXT: Final = "The address of a tenant must not begin with more than one scheme"


class AttachRequests(Subsystem):
    """Handler of attach requests: each is refused, accepted, or routed along a link route. Owner: the core."""

    def __init__(
        self,
        attaching: AttachDecider,
        policy: Policy,
        neighbours: NeighbourConnections,
        links: Links,
        accepted: AcceptedLinks,
        pairs: LinkPairs,
        take_identity: Callable[[], int],
        lookups: Lookups | None = None,
    ) -> None:
        """take_identity: returns a new identity for a link. lookups: requests of an edge router to interior routers."""
        self._attaching = attaching
        self._policy = policy
        self._ruled = policy.ruled
        self._neighbours = neighbours
        self._links = links
        self._accepted = accepted
        self._pairs = pairs
        self._take_identity = take_identity
        self._lookups = lookups

    def messages(self, handlers: HandlerTable[WorkerProcess]) -> None:
        handlers.on(control.Attach, self._attach)

    def withdraw(self, conn: int, link: int) -> None:
        """Forget an undecided request whose link is detached."""
        self._policy.detached(conn, link)
        if self._lookups is not None:
            self._lookups.forget(conn, link)

    def _attach(self, worker: WorkerProcess, message: control.Attach) -> None:
        connection = worker.connections.get(message.conn)
        if connection is None:
            return
        if message.tenant is not None and any(
            text and escapes_tenant_prefix(normalise(text)) for text in (message.address, message.dynamic_address)
        ):
            worker.outbox.append(control.Refused(connection.number, message.link, INVALID_FIELD, ESCAPES_TEXT))
            return
        if connection.number in self._ruled:
            denied = self._policy.attach(connection, message)
            if denied is not None:
                worker.outbox.append(_forbidden(message, denied.condition))
                return
        if self._lookups is not None and self._lookups.ask(
            worker, connection, message, self._looked_up, self._attaching.mobile_key_of_sender
        ):
            worker.outbox.append(control.Postponed(connection.number, message.link))
        else:
            self._decide(worker, connection, message)

    def _looked_up(self, worker: WorkerProcess, message: control.Attach, beyond: RemoteLinkRoute | None) -> None:
        """Answer a postponed attach. beyond: link route of an interior router that matches it; None: there is none."""
        connection = worker.connections.get(message.conn)
        if connection is None:
            return
        if not self._policy.permits(connection, message):
            worker.outbox.append(_forbidden(message, UNAUTHORIZED))
        elif beyond is None:
            self._decide(worker, connection, message)
        else:
            decision = self._attaching.route_to_interior(message, beyond.connection, beyond.served)
            self._execute(worker, connection, message, decision)

    def _decide(self, worker: WorkerProcess, connection: RegisteredConnection, message: control.Attach) -> None:
        """Answer an attach that the policy permits, and that belongs to no link route of an interior router."""
        if connection.number in self._ruled:
            message.address = self._policy.bound_address(connection, message)
        role = connection.origin.role
        usable = role == INTER_ROUTER and self._neighbours.usable(connection)
        self._execute(worker, connection, message, self._attaching.decide(message, role, usable))

    def _execute(
        self,
        worker: WorkerProcess,
        connection: RegisteredConnection,
        message: control.Attach,
        decision: AttachAccepted | AttachRefused | AttachRouted,
    ) -> None:
        """Execute the decision about an attach."""
        number = message.link
        if isinstance(decision, AttachRefused):
            self._policy.detached(connection.number, number)
            self._links.log_refused(connection, message, " ".join(filter(None, decision[:2])) or "a link of this kind")
            worker.outbox.append(control.Refused(connection.number, number, decision.condition, decision.description))
            return
        link = RegisteredLink(
            self._take_identity(),
            message.name,
            message.dir == "out",
            message.slot,
            message.gen,
            connection,
            worker.index,
        )
        self._links.add(connection, number, link, message.text)
        if isinstance(decision, AttachRouted):
            self._pairs.begin(worker, link, message, decision)
        else:
            self._accepted.accept(worker, link, decision)


def _forbidden(message: control.Attach, condition: str) -> control.Refused:
    """Return the refusal of an attach that policy forbids."""
    return control.Refused(message.conn, message.link, condition, LINK_TEXT, termini=True)
