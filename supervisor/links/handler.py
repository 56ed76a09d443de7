"""Handlers of worker requests about links: attach to an address or to another link, detach. Does no input or output."""

from collections.abc import Callable
from typing import Final

from router.addressing.address import escapes_tenant_prefix, normalise
from router.amqp.errors import INVALID_FIELD
from router.control import messages as control
from router.control.handlers import HandlerTable
from router.policy.decisions import LINK_TEXT, UNAUTHORIZED
from supervisor.addresses.record import AddressRecord
from supervisor.addresses.table import AddressTable
from supervisor.children.worker import WorkerFaultError, WorkerProcess
from supervisor.connections.connections import RegisteredConnection, RegisteredLink
from supervisor.edge.interior import Edges
from supervisor.edge.lookups import RemoteLinkRoute
from supervisor.edge.uplink import Uplink
from supervisor.journal.journal import Journal
from supervisor.linkroutes.pairs import LinkPairs
from supervisor.links.attach import TRACKING_KEY, AttachAccepted, AttachDecider, AttachRefused, AttachRouted
from supervisor.links.initiated import InitiatedLinks, initiated_link
from supervisor.links.links import Links
from supervisor.links.pending_answers import PendingAttachAnswers
from supervisor.policy.policy import Policy
from supervisor.subsystem import Events, Subsystem

ESCAPES_TEXT: Final = "The address of a tenant must not begin with more than one scheme"


class LinkHandler(Subsystem):
    """Handles the workers' messages about links. Owner: the core."""

    def __init__(
        self,
        table: AddressTable,
        journal: Journal,
        attaching: AttachDecider,
        links: Links,
        initiated_links: InitiatedLinks,
        pairs: LinkPairs,
        policy: Policy,
        usable: Callable[[RegisteredConnection], bool],
        take_identity: Callable[[], int],
        attached: Callable[[RegisteredConnection, AddressRecord, bool], None],
        events: Events,
        edges: Edges | None = None,
        uplink: Uplink | None = None,
    ) -> None:
        """usable(connection): whether the peer is a router with an attached control link. attached(connection, record,
        receives): called for each link that is bound to an address. edges: services of an interior router. uplink: of
        an edge router.
        """
        self._edges = edges
        self._uplink = uplink
        self._table = table
        self._journal = journal
        self._answers = PendingAttachAnswers(journal)
        self._attaching = attaching
        self._links = links
        self._initiated_links = initiated_links
        self._pairs = pairs
        self._policy = policy
        self._usable = usable
        self._take_identity = take_identity
        self._attached = attached
        self._events = events

    def messages(self, handlers: HandlerTable[WorkerProcess]) -> None:
        handlers.on(control.Attach, self._attach)
        handlers.on(control.Detach, self._detach)
        handlers.on(control.Initiated, self._initiated)
        handlers.on(control.Linked, self._linked)
        handlers.on(control.Unlinked, self._unlinked)
        handlers.on(control.HeartbeatMissed, self._heartbeat_missed)

    def after_delta(self) -> None:
        """Send the attach answers whose epoch has been acknowledged by all workers concerned."""
        self._answers.send_acknowledged()

    def worker_lost(self, worker: WorkerProcess) -> None:
        self._answers.drop_worker(worker)

    def _attach(self, worker: WorkerProcess, message: control.Attach) -> None:
        connection = worker.connections.get(message.conn)
        if connection is None:
            return
        if message.tenant is not None and any(
            text and escapes_tenant_prefix(normalise(text)) for text in (message.address, message.dynamic_address)
        ):
            worker.outbox.append(control.Refused(connection.number, message.link, INVALID_FIELD, ESCAPES_TEXT))
            return
        denied = self._policy.attach(connection, message)
        if denied is not None:
            worker.outbox.append(_forbidden(message, denied.condition))
            return
        if self._uplink is not None and self._uplink.lookups.ask(
            worker, connection, message, self._decide, self._attaching.mobile_key_of_sender
        ):
            worker.outbox.append(control.Postponed(connection.number, message.link))
        else:
            self._decide(worker, message, None)

    def _decide(self, worker: WorkerProcess, message: control.Attach, beyond: RemoteLinkRoute | None) -> None:
        """Answer an attach. beyond: the interior router's link route that matches the attach."""
        connection = worker.connections.get(message.conn)
        if connection is None:
            return
        if not self._policy.permits(connection, message):
            worker.outbox.append(_forbidden(message, UNAUTHORIZED))
            return
        number = message.link
        decision: AttachAccepted | AttachRefused | AttachRouted
        if beyond is not None:
            decision = self._attaching.route_to_interior(message, beyond.connection, beyond.served)
        else:
            message.address = self._policy.bound_address(connection, message)
            decision = self._attaching.decide(message, connection.origin.role, self._usable(connection))
        if isinstance(decision, AttachRefused):
            self._policy.detached(connection.number, number)
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
            return
        link.kind = decision.link_type or link.kind
        record = decision.record
        if record is not None:
            self._accept(worker, connection, number, link, record, decision)
            return
        link.up = True
        link.owner = decision.owner
        worker.outbox.append(
            control.Attached(
                conn=connection.number,
                link=number,
                identity=link.identity,
                kind=decision.service or ("anonymous" if decision.source is None else "source"),
                settled=bool(decision.source),
                capacity=decision.capacity,
            )
        )
        if decision.owner == TRACKING_KEY and self._edges is not None:
            self._edges.tracked(connection, link)

    def _accept(
        self,
        worker: WorkerProcess,
        connection: RegisteredConnection,
        number: int,
        link: RegisteredLink,
        record: AddressRecord,
        decision: AttachAccepted,
    ) -> None:
        answer = control.Attached(
            conn=connection.number,
            link=number,
            identity=link.identity,
            kind="address",
            addr=record.id,
            generated=decision.generated,
            to=decision.to,
            phase=decision.phase,
            fallback=decision.fallback,
            capacity=decision.capacity,
        )
        self._bind(worker, connection, link, record, answer)

    def _initiated(self, worker: WorkerProcess, message: control.Initiated) -> None:
        connection = worker.connections.get(message.conn)
        if connection is not None:
            link = initiated_link(worker, connection, message)
            self._links.add(connection, message.link, link, message.text)
            self._initiated_links.begun(link)

    def _linked(self, worker: WorkerProcess, message: control.Linked) -> None:
        connection = worker.connections.get(message.conn)
        link = None if connection is None else connection.links.get(message.link)
        if connection is None or link is None:
            return
        decision = self._initiated_links.answered(link, message.active, message.address)
        if decision is not None and decision.record is not None:
            self._accept(worker, connection, message.link, link, decision.record, decision)

    def _unlinked(self, worker: WorkerProcess, message: control.Unlinked) -> None:
        connection = worker.connections.get(message.conn)
        if connection is not None:
            self._initiated_links.ended(connection, message.ref, message.error)

    def _heartbeat_missed(self, worker: WorkerProcess, message: control.HeartbeatMissed) -> None:
        connection = worker.connections.get(message.conn)
        if connection is not None and self._edges is not None:
            self._edges.missed(connection)

    def _bind(
        self,
        worker: WorkerProcess,
        connection: RegisteredConnection,
        link: RegisteredLink,
        record: AddressRecord,
        answer: control.Attached,
    ) -> None:
        """Make a link a user of its address, and delay the answer until the workers have the change."""
        self._attached(connection, record, link.consumer)
        if link.consumer:
            if self._table.has_consumer(record, worker.index, link.slot, link.generation):
                raise WorkerFaultError(f"attach: slot {link.slot}, generation {link.generation} is already in use")
            link.record = record
            if self._edges is None or not connection.edge or self._edges.standby.begins(link, record):
                epoch = self._table.add_consumer(
                    record, worker.index, link.slot, link.generation, connection.origin.link_capacity, connection.way
                )
                self._answers.send_after_all(epoch, worker, link, answer)
                return
        else:
            link.record = record
            self._table.add_producer(record, edge=connection.edge != 0)
            if self._edges is not None and connection.edge:
                self._edges.produces(connection, link)
            if self._uplink is not None and not connection.edge:

                def go_on() -> None:
                    self._answers.send_after_own(self._journal.pending_epoch, worker, link, answer)

                if self._uplink.first_credit.wait(record, go_on):
                    worker.outbox.append(control.Postponed(connection.number, link.number))
                    return
                self._answers.send_after_own(self._uplink.first_credit.epoch(record), worker, link, answer)
                return
        self._answers.send_after_own(record.epoch, worker, link, answer)

    def _detach(self, worker: WorkerProcess, message: control.Detach) -> None:
        connection = worker.connections.get(message.conn)
        link = connection.links.pop(message.link, None) if connection is not None else None
        if link is not None and connection is not None:
            connection.last_delivery = max(connection.last_delivery, message.last)
            self._events.link_dropped(worker, link)
            self._initiated_links.ended(connection, link.identity, None if message.error is None else message.error[1])
        else:
            self._policy.detached(message.conn, message.link)
            if self._uplink is not None:
                self._uplink.lookups.forget(message.conn, message.link)
        if message.confirm:
            answer = control.Detached(message.conn, message.link)
            self._journal.call_when_acknowledged(lambda: worker.outbox.append(answer))


def _forbidden(message: control.Attach, condition: str) -> control.Refused:
    """Return the answer to an attach that policy forbids."""
    return control.Refused(message.conn, message.link, condition, LINK_TEXT, termini=True)
