"""All links: by identity, and as users of their addresses. No input or output here."""

from collections.abc import Callable, Iterable

from router.control.ops import Op
from router.log import Log
from supervisor.addresses.table import Table
from supervisor.connections.connections import Connection, Link, log_attached
from supervisor.processes.worker import Worker
from supervisor.subsystem import Subsystem


class Links(Subsystem):
    """All links. Owner: the core."""

    def __init__(self, table: Table, log: Log) -> None:
        self.by_identity: dict[int, Link] = {}  # in order of attach
        self._table = table
        self._log = log
        self._added: list[Callable[[Link], object]] = []

    def __len__(self) -> int:
        return len(self.by_identity)

    def add(self, connection: Connection, number: int, link: Link, text: str) -> None:
        """Register a link. number: its worker's number for it. text: describes the termini."""
        link.number = number
        connection.links[number] = self.by_identity[link.identity] = link
        log_attached(self._log, connection, link, text)
        for added in self._added:
            added(link)

    def when_added(self, added: Callable[[Link], object]) -> None:
        """Have it called for each new link, which may have no address yet."""
        self._added.append(added)

    def link_dropped(self, worker: Worker, link: Link) -> None:
        link.closed = True
        self.by_identity.pop(link.identity, None)
        record = link.record
        if record is None:
            return
        if link.waits:
            self._table.release(record)
        elif link.consumer:
            self._table.remove_consumer(record, worker.index, link.slot, link.generation)
        else:
            self._table.remove_producer(record, edge=link.connection.edge != 0)

    def snapshot_ops(self) -> Iterable[Op]:
        """The consumers of all addresses, here and at other routers."""
        return self._table.consumer_ops()
