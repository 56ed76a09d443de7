"""Accepted attaches: their links join their addresses, and the answers to the workers. No I/O here."""

from collections.abc import Callable

from sluice.router.config.roles import EDGE, INTER_ROUTER, ROUTE_CONTAINER
from sluice.router.control import messages as control
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.addresses.table import AddressTable
from sluice.supervisor.children.worker import WorkerFaultError, WorkerProcess
from sluice.supervisor.connections.connections import RegisteredLink
from sluice.supervisor.edge.interior import Edges
from sluice.supervisor.edge.uplink import Uplink
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.links.attach import TRACKING_KEY, AttachAccepted
from sluice.supervisor.links.pending_answers import PendingAttachAnswers
from sluice.supervisor.links.suspended import SuspendedConsumer
from sluice.supervisor.network.absence import AbsentRouters
from sluice.supervisor.subsystem import Subsystem


class AcceptedLinks(Subsystem):
    """Lets accepted links join their addresses, and answers their attaches. Owner: the core."""

    roles = (ROUTE_CONTAINER, EDGE)  # only links of the router to these have an entry in `_awaited`

    def __init__(
        self,
        table: AddressTable,
        journal: Journal,
        absent_routers: AbsentRouters,
        edges: Edges | None = None,
        uplink: Uplink | None = None,
    ) -> None:
        """edges: services of an interior router for edge routers. uplink: uplink of an edge router."""
        self._table = table
        self._journal = journal
        self._absent_routers = absent_routers
        self._edges = edges
        self._uplink = uplink
        self._answers = PendingAttachAnswers(journal)
        self._awaited: dict[int, Callable[[SuspendedConsumer], bool]] = {}  # `on_suspended`, by identity of the link

    def after_delta(self) -> None:
        """Send the attach answers whose epoch has been acknowledged by all workers concerned."""
        self._answers.send_acknowledged()

    def worker_lost(self, worker: WorkerProcess) -> None:
        self._answers.drop_worker(worker)

    def link_dropped(self, worker: WorkerProcess, link: RegisteredLink) -> None:
        self._awaited.pop(link.identity, None)

    def suspended(self, worker: WorkerProcess, link: RegisteredLink, waiting: int) -> None:
        """Wait for the lost peer of a link that its worker has suspended, or release what waits for it.

        waiting: number of deliveries. The end of the link follows.
        """
        if self._uplink is not None and link.connection.origin.role == EDGE:
            self._uplink.absence.suspended(worker, link, waiting)
            return
        if link.connection.origin.role == INTER_ROUTER:
            self._absent_routers.suspended(worker, link, waiting)
            return
        if link.record is None:
            return
        if not self._table.has_consumer(link.record, worker.index, link.slot, link.generation):
            order = control.Resume(link.slot, link.generation)  # a drain has withdrawn the consumer meanwhile
            self._journal.call_when_acknowledged(lambda: worker.outbox.append(order))
            return
        consumer = SuspendedConsumer(self._table, self._journal, worker, link, waiting)
        on_suspended = self._awaited.get(link.identity)
        if on_suspended is None or not on_suspended(consumer):
            consumer.release()

    def accept(self, worker: WorkerProcess, link: RegisteredLink, decision: AttachAccepted) -> None:
        """Bind a registered link to its address, or to the router itself, and answer its attach."""
        link.kind = decision.link_type or link.kind
        if decision.on_suspended is not None:
            self._awaited[link.identity] = decision.on_suspended
        if decision.record is None:
            self._serve(worker, link, decision)
            return
        answer = control.Attached(
            conn=link.connection.number,
            link=link.number,
            identity=link.identity,
            kind="address",
            addr=decision.record.id,
            generated=decision.generated,
            to=decision.to,
            phase=decision.phase,
            fallback=decision.fallback,
            capacity=decision.capacity,
        )
        if link.consumer:
            self._bind_consumer(worker, link, decision.record, answer, decision.resumes)
        else:
            self._bind_producer(worker, link, decision.record, answer)

    def _serve(self, worker: WorkerProcess, link: RegisteredLink, decision: AttachAccepted) -> None:
        """Answer the attach of a link that has no address, or whose other end is the router itself."""
        link.up = True
        link.owner = decision.owner
        worker.outbox.append(
            control.Attached(
                conn=link.connection.number,
                link=link.number,
                identity=link.identity,
                kind=decision.service or ("anonymous" if decision.source is None else "source"),
                settled=bool(decision.source),
                capacity=decision.capacity,
            )
        )
        if decision.owner == TRACKING_KEY and self._edges is not None:
            self._edges.tracked(link.connection, link)

    def _bind_consumer(
        self,
        worker: WorkerProcess,
        link: RegisteredLink,
        record: AddressRecord,
        answer: control.Attached,
        resumes: SuspendedConsumer | None,
    ) -> None:
        """Make a link a consumer of its address. The answer waits until all workers know the consumer.

        If the consumer must wait at this router (Standby), it is added later, and the answer waits only for the link's
        own worker. resumes: suspended consumer that the link takes over.
        """
        if self._table.has_consumer(record, worker.index, link.slot, link.generation):
            raise WorkerFaultError(f"attach: slot {link.slot}, generation {link.generation} is already in use")
        link.record = record
        connection = link.connection
        if self._edges is None or not connection.way.edge or self._edges.standby.begins(link, record):
            epoch = self._table.add_consumer(
                record, worker.index, link.slot, link.generation, connection.origin.link_capacity, connection.way
            )
            if resumes is not None:
                resumes.replace_by(link)
            self._answers.send_after_all(epoch, worker, link, answer)
        else:
            self._answers.send_after_own(record.epoch, worker, link, answer)

    def _bind_producer(
        self, worker: WorkerProcess, link: RegisteredLink, record: AddressRecord, answer: control.Attached
    ) -> None:
        """Make a link a producer of its address. The answer waits until the link's worker knows the address.

        At an edge router, the answer to a client may also wait for the first credit (FirstCredit).
        """
        link.record = record
        connection = link.connection
        self._table.add_producer(record, edge=connection.way.edge != 0)
        if self._edges is not None and connection.way.edge:
            self._edges.produces(connection, link)
        if self._uplink is None or connection.edge:
            self._answers.send_after_own(record.epoch, worker, link, answer)
            return

        def go_on() -> None:
            self._answers.send_after_own(self._journal.pending_epoch, worker, link, answer)

        if self._uplink.first_credit.wait(record, go_on):
            worker.outbox.append(control.Postponed(connection.number, link.number))
        else:
            self._answers.send_after_own(self._uplink.first_credit.epoch(record), worker, link, answer)
