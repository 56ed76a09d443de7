"""Reading of the history's figures from shared memory, the operating system and the subsystems."""

import time
from typing import Final

import psutil

from sluice.router.ring.region import Region
from sluice.supervisor.composition import RouterCore
from sluice.supervisor.history.figures import FigureReading
from sluice.supervisor.management.router import COUNTERS, memory_used

_STUCK: Final = "deliveriesStuck"  # the only quantity among COUNTERS


class FigureReader:
    """Reader of figures. Owner: the supervisor."""

    def __init__(self, core: RouterCore, region: Region) -> None:
        self._core: Final = core
        self._region: Final = region
        self._cpu = 0.0  # CPU seconds of all workers so far, also of exited ones, as far as readings have seen them
        self._processes: dict[int, tuple[int, float]] = {}  # pid and CPU seconds at the last reading, by worker
        self._clock = time.monotonic()

    def read(self) -> FigureReading:
        """Return the present values, in less than a millisecond plus 50 µs for each worker."""
        core, totals = self._core, self._region.router_totals()
        clock = time.monotonic()
        loads = self._read_processors(max(clock - self._clock, 1e-3))
        self._clock = clock
        own = time.process_time()
        return FigureReading(
            clock=clock,
            counters={
                **{name: totals[field] for name, field in COUNTERS.items() if name != _STUCK},
                "deliveriesRedirectedToFallback": totals["redirected"],
                "connectionsAccepted": core.connections.accepted,
                "loginsFailed": sum(core.authentication.failed.by_method.values()),
                "policyDenials": core.connections.denied + sum(core.policy.denials.counts.values()),
                "cpuSeconds": self._cpu,
                "supervisorCpuSeconds": own,
            },
            quantities={
                _STUCK: totals["stuck"],
                "linksBlocked": totals["blocked"],
                "connectionCount": len(core.connections.opened),
                "linkCount": len(core.links.by_identity),
                "addrCount": core.addresses,
                "nodeCount": 0 if core.routers is None else core.routers.reachable,
                "memoryUsage": memory_used(core) or 0,
                "bufferedOctets": totals["buffered"],
                "busiestWorkerLoad": max(loads.values(), default=0.0),
            },
            latency=totals["latency"],
            loads=loads,
        )

    def _read_processors(self, elapsed: float) -> dict[int, float]:
        """Add the CPU time of all workers, and return the load of each since the last reading."""
        loads = {}
        for worker in self._core.workers.values():
            try:
                times = psutil.Process(worker.pid).cpu_times()
            except (psutil.Error, ValueError, OSError):  # no process at present, or no free descriptor
                continue
            seconds = times.user + times.system
            pid, before = self._processes.get(worker.index, (worker.pid, 0.0))
            grown = seconds - before if pid == worker.pid else seconds
            self._processes[worker.index] = worker.pid, seconds
            self._cpu += grown
            loads[worker.index] = grown / elapsed
        return loads
