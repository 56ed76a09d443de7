"""All links, by identity and as users of their addresses. Does no input or output."""

from collections.abc import Callable, Iterable

from sluice.router.control.messages import Attach
from sluice.router.control.ops import Op
from sluice.router.log import INFO, ProcessLog
from sluice.supervisor.addresses.table import AddressTable
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.connections.connections import RegisteredConnection, RegisteredLink, log_attached
from sluice.supervisor.subsystem import Subsystem


class Links(Subsystem):
    """All links. Owner: the core."""

    def __init__(self, table: AddressTable, log: ProcessLog) -> None:
        self.by_identity: dict[int, RegisteredLink] = {}  # in order of attach
        self._table = table
        self._log = log
        self._added: list[Callable[[RegisteredLink], object]] = []

    def __len__(self) -> int:
        return len(self.by_identity)

    def add(self, connection: RegisteredConnection, number: int, link: RegisteredLink, text: str) -> None:
        """Register a link. number: the number that its worker uses. text: description of the termini, for the log."""
        link.number = number
        connection.links[number] = self.by_identity[link.identity] = link
        log_attached(self._log, connection, link, text)
        for added in self._added:
            added(link)

    def log_refused(self, connection: RegisteredConnection, message: Attach, reason: str) -> None:
        """Log that a link was refused for another reason than the policy, which has lines of its own."""
        text = f"[C{connection.number}] Link refused: dir={message.dir} {message.text}: {reason}"
        self._log.repeated(INFO, "ROUTER_CORE", f"links of C{connection.number} refused", text)

    def on_link_added(self, added: Callable[[RegisteredLink], object]) -> None:
        """Call `added` for each new link. The link may not have an address yet."""
        self._added.append(added)

    def withdraw_consumer(self, link: RegisteredLink) -> None:
        """Remove a consumer from its address, so that no more messages are sent to it, although its link stays."""
        record = link.record
        if record is not None and link.consumer and not link.waits:
            link.waits = True
            self._table.hold(record)
            self._table.remove_consumer(record, link.worker, link.slot, link.generation)

    def link_dropped(self, worker: WorkerProcess, link: RegisteredLink) -> None:
        link.closed = True
        self.by_identity.pop(link.identity, None)
        record = link.record
        if record is None:
            return
        if link.waits:
            self._table.release(record)
        elif link.suspended:
            pass  # the consumer stays
        elif link.consumer:
            self._table.remove_consumer(record, worker.index, link.slot, link.generation)
        else:
            self._table.remove_producer(record, edge=link.connection.way.edge != 0)

    def snapshot_ops(self) -> Iterable[Op]:
        """Return the consumers of all addresses, at this and at other routers."""
        return self._table.consumer_ops()
