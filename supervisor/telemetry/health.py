"""Liveness and readiness of the router: checks with reasons. Does no input or output.

Live: a restart would not help. Ready: all that is configured works, so that clients may be sent to the router.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from sluice.supervisor.children.worker import WorkerProcess, WorkerStage
from sluice.supervisor.composition import RouterCore
from sluice.supervisor.runtime.availability import ConnectorStates
from sluice.supervisor.telemetry.broker_checks import check_brokers
from sluice.supervisor.telemetry.health_check import HealthCheckResult
from sluice.supervisor.tls.profiles import CredentialsState

# Time without a serving worker after which the router is not live. Dead workers are replaced within milliseconds, hung
# ones within some ten seconds.
LIVE_WITHOUT_WORKERS: Final = 60.0  # seconds
READY_LAG: Final = 2.0  # seconds that a worker may lag behind the address table; normally microseconds
REFUSAL_MOST: Final = 300  # characters of the reason of a refused reload
LAG_STEP: Final = 0.05  # seconds between two recorded epochs
LAG_STEPS: Final = 1024  # limit of recorded epochs, far beyond the acknowledgement deadline

_STAGES: Final = {
    WorkerStage.FORKING: "is being started",
    WorkerStage.STARTING: "is starting",
    WorkerStage.LIVE: "is about to serve",
    WorkerStage.DEAD: "has crashed and is being replaced",
}


class ListenerState(Struct, frozen=True):
    """State of a configured listener; `up`: it accepts connections."""

    name: str
    text: str
    role: str
    http: bool
    up: bool


class Lag:
    """Time for which workers have lagged behind the address table. Owner: the supervisor."""

    __slots__ = ("_clock", "_published")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # last epoch, and time of the first, of each step
        self._published: deque[tuple[int, float]] = deque(maxlen=LAG_STEPS)

    def published(self, epoch: int) -> None:
        """Record that an epoch has just been published."""
        now = self._clock()
        if self._published and now - self._published[-1][1] < LAG_STEP:
            self._published[-1] = (epoch, self._published[-1][1])
        else:
            self._published.append((epoch, now))

    def seconds(self, settled: int, current: int) -> float:
        """Return the seconds, within LAG_STEP, since the first epoch after `settled` was published; 0 if all are
        settled.
        """
        while self._published and self._published[0][0] <= settled:
            self._published.popleft()
        if settled >= current or not self._published:
            return 0.0
        return self._clock() - self._published[0][1]


class Health:
    """Checks of /livez and /readyz. Owner: the supervisor."""

    def __init__(
        self,
        core: RouterCore,
        lag: Lag,
        listeners: Callable[[], Sequence[ListenerState]],
        draining: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        *,
        connectors: Callable[[], ConnectorStates] = tuple,
    ) -> None:
        """listeners, connectors: return their present states. draining: returns whether the router is exiting."""
        self._core = core
        self._lag = lag
        self._listeners = listeners
        self._draining = draining
        self._connectors = connectors
        self._clock = clock
        self._idle_since: float | None = None  # first time at which no worker served

    @property
    def ready(self) -> bool:
        """Return whether all readiness checks pass that count."""
        return all(check.passed or not check.counts for check in self.readiness())

    def listeners(self) -> Sequence[ListenerState]:
        """Return the states of all configured listeners."""
        return self._listeners()

    def connectors(self) -> ConnectorStates:
        """Return the states of all connectors."""
        return self._connectors()

    def lag_seconds(self) -> float:
        """Return the age in seconds of the oldest change that not all workers have acknowledged."""
        return self._lag.seconds(self._core.journal.settled, self._core.journal.epoch)

    def liveness(self) -> list[HealthCheckResult]:
        """Return the liveness checks."""
        if any(worker.serves for worker in self._core.workers.values()):
            self._idle_since = None
            return [HealthCheckResult("workers", True, "serving")]
        if self._idle_since is None:
            self._idle_since = self._clock()
        idle = self._clock() - self._idle_since
        text = f"no worker has served for {idle:.0f} seconds; this check fails after {LIVE_WITHOUT_WORKERS:.0f}"
        return [HealthCheckResult("workers", idle < LIVE_WITHOUT_WORKERS, text)]

    def readiness(self) -> list[HealthCheckResult]:
        """Return the readiness checks."""
        profiles = map(_profile, self._core.tls.states())
        providers = (
            HealthCheckResult(f"{each.kind} {each.name}", each.sound, each.text, counts=not each.usable)
            for each in self._core.authentication.states()
        )
        listeners = map(_listener, self._listeners())
        checks = [self._not_draining(), self._workers(), *listeners, *profiles, *providers, self._table()]
        uplink = self._core.uplink
        if uplink is not None and uplink.required:
            there = uplink.connection
            text = "no connection to an interior router" if there is None else f"to {there.container}"
            checks.append(HealthCheckResult("uplink", there is not None, text))
        refusal = self._core.audit.trail.reload_refusal
        if refusal is not None:
            # The router runs well, but may not start again.
            text = f"the last reload was refused: {refusal.partition(chr(10))[0][:REFUSAL_MOST]}"
            checks.append(HealthCheckResult("configuration", False, text, counts=False))
        checks += [
            HealthCheckResult(
                f"log {name}", False, f"it cannot be written, {lost} lines of the supervisor are lost", False
            )
            for name, lost in self._core.logging.lost_lines().items()
        ]
        return [*checks, *check_brokers(self._core, self._connectors())]

    def _not_draining(self) -> HealthCheckResult:
        draining = self._draining()
        return HealthCheckResult(
            "running", not draining, "the router is shutting down" if draining else "not shutting down"
        )

    def _workers(self) -> HealthCheckResult:
        workers = self._core.workers.values()
        missing = [worker for worker in workers if not worker.serves]
        text = f"{len(workers) - len(missing)} of {len(workers)} serve"
        if missing:
            text += ": " + ", ".join(f"worker {worker.index} {_why(worker)}" for worker in missing)
        return HealthCheckResult("workers", bool(workers) and not missing, text)

    def _table(self) -> HealthCheckResult:
        current, lag = self._core.journal.epoch, self.lag_seconds()
        text = f"epoch {current} acknowledged" if lag < READY_LAG else f"epoch {current} unacknowledged for {lag:.0f} s"
        return HealthCheckResult("table", lag < READY_LAG, text)


def _why(worker: WorkerProcess) -> str:
    if worker.live and worker.silent:
        return f"has not responded for {worker.silent:.0f} seconds"
    return _STAGES[worker.stage]


def _profile(state: CredentialsState) -> HealthCheckResult:
    return HealthCheckResult(f"sslProfile {state.name}", state.sound, state.text, counts=not state.usable)


def _listener(state: ListenerState) -> HealthCheckResult:
    text = state.text if state.up else f"{state.text} takes no connections"
    return HealthCheckResult(f"listener {state.name}", state.up, text)
