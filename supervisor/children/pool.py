"""Life cycle of the workers: started through the zygote, monitored, replaced after a crash, stopped at exit."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from sluice.router.control.codec import decode_fork_answer, encode_fork
from sluice.router.control.handover import ForkRequest
from sluice.router.control.messages import Drain
from sluice.router.log import ERROR, ProcessLog
from sluice.router.ring.layout import WorkerState
from sluice.router.ring.region import Region
from sluice.supervisor.children.channels import WorkerChannels
from sluice.supervisor.children.handover_sockets import HandoverSockets
from sluice.supervisor.children.worker import WorkerProcess, WorkerStage
from sluice.supervisor.children.zygote import MAX_MESSAGE, Zygote
from sluice.supervisor.core import Core
from sluice.supervisor.runtime.deadline import Deadline

# Restarting does not help a worker that repeatedly crashes before it is ready.
MAX_FAILED_STARTS: Final = 5
FAILED_STARTS_WITHIN: Final = 10.0  # seconds

RESTART_AFTER: Final = 1.0  # seconds until the next attempt if the system refuses a process or descriptor

START_DEADLINE: Final = 30.0  # seconds from fork to ready, after which a worker counts as hung
ACKNOWLEDGE_DEADLINE: Final = 10.0  # seconds; a worker applies a delta in microseconds

DRAIN_TIME: Final = 1.0  # seconds for workers to flush data queued for clients
KILL_AFTER: Final = 0.5  # seconds after DRAIN_TIME

# Worker state in shared memory, by stage.
STATES: Final = {
    WorkerStage.DEAD: WorkerState.DOWN,
    WorkerStage.FORKING: WorkerState.STARTING,
    WorkerStage.STARTING: WorkerState.STARTING,
    WorkerStage.LIVE: WorkerState.READY,
    WorkerStage.SERVING: WorkerState.READY,
}


class WorkerPool:
    """All workers. Owner: supervisor."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        core: Core,
        zygote: Zygote,
        region: Region,
        channels: WorkerChannels,
        handover: HandoverSockets,
        log: ProcessLog,
        fatal: Callable[[str], None],
    ) -> None:
        """fatal(text): called when the router cannot continue."""
        self._loop = loop
        self._core = core
        self._zygote = zygote
        self._region = region
        self._channels = channels
        self._handover = handover
        self._log = log
        self._fatal = fatal
        self._forking: deque[WorkerProcess] = deque()  # workers requested from the zygote, in order
        self._failed_starts: deque[float] = deque(maxlen=MAX_FAILED_STARTS)
        self._late: set[WorkerProcess] = set()  # workers killed because they were not ready in time
        self._watch: Deadline | None = None
        self._stopping = False
        self._all_gone = asyncio.Event()
        loop.add_reader(zygote.channel, self._forked)

    def start(self, index: int, generation: int = 1) -> None:
        """Request a worker from the zygote."""
        worker = WorkerProcess(index, generation)
        self._core.workers[index] = worker
        try:
            self._handover.open(worker)
            near, far = socket.socketpair()
        except OSError as error:
            self._start_failed(worker, error.strerror or str(error))
            return
        self._channels.connect(worker.identity, near)
        self._set_state(worker)
        assert worker.untaken is not None
        try:
            request = encode_fork(ForkRequest(index, generation))
            with far:
                socket.send_fds(self._zygote.channel, [request], [worker.untaken.fileno(), far.fileno()])
        except ConnectionError:
            return  # the zygote has ended, and the channel will report it
        except OSError as error:  # the request was not sent
            self._start_failed(worker, error.strerror or str(error))
            return
        self._forking.append(worker)
        self._loop.call_later(START_DEADLINE, self._check_forked, worker)

    def _check_forked(self, worker: WorkerProcess) -> None:
        """Log that the zygote has not answered a request in time."""
        if worker.stage is WorkerStage.FORKING and worker in self._forking and not self._stopping:
            self._log.error(
                "SERVER",
                f"Worker {worker.index} has not started: process {self._zygote.pid}, which starts workers, has not "
                f"answered for {START_DEADLINE:.0f} seconds; the router keeps waiting",
            )
            self._loop.call_later(START_DEADLINE, self._check_forked, worker)

    def _forked(self) -> None:
        """Receive an answer of the zygote, or its end."""
        try:
            data, fds, _, _ = socket.recv_fds(self._zygote.channel, MAX_MESSAGE, 1)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        if not data:
            self._loop.remove_reader(self._zygote.channel)
            if not self._stopping:
                self._fatal("The process that starts workers has exited")
            return
        worker = self._forking.popleft()
        worker.pid = decode_fork_answer(data).pid
        if not fds:
            # Without a pid the fork failed; with a pid there was no descriptor for the pidfd.
            self._start_failed(worker, os.strerror(-worker.pid if worker.pid < 0 else errno.EMFILE))
            return
        worker.pidfd = fds[0]
        worker.stage = WorkerStage.STARTING
        self._set_state(worker)
        self._loop.add_reader(fds[0], self._died, worker)
        Deadline(self._loop, START_DEADLINE, lambda: self._check_started(worker))
        if self._stopping:
            worker.kill()
        self._channels.wake()  # the worker may have subscribed before

    def _start_failed(self, worker: WorkerProcess, reason: str) -> None:
        """Schedule another attempt after a worker's process or pidfd could not be created."""
        if worker.pid > 0:
            with contextlib.suppress(ProcessLookupError):  # the process has ended by itself
                os.kill(worker.pid, signal.SIGKILL)
        worker.stage = WorkerStage.DEAD
        worker.pid = 0
        self._handover.close(worker)
        self._channels.disconnect(worker.identity)
        self._set_state(worker)
        text = f"Worker {worker.index} cannot be started: {reason}; retried every {RESTART_AFTER:g} s"
        self._log.repeated(ERROR, "SERVER", f"start {worker.index}", text)
        self._loop.call_later(RESTART_AFTER, self._restart, worker)

    def _restart(self, worker: WorkerProcess) -> None:
        if not self._stopping:
            self.start(worker.index, worker.generation + 1)

    def find(self, name: bytes) -> WorkerProcess | None:
        """Return the running worker with this identity, or None, as for an earlier generation.

        A worker's messages may arrive before the zygote's answer.
        """
        for worker in self._core.workers.values():
            if worker.identity == name and worker.stage is not WorkerStage.DEAD:
                return worker
        return None

    def update(self, worker: WorkerProcess, before: WorkerStage) -> None:
        """Write the worker's stage to shared memory, and log it."""
        if worker.stage is not before:
            self._set_state(worker)
            if worker.stage is WorkerStage.LIVE:
                self._log.debug("SERVER", f"Worker {worker.index} (process {worker.pid}) is ready")

    def _set_state(self, worker: WorkerProcess) -> None:
        self._region.set_worker_state(worker.index, STATES[worker.stage], worker.generation, worker.pid)

    def _died(self, worker: WorkerProcess) -> None:
        """Clean up after a worker's process has exited (its pidfd is readable)."""
        assert worker.pidfd is not None
        self._loop.remove_reader(worker.pidfd)
        os.close(worker.pidfd)
        worker.pidfd = None
        self._handover.lose(worker)
        self._channels.disconnect(worker.identity)
        was_live, connections = worker.live, len(worker.connections)
        self._core.lost(worker, lambda: self._settled(worker))
        self._set_state(worker)
        if self._stopping:
            if all(other.stage is WorkerStage.DEAD for other in self._core.workers.values()):
                self._all_gone.set()
        elif was_live:
            self._log.error(
                "SERVER",
                f"Worker {worker.index} (process {worker.pid}) crashed with {connections} connections; "
                "a new one replaces it",
            )
        # a late worker may only have waited, for instance for a descriptor of this process: keep trying
        elif worker not in self._late:
            self._failed_start(worker)
        self._late.discard(worker)
        self._channels.wake()

    def _failed_start(self, worker: WorkerProcess) -> None:
        now = time.monotonic()
        self._failed_starts.append(now)
        text = f"Worker {worker.index} (process {worker.pid}) exited before it was ready; a new one replaces it"
        self._log.error("SERVER", text)
        if len(self._failed_starts) == MAX_FAILED_STARTS and now - self._failed_starts[0] < FAILED_STARTS_WITHIN:
            self._fatal(
                f"Workers exited {MAX_FAILED_STARTS} times within {FAILED_STARTS_WITHIN:.0f} seconds before they were "
                "ready; the log or stderr shows why"
            )

    def _settled(self, worker: WorkerProcess) -> None:
        """Start the next generation of a dead worker, after all others have dropped it and no longer use its memory."""
        if not self._stopping:
            self._region.reset_worker(worker.index)
            self.start(worker.index, worker.generation + 1)

    def _check_started(self, worker: WorkerProcess) -> None:
        if worker.stage is WorkerStage.STARTING:
            self._log.error(
                "SERVER",
                f"Worker {worker.index} (process {worker.pid}) is not ready after {START_DEADLINE:.0f} seconds "
                "and is killed; a new one replaces it",
            )
            self._late.add(worker)
            worker.kill()

    def watch(self) -> None:
        """Check later that all workers acknowledge the delta just sent. Those that do not are hung, and killed."""
        if self._watch is None:
            epoch = self._core.journal.epoch
            self._watch = Deadline(self._loop, ACKNOWLEDGE_DEADLINE, lambda: self._check_acknowledged(epoch))

    def _check_acknowledged(self, epoch: int) -> None:
        self._watch = None
        for index in self._core.journal.late(epoch):
            worker = self._core.workers[index]
            self._log.error(
                "SERVER",
                f"Worker {index} (process {worker.pid}) has not acknowledged a change of the address table "
                f"for {ACKNOWLEDGE_DEADLINE:.0f} seconds and is killed",
            )
            worker.kill()
        if self._core.journal.late(self._core.journal.epoch):
            self.watch()

    async def stop(self) -> None:
        """Let the workers flush and exit, and kill those that do not in time."""
        self._stopping = True
        if self._watch is not None:
            self._watch.cancel()
        running = [worker for worker in self._core.workers.values() if worker.pidfd is not None]
        for worker in running:
            if worker.stage is not WorkerStage.STARTING:
                self._region.set_worker_state(worker.index, WorkerState.DRAINING, worker.generation, worker.pid)
                worker.outbox.append(Drain(round(DRAIN_TIME * 1000)))
            else:
                worker.kill()
        if not running:
            return
        self._channels.wake()
        try:
            await asyncio.wait_for(self._all_gone.wait(), DRAIN_TIME + KILL_AFTER)
        except TimeoutError:
            left = [worker for worker in running if worker.pidfd is not None]
            text = f"{len(left)} of {len(running)} workers did not exit within {DRAIN_TIME + KILL_AFTER:g} seconds"
            self._log.warning("SERVER", f"{text} and are killed")
            for worker in left:
                worker.kill()

    def close(self) -> None:
        """Release the workers' descriptors. Remaining workers end with the zygote."""
        self._loop.remove_reader(self._zygote.channel)
        for worker in self._core.workers.values():
            if worker.pidfd is not None:
                self._loop.remove_reader(worker.pidfd)
                os.close(worker.pidfd)
            self._handover.close(worker)
