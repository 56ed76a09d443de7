"""State of each worker's replica of the tables: live, serving, or in need of a snapshot. Does no input or output."""

from collections.abc import Iterable, Mapping
from typing import Final

from sluice.router.control.handlers import HandlerTable
from sluice.router.control.messages import Ack, PortClosed, Ready, Resync
from sluice.router.control.ops import Op, WorkerOp
from sluice.router.log import DEBUG, WARNING, ProcessLog
from sluice.supervisor.children.worker import WorkerCorruptError, WorkerProcess, WorkerStage
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.subsystem import Subsystem

_LIVE: Final = WorkerStage.LIVE  # a global, because each acknowledgement reads it


class Replicas(Subsystem):
    """States of all workers' replicas, and of the workers that are up. Owner: the core."""

    def __init__(self, workers: Mapping[int, WorkerProcess], journal: Journal, log: ProcessLog) -> None:
        self._workers = workers
        self._journal = journal
        self._log = log

    def messages(self, handlers: HandlerTable[WorkerProcess]) -> None:
        handlers.on(Ready, self._ready)
        handlers.on(Resync, self._resync)
        handlers.on(Ack, self._acknowledge)
        handlers.on(PortClosed, self._port_closed)

    def snapshot_ops(self) -> Iterable[Op]:
        return (WorkerOp(each.index, each.generation, "up") for each in self._workers.values() if each.live)

    def worker_lost(self, worker: WorkerProcess) -> None:
        """Announce that a worker is down. Its consumers have been removed from the tables before."""
        if self._journal.has(worker.index):
            self._journal.leave(worker.index)
            self._journal.append(WorkerOp(worker.index, worker.generation, "down"))

    def _ready(self, worker: WorkerProcess, message: Ready) -> None:
        if worker.live:  # after a resync
            self._acknowledge(worker, message)
            return
        if worker.stage is not WorkerStage.STARTING:
            return
        worker.stage = WorkerStage.LIVE
        self._journal.join(worker.index, message.epoch)
        worker.serving_from = self._journal.append(WorkerOp(worker.index, worker.generation, "up"))
        self._journal.await_all(worker.serving_from)

    def _resync(self, worker: WorkerProcess, message: Resync) -> None:
        del message
        level = WARNING if worker.stage is WorkerStage.SERVING else DEBUG  # normal during the start of a worker
        self._log.write(level, "SERVER", f"{worker} missed a change of the address table and gets all of it again")
        worker.wants_snapshot = True

    def _port_closed(self, worker: WorkerProcess, message: PortClosed) -> None:
        """Make the pool replace the worker that wrote a malformed record.

        The loss of that worker ends the deliveries of the closed port.
        """
        writer = self._workers.get(message.worker)
        if writer is not None and writer.live and writer.generation == message.gen:
            raise WorkerCorruptError(writer, f"{worker} received a malformed record: {message.text}")

    def _acknowledge(self, worker: WorkerProcess, message: Ack | Ready) -> None:
        epoch = message.epoch
        self._journal.acknowledge(worker.index, epoch)
        if worker.stage is _LIVE and epoch >= worker.serving_from:
            worker.stage = WorkerStage.SERVING
