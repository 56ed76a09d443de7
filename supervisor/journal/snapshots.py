"""Snapshots of the workers' tables, for workers that need all of them. Does no input or output."""

from collections.abc import Callable, Mapping

from sluice.router.control.messages import Snapshot
from sluice.router.control.ops import Op
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.journal.journal import Journal


class Snapshots:
    """Sender of snapshots to new workers, and to workers that missed a delta. Owner: the core."""

    def __init__(self, journal: Journal, workers: Mapping[int, WorkerProcess], ops: Callable[[], list[Op]]) -> None:
        """ops: return the ops of all tables, as they are now."""
        self._journal = journal
        self._workers = workers
        self._ops = ops

    def send(self) -> None:
        """Queue a snapshot for each worker that needs one. Call when all deltas taken are published.

        While a change is unpublished, workers wait: its delta would repeat what the snapshot has already.
        """
        if self._journal.pending_epoch > self._journal.epoch:
            return
        for worker in self._workers.values():
            if worker.wants_snapshot:
                worker.wants_snapshot = False
                worker.outbox.append(Snapshot(self._journal.epoch, self._ops()))
