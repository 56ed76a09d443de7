"""Core of the supervisor: dispatches events to the subsystems, and takes deltas for the workers.

The core names no subsystem; `composition.py` lists them. No input or output here.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from sluice.router.config.entities import Configuration
from sluice.router.config.entity import EntityConfig
from sluice.router.control.messages import Event, Local
from sluice.router.control.ops import Op
from sluice.supervisor.children.worker import WorkerFaultError, WorkerProcess, WorkerStage
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.journal.snapshots import Snapshots
from sluice.supervisor.runtime.waker import Waker
from sluice.supervisor.subsystem import Events


class Core:
    """Dispatcher of events to subsystems, and source of deltas and snapshots. Owner: supervisor."""

    def __init__(self, journal: Journal, events: Events) -> None:
        """Create the core before any worker exists."""
        self.journal = journal
        self.events = events
        self._handlers: Final = events.handlers
        self.workers: dict[int, WorkerProcess] = {}  # present generation of each worker, dead or alive, by index
        self._snapshots = Snapshots(journal, self.workers, events.snapshot_ops)
        self.waker = Waker()
        self.started_at = time.monotonic()

    # Life

    def start(self, configuration: Configuration) -> None:
        """Start all subsystems, when all workers serve for the first time."""
        for subsystem in self.events:
            subsystem.start(configuration)

    def stop(self) -> None:
        """Stop all subsystems at the end of the router."""
        for subsystem in self.events:
            subsystem.stop()

    # Workers

    def receive(self, worker: WorkerProcess, message: Event, raw: bytes | None = None) -> None:
        """Handle a message of a worker. raw: the octets that belong to it. Raises WorkerFaultError."""
        handler = self._handlers.get(type(message))
        if handler is not None:
            handler(worker, message)
            return
        assert isinstance(message, Local)  # the only type with octets
        if raw is None:
            raise WorkerFaultError("local: the message for the router itself came without its octets")
        self.events.handle_raw(worker, message, raw)

    def subscribed(self, worker: WorkerProcess) -> None:
        """Note that the worker has subscribed to deltas and needs a snapshot."""
        worker.wants_snapshot = True

    def lost(self, worker: WorkerProcess, settled: Callable[[], None]) -> None:
        """Remove a worker that died. settled: called when all others have settled their deliveries to it."""
        was_live = worker.live
        worker.stage = WorkerStage.DEAD
        self.events.worker_lost(worker)
        if was_live:
            self.journal.call_when_acknowledged(settled)
        else:
            settled()

    # Each wake

    def work(self) -> bool:
        """Handle waiting messages for a limited time. Returns True if more wait."""
        return self.events.work()

    @property
    def busy(self) -> bool:
        """True if `take_delta` has more to do after other events."""
        return self.events.waiting

    @property
    def deadline(self) -> float:
        """Time at which `take_delta` is due without an event, in seconds of the monotonic clock."""
        return self.events.deadline

    def take_delta(self) -> tuple[int, list[Op]] | None:
        """Continue waiting changes and return the next epoch with its ops; None if there is nothing to publish.

        Call until the result is None. Then workers that need a snapshot get it.
        """
        journal = self.journal
        journal.run_actions()
        self.events.step()
        journal.run_actions()
        self.events.before_delta()
        delta = journal.take_delta()
        self.events.after_delta()
        if delta is None:
            self._snapshots.send()
        return delta

    # Management

    def live_attributes(self, config: EntityConfig) -> Mapping[str, Any]:
        """Return the live attributes of a configured entity."""
        return self.events.live_attributes(config)
