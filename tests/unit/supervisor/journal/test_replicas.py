"""Replicas of the workers: which of them are live and serve, and which need all of the tables."""

from __future__ import annotations

import os

import pytest

from sluice.router.control.handlers import HandlerTable
from sluice.router.control.messages import Ack, Event, PortClosed, Ready, Resync
from sluice.router.control.ops import WorkerOp
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.children.worker import WorkerCorruptError, WorkerProcess, WorkerStage
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.journal.replicas import Replicas
from sluice.supervisor.subsystem import RAW

UP, DOWN = "up", "down"


class TwoWorkers:
    """Two workers with replicas of the tables."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.workers = {index: WorkerProcess(index, 7) for index in range(2)}
        for worker in self.workers.values():
            worker.stage = WorkerStage.STARTING
        self.log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(mask=0xFF, output=os.devnull)}))
        self.replicas = Replicas(self.workers, self.journal, self.log)
        self._handlers = HandlerTable[WorkerProcess](Event, but=RAW)
        self.replicas.messages(self._handlers)

    def receive(self, index: int, message: Ready | Ack | Resync | PortClosed) -> None:
        self._handlers.handle(self.workers[index], message)

    def publish(self) -> list[tuple[int, str]]:
        """Publish pending changes; return workers with their new states."""
        delta = self.journal.take_delta()
        return [] if delta is None else [(op.worker, op.state) for op in delta[1] if isinstance(op, WorkerOp)]

    def stage(self, index: int) -> WorkerStage:
        return self.workers[index].stage

    def serve(self, index: int) -> None:
        """Let a worker come up and acknowledge everything."""
        self.receive(index, Ready(self.journal.epoch))
        self.publish()
        for each in (0, 1):
            if self.journal.has(each):
                self.receive(each, Ack(self.journal.epoch))


@pytest.fixture
def two() -> TwoWorkers:
    return TwoWorkers()


def test_worker_serves_when_it_has_the_epoch_that_announced_it(two: TwoWorkers) -> None:
    two.receive(0, Ready(two.journal.epoch))
    assert two.stage(0) is WorkerStage.LIVE
    assert two.publish() == [(0, UP)]
    two.receive(0, Ack(two.journal.epoch - 1))
    assert two.stage(0) is WorkerStage.LIVE
    two.receive(0, Ack(two.journal.epoch))
    assert two.stage(0) is WorkerStage.SERVING


def test_snapshot_names_live_workers(two: TwoWorkers) -> None:
    two.serve(1)
    assert [(op.worker, op.state) for op in two.replicas.snapshot_ops() if isinstance(op, WorkerOp)] == [(1, UP)]


def test_lost_worker_is_announced_only_if_it_was_live(two: TwoWorkers) -> None:
    two.replicas.worker_lost(two.workers[0])
    assert two.publish() == []
    two.serve(1)
    two.replicas.worker_lost(two.workers[1])
    assert two.publish() == [(1, DOWN)]
    assert not two.journal.has(1)


def test_ready_of_dead_worker_is_ignored(two: TwoWorkers) -> None:
    two.workers[0].stage = WorkerStage.DEAD
    two.receive(0, Ready(0))
    assert two.stage(0) is WorkerStage.DEAD
    assert two.publish() == []


def test_worker_that_missed_a_change_gets_snapshot(two: TwoWorkers) -> None:
    two.serve(0)
    two.receive(0, Resync())
    assert two.workers[0].wants_snapshot
    two.receive(1, Resync())
    levels = [entry.level for entry in two.log.recent()]
    assert levels == ["warning", "debug"], "normal during the start of a worker"
    two.receive(0, Ready(two.journal.epoch))
    assert two.stage(0) is WorkerStage.SERVING
    assert two.publish() == [], "it is not announced again"


def test_malformed_record_is_blamed_on_its_present_writer(two: TwoWorkers) -> None:
    two.serve(0)
    two.serve(1)
    closed = PortClosed(worker=1, gen=7, text="bad length")
    with pytest.raises(WorkerCorruptError) as caught:
        two.receive(0, closed)
    assert caught.value.worker is two.workers[1]
    two.workers[1] = WorkerProcess(1, 8)
    two.workers[1].stage = WorkerStage.SERVING
    two.receive(0, closed)  # its writer has been replaced
