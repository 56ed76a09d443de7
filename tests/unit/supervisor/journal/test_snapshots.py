"""Snapshots: recipients, and their epoch."""

from sluice.router.control.messages import Snapshot
from sluice.router.control.ops import AddressGone, Op
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.journal.snapshots import Snapshots


def test_snapshot_is_sent_once_to_worker_that_needs_it() -> None:
    journal, workers = Journal(), {index: WorkerProcess(index, 1) for index in range(2)}
    state: list[Op] = [AddressGone(7)]
    snapshots = Snapshots(journal, workers, lambda: state)
    workers[1].wants_snapshot = True
    snapshots.send()
    snapshots.send()
    assert (workers[0].outbox, workers[1].outbox) == ([], [Snapshot(0, state)])


def test_snapshot_waits_while_change_is_unpublished() -> None:
    journal, worker = Journal(), WorkerProcess(0, 1)
    snapshots = Snapshots(journal, {0: worker}, list)
    worker.wants_snapshot = True
    journal.append(AddressGone(1))
    snapshots.send()
    assert worker.outbox == []
    journal.take_delta()
    snapshots.send()
    assert worker.outbox == [Snapshot(1, [])]
