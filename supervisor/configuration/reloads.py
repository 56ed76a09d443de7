"""Execution of reloads, one after the other.

The file is read and the plan made in threads; the changes are made in the event loop. If management changes the
configuration while a reload is prepared, the plan is made again. After the second time management changes wait until
the reload is complete, so that they cannot delay it for ever.
"""

import asyncio
import os
import threading
import traceback
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from sluice.router.config.diff import Plan
from sluice.router.config.entities import Configuration
from sluice.router.config.errors import ConfigError
from sluice.router.config.load import load_text, read
from sluice.router.log import DEBUG, ProcessLog
from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.configuration.live import ChangeSteps, LiveConfiguration
from sluice.supervisor.configuration.prepare import prepare
from sluice.supervisor.runtime.threads import Threads
from sluice.supervisor.runtime.waker import Waker

NICE: Final = 10  # nice value of computing threads, so that messages have priority on a loaded machine
READ_SECONDS: Final = 30.0  # time limit for reading the file
MAX_READERS: Final = 4  # maximum number of threads that read the file
MAX_PLANNERS: Final = 8  # maximum number of computing threads
MAX_INVALIDATED_PLANS: Final = 2  # number of plans that management changes may invalidate before they have to wait

HANG_UP: Final = "SIGHUP"  # source of reloads requested by the signal
CHANGES_LOGGED: Final = 20  # maximum number of changes of a reload that are logged one by one, at level debug

Result = Plan | ChangeError
_Result = TypeVar("_Result")


def lower_thread_priority() -> None:
    """Lower the priority of this thread. On Linux setpriority(2) concerns a thread, not the process."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


class _Job(Struct, frozen=True):
    """Requested reload, or with `undo` the reversal of the last one. All requesters share `result`."""

    source: str  # source of the first request
    path: str | None
    undo: bool
    plan_only: bool
    result: "asyncio.Future[Result]"

    def same(self, path: str | None, undo: bool, plan_only: bool) -> bool:
        """True if this job does what a request with these parameters asks for."""
        return (self.path, self.undo, self.plan_only) == (path, undo, plan_only)


# Callback with the source, the path and the result of a reload.
Report = Callable[[str, str, Result], object]


def _ignore(source: str, path: str, result: Result) -> None:
    """Discard a report."""


class ReloadObserver(Protocol):
    """Interface for notifications about reloads. Plans are not reported."""

    def reload_begun(self) -> None:
        """Note that a reload begins."""

    def reload_done(self, refusal: str | None) -> None:
        """Note that all workers use the configuration. refusal: why it is unchanged."""


class Reloads:
    """Queue and execution of reloads. Owner: supervisor."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        live: LiveConfiguration,
        when_in_force: Callable[[Callable[[], object]], object],
        waker: Waker,
        log: ProcessLog,
        report: Report = _ignore,
        observer: ReloadObserver | None = None,
    ) -> None:
        """Create without executing anything before `start`.

        when_in_force(action): call `action` when all workers use the present configuration. report: called with the
        result of each reload, for the audit log.
        """
        self._loop: Final = loop
        self._live: Final = live
        self._when_in_force: Final = when_in_force
        self._waker: Final = waker
        self._log: Final = log
        self._report: Final = report
        self._observer: Final = observer
        self._readers: Final = Threads(loop, "configuration file", MAX_READERS)
        self._planners: Final = Threads(loop, "reload", MAX_PLANNERS, lower_thread_priority)
        self._previous: Configuration | None = None  # configuration before the last reload that changed anything
        self._waiting: deque[_Job] = deque()
        self._task: asyncio.Task[None] | None = None
        self._started = False

    def start(self) -> None:
        """Begin with reloads, now that the router listens."""
        self._started = True
        self._next()

    def ask(
        self, path: str | None = None, *, source: str = HANG_UP, undo: bool = False, plan_only: bool = False
    ) -> "asyncio.Future[Result]":
        """Request a reload of the configuration file or of `path`. The future completes when all workers use it.

        undo: revert the last reload instead. plan_only: only make the plan. source: requester, for the audit log. A
        request with the parameters of the last waiting one gets the same future.
        """
        if not self._waiting or not self._waiting[-1].same(path, undo, plan_only):
            self._waiting.append(_Job(source, path, undo, plan_only, self._loop.create_future()))
        result = self._waiting[-1].result
        self._next()
        return result

    @property
    def _path(self) -> str:
        return self._live.configuration.path

    def in_thread(self, work: Callable[[], _Result]) -> "asyncio.Future[_Result]":
        """Call `work` in a thread of low priority and return a future with its result."""
        return self._planners.run(work)

    def _next(self) -> None:
        if self._started and self._task is None and self._waiting:
            self._task = self._loop.create_task(self._work(self._waiting.popleft()))

    async def _work(self, job: _Job) -> None:
        result: Result
        if self._observer is not None and not job.plan_only:
            self._observer.reload_begun()
        try:
            result = await self._carry_out(job)
        except ChangeError as error:
            result = error
            for line in error.text.splitlines():
                self._log.error("AGENT", f"The configuration cannot be reloaded and is unchanged: {line}")
        except Exception as error:  # noqa: BLE001 - logged with its trace, and answered
            result = ChangeError(500, f"Internal error: {error!r}")
            self._log.critical("AGENT", f"Internal error in a reload: {traceback.format_exc()}".rstrip())
        finally:
            self._live.release()
            self._task = None
        if not job.plan_only:
            self._report(f"{job.source}, undo" if job.undo else job.source, job.path or self._path, result)
        self._when_in_force(partial(self._complete, job, result))
        self._waker.wake()
        self._next()

    def _complete(self, job: _Job, result: Result) -> None:
        """Answer the requesters of a reload, now that all workers use its result."""
        if not job.result.done():
            job.result.set_result(result)
        if self._observer is not None and not job.plan_only:
            self._observer.reload_done(result.text if isinstance(result, ChangeError) else None)

    async def _carry_out(self, job: _Job) -> Plan:
        """Plan a reload and make its changes. Raises ChangeError."""
        wanted = await self._wanted(job)
        tries = 0
        while True:
            present = self._live.configuration
            prepared = await self._planners.run(partial(prepare, present, wanted))
            if job.plan_only:
                return prepared.plan
            change = self._live.reload(prepared)
            await _run_steps(self._live.gather(change))
            if present is self._live.configuration:
                break
            self._live.discard(change)  # a management change was made meanwhile
            tries += 1
            if tries >= MAX_INVALIDATED_PLANS:
                self._live.hold()
        self._live.apply(change, prepared, from_file=not job.undo)
        if prepared.plan.changes:
            self._previous = present
        for module, text in prepared.warnings:
            self._log.warning(module, text)
        self._log_plan(prepared.plan)
        return prepared.plan

    async def _wanted(self, job: _Job) -> Configuration:
        """Return the configuration that a job asks for. Raises ChangeError."""
        if job.undo:
            if self._previous is None:
                raise ChangeError(400, "There is nothing to undo: no reload has changed the configuration")
            return self._previous
        path = job.path or self._path
        try:
            text = await self._readers.run(partial(read, path), READ_SECONDS)
            return await self._planners.run(partial(load_text, path, text))
        except ConfigError as error:
            raise ChangeError(400, "\n".join(str(each) for each in error.errors)) from error
        except OSError as error:
            raise ChangeError(500, f"{path}: the configuration file cannot be read: {error.strerror}") from error

    def _log_plan(self, plan: Plan) -> None:
        """Log the changes of a reload."""
        count = len(plan.changes)
        changes = "1 change" if count == 1 else f"{count} changes"
        self._log.notice("AGENT", f"Configuration reloaded from {plan.new.path}: {changes}")
        if self._log.enabled("AGENT", DEBUG):
            for change in plan.changes[:CHANGES_LOGGED]:
                for line in change.render():
                    self._log.debug("AGENT", line)
        for change in plan.changes:
            for name, (_, _, effect) in change.attributes.items():
                if change.kind == "update" and effect == "restart":
                    text = f"Attribute '{name}' of {change.title()} takes effect after a restart of the router"
                    self._log.warning("AGENT", text)


async def _run_steps(steps: ChangeSteps[_Result]) -> _Result:
    """Execute all steps of a change and return its result."""
    while True:
        try:
            awaited = next(steps)
        except StopIteration as stop:
            result: _Result = stop.value
            return result
        if awaited is not None:
            await asyncio.wait([awaited])
