"""Probes that detect unresponsive workers, which receive no connections and are killed after a while.

Each round signals every live worker, which costs a sleeping worker one wake, and stores its heartbeat. The next round
checks whether the heartbeat has changed. A busy worker updates it in its wakes, so only a blocked worker is silent. A
late round does not count: the supervisor itself was stopped or starved, and perhaps the workers as well.
"""

import asyncio
import os
from typing import Final

from sluice.router.log import ProcessLog
from sluice.supervisor.children.handover_sockets import HandedConnections
from sluice.supervisor.children.shared_resources import SharedResources
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.core import Core
from sluice.supervisor.runtime.deadline import HELD_UP

PROBE_EVERY: Final = 2.0  # seconds between two rounds; a hang is detected after one to two of them
KILL_AFTER: Final = 10.0  # seconds of silence


class Probes:
    """Periodic probes of all live workers. Owner: supervisor.

    Connections that a silent worker has not taken go to other workers.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        core: Core,
        shared: SharedResources,
        connections: HandedConnections,
        log: ProcessLog,
    ) -> None:
        self._loop = loop
        self._core = core
        self._region = shared.region
        self._eventfds = shared.eventfds
        self._connections = connections
        self._log = log
        self._next = loop.call_later(PROBE_EVERY, self._round)

    def close(self) -> None:
        """Stop probing."""
        self._next.cancel()

    def _round(self) -> None:
        late = self._loop.time() - self._next.when() > HELD_UP
        self._next = self._loop.call_later(PROBE_EVERY, self._round)
        for worker in list(self._core.workers.values()):
            if worker.live:
                self._probe(worker, late)

    def _probe(self, worker: WorkerProcess, late: bool) -> None:
        beat = self._region.worker_heartbeat(worker.index)
        if beat != worker.beat:
            worker.beat = beat
            if worker.silent:
                worker.silent = 0.0
                self._log.notice("SERVER", f"Worker {worker.index} (process {worker.pid}) responds again")
                self._connections.resume()
        elif not late:
            self._unanswered(worker)
        os.eventfd_write(self._eventfds[worker.index], 1)

    def _unanswered(self, worker: WorkerProcess) -> None:
        worker.silent += PROBE_EVERY
        text = f"Worker {worker.index} (process {worker.pid}) has not responded for {worker.silent:.0f} seconds"
        if worker.silent >= KILL_AFTER:
            self._log.error("SERVER", f"{text} and is killed")
            worker.kill()
        elif worker.silent == PROBE_EVERY:
            self._log.warning("SERVER", f"{text} and gets no connections meanwhile")
            self._connections.withdraw(worker)
