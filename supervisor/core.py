"""The core: dispatches events to the subsystems, and collects changes for the workers.

It names no subsystem; `composition.py` lists them. No input or output here.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from router.config.entities import Configuration, EntityConfig
from router.control.messages import Event, Local, Snapshot
from router.control.ops import Op
from supervisor.addresses.table import Table
from supervisor.processes.epochs import Epochs
from supervisor.processes.worker import Stage, Worker, WorkerFaultError
from supervisor.runtime.waker import Waker
from supervisor.subsystem import Events


class Core:
    """Dispatches. Owner: supervisor."""

    def __init__(self, table: Table, epochs: Epochs[Any], events: Events, reset_address: Callable[[int], None]) -> None:
        """`reset_address` zeroes a counter slot in shared memory before its id is used again."""
        self.table = table
        self.epochs = epochs
        self.events = events
        self.workers: dict[int, Worker] = {}  # the current generation of each, dead or alive
        self.waker = Waker()
        self.started_at = time.monotonic()
        self._reset_address = reset_address

    # Life

    def start(self, configuration: Configuration) -> None:
        """All workers serve for the first time."""
        for subsystem in self.events:
            subsystem.start(configuration)

    def stop(self) -> None:
        """The router ends."""
        for subsystem in self.events:
            subsystem.stop()

    # Workers

    def receive(self, worker: Worker, message: Event, raw: bytes | None = None) -> None:
        """React to a message of a worker, `raw` the octets that came with it. Raises WorkerFaultError."""
        if not isinstance(message, Local):
            self.events.handle(worker, message)
            return
        if raw is None:
            raise WorkerFaultError("local: the octets of the message are missing")
        self.events.handle_raw(worker, message, raw)

    def subscribed(self, worker: Worker) -> None:
        """The worker has subscribed to deltas: it needs a snapshot."""
        worker.wants_snapshot = True

    def lost(self, worker: Worker, settled: Callable[[], None]) -> None:
        """A worker died. `settled` is called when all others have settled what they had sent to it."""
        was_live = worker.live
        worker.stage = Stage.DEAD
        self.events.worker_lost(worker)
        if was_live:
            self.epochs.call_when_all(self.table.pending_epoch, settled)
        else:
            settled()

    # Each wake

    def work(self) -> bool:
        """Handle waiting messages for a limited time; True: more wait."""
        return self.events.work()

    @property
    def busy(self) -> bool:
        """Whether `take_delta` has more to do after other events."""
        return self.events.waiting

    @property
    def deadline(self) -> float:
        """When `take_delta` is due without an event, in seconds of the monotonic clock."""
        return self.events.deadline

    def take_delta(self) -> tuple[int, list[Op]] | None:
        """Complete what can be completed; returns the changes to publish, or None. Call until it is None."""
        table, epochs = self.table, self.epochs
        epochs.run_actions(table.epoch)
        self.events.step()
        epochs.run_actions(table.epoch)
        delta = table.take_delta()
        table.reclaim(epochs.settled(table.epoch), self._reset_address)
        self.events.after_delta()
        if delta is None:
            for worker in self.workers.values():
                if worker.wants_snapshot:
                    worker.wants_snapshot = False
                    worker.outbox.append(Snapshot(table.epoch, self.snapshot()))
        return delta

    def snapshot(self) -> list[Op]:
        """The ops that a new worker needs. No change may be unpublished."""
        return self.events.snapshot_ops()

    # Management

    def live_attributes(self, config: EntityConfig) -> Mapping[str, Any]:
        """Attributes of a configured entity that show its live state."""
        return self.events.live_attributes(config)
