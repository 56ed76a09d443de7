"""Suspended consumers: links to brokers that are lost and awaited (docs/internals/links.md, "Suspended links").

Does no input or output.
"""

from typing import Final

from sluice.router.control.messages import Resume
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.addresses.table import AddressTable
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.connections.connections import RegisteredLink
from sluice.supervisor.journal.journal import Journal


class SuspendedConsumer:
    """Consumer whose link has ended, and whose worker keeps what waits for it. Owner: the auto link."""

    __slots__ = ("_generation", "_journal", "_slot", "_table", "record", "waiting", "worker")

    def __init__(
        self, table: AddressTable, journal: Journal, worker: WorkerProcess, link: RegisteredLink, waiting: int
    ) -> None:
        """Mark a link that its worker has suspended. waiting: deliveries that wait for it. The link has an address."""
        assert link.record is not None
        self._table = table
        self._journal = journal
        self._slot: Final = link.slot
        self._generation: Final = link.generation
        self.worker: Final = worker
        self.record: Final[AddressRecord] = link.record
        self.waiting: Final = waiting
        link.suspended = True
        table.suspend_consumer(self.record, worker.index, link.slot, link.generation)

    def _remove(self) -> None:
        self._table.remove_consumer(self.record, self.worker.index, self._slot, self._generation)

    def replace_by(self, link: RegisteredLink) -> None:
        """Let a new link of the same address take over what waits, in the epoch that announces it.

        A link of another worker cannot: what waits is released.
        """
        if link.worker != self.worker.index:
            self.release()
            return
        self._remove()
        link.resumes = Resume(self._slot, self._generation, link.connection.number, link.number)

    def restore(self, link: RegisteredLink, capacity: int) -> None:
        """Undo `replace_by`: the new link has ended before its attach was answered. capacity: of the consumer."""
        link.resumes = None
        self._table.add_consumer(self.record, self.worker.index, self._slot, self._generation, capacity)
        self._table.suspend_consumer(self.record, self.worker.index, self._slot, self._generation)

    def release(self) -> None:
        """Remove the consumer, and release what waits once no worker sends to it."""
        self._remove()
        order = Resume(self._slot, self._generation)
        self._journal.call_when_acknowledged(lambda: self.worker.outbox.append(order))

    def worker_lost(self) -> None:
        """Remove the consumer of a worker that has ended."""
        self._remove()
