"""Handlers of worker messages about links that exist, or that the router initiates. Does no input or output."""

from sluice.router.control import messages as control
from sluice.router.control.handlers import HandlerTable
from sluice.router.log import ProcessLog
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.edge.interior import Edges
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.links.accepted import AcceptedLinks
from sluice.supervisor.links.attach_requests import AttachRequests
from sluice.supervisor.links.initiated import InitiatedLinks, initiated_link
from sluice.supervisor.links.links import Links
from sluice.supervisor.subsystem import Events, Subsystem


class LinkHandler(Subsystem):
    """Handles the workers' messages about links, except attach requests. Owner: the core."""

    def __init__(
        self,
        journal: Journal,
        links: Links,
        initiated_links: InitiatedLinks,
        requests: AttachRequests,
        accepted: AcceptedLinks,
        events: Events,
        log: ProcessLog,
        edges: Edges | None = None,
    ) -> None:
        """edges: services of an interior router."""
        self._journal = journal
        self._links = links
        self._initiated_links = initiated_links
        self._requests = requests
        self._accepted = accepted
        self._events = events
        self._log = log
        self._edges = edges

    def messages(self, handlers: HandlerTable[WorkerProcess]) -> None:
        handlers.on(control.Detach, self._detach)
        handlers.on(control.Suspended, self._suspended)
        handlers.on(control.Initiated, self._initiated)
        handlers.on(control.Linked, self._linked)
        handlers.on(control.Unlinked, self._unlinked)
        handlers.on(control.HeartbeatMissed, self._heartbeat_missed)

    def _initiated(self, worker: WorkerProcess, message: control.Initiated) -> None:
        connection = worker.connections.get(message.conn)
        if connection is not None:
            link = initiated_link(worker, connection, message)
            self._links.add(connection, message.link, link, message.text)
            self._initiated_links.begun(link)

    def _linked(self, worker: WorkerProcess, message: control.Linked) -> None:
        connection = worker.connections.get(message.conn)
        link = None if connection is None else connection.links.get(message.link)
        if link is None:
            return
        decision = self._initiated_links.answered(link, message.active, message.address)
        if decision is not None and decision.record is not None:
            self._accepted.accept(worker, link, decision)

    def _unlinked(self, worker: WorkerProcess, message: control.Unlinked) -> None:
        connection = worker.connections.get(message.conn)
        if connection is not None:
            self._initiated_links.ended(connection, message.ref, message.error)

    def _heartbeat_missed(self, worker: WorkerProcess, message: control.HeartbeatMissed) -> None:
        connection = worker.connections.get(message.conn)
        if connection is not None and self._edges is not None:
            self._edges.missed(connection)

    def _suspended(self, worker: WorkerProcess, message: control.Suspended) -> None:
        connection = worker.connections.get(message.conn)
        link = None if connection is None else connection.links.get(message.link)
        if link is not None:
            self._accepted.suspended(worker, link, message.waiting)

    def _detach(self, worker: WorkerProcess, message: control.Detach) -> None:
        connection = worker.connections.get(message.conn)
        link = connection.links.pop(message.link, None) if connection is not None else None
        if message.line is not None:
            self._log.info("ROUTER_CORE", message.line)
        if link is not None and connection is not None:
            connection.last_delivery = max(connection.last_delivery, message.last)
            link.error = message.error
            self._events.link_dropped(worker, link)
            self._initiated_links.ended(connection, link.identity, _reason(message.error))
        else:
            self._requests.withdraw(message.conn, message.link)
        if message.confirm:
            answer = control.Detached(message.conn, message.link)
            self._journal.call_when_acknowledged(lambda: worker.outbox.append(answer))


def _reason(error: control.ErrorText | None) -> str | None:
    """Return the description of an error or, if the peer gave none, its condition."""
    return None if error is None else error[1] or error[0]
