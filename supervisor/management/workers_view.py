"""GET-WORKERS: state of each worker, from shared memory and the operating system. Not in Dispatch.

The body is a list of maps, one for each worker, in order of their numbers. Octets, seconds and counts are those of the
worker's present process, except delivery counters and the histogram, which continue over generations.
"""

import time
from typing import Any, Final

import psutil

from sluice.router.ring.layout import DROP_NAMES, WorkerState
from sluice.router.ring.region import Region
from sluice.router.stats.latency import quantile
from sluice.supervisor.management.context import AgentContext
from sluice.supervisor.management.request import Request
from sluice.supervisor.management.response import OK, Response

QUANTILES: Final = (("latencyP50Seconds", 0.5), ("latencyP90Seconds", 0.9), ("latencyP99Seconds", 0.99))


def get_workers(request: Request, context: AgentContext) -> Response:
    """Return a map for each worker."""
    return Response.of(OK, [worker(context, index) for index in sorted(context.core.workers)])


def worker(context: AgentContext, index: int) -> dict[str, Any]:
    """Return the map of one worker."""
    counters = context.region.worker_counters(index)
    cpu, resident = process(counters["pid"])
    beat = counters["heartbeat"]
    histogram = counters["latency"]
    return {
        "worker": index,
        "generation": counters["generation"],
        "state": WorkerState(counters["state"]).name.lower(),
        "pid": counters["pid"],
        "cpuSeconds": cpu,
        "residentOctets": resident,
        "sleeping": bool(counters["sleeping"]),
        "wakes": counters["wakes"],
        "silentSeconds": context.core.workers[index].silent,
        "secondsSinceWake": (time.monotonic_ns() - beat) / 1e9 if beat else None,
        "connections": len(context.core.workers[index].connections),
        "links": counters["links"],
        "bufferedOctets": counters["buffered"],
        "deliveriesIngress": counters["ingress"],
        "deliveriesEgress": counters["egress"],
        "deliveriesStuck": counters["stuck"],
        "linksBlocked": counters["blocked"],
        "dropped": dict(zip(DROP_NAMES, counters["dropped"], strict=False)),
        "latencyHistogram": list(histogram),
        **{name: quantile(histogram, share) for name, share in QUANTILES},
        "rings": rings(context.region, index),
    }


def rings(region: Region, index: int) -> list[dict[str, int]]:
    """Return the octets that wait in the rings from a worker to each other worker."""
    found = []
    for other in range(region.workers):
        if other != index:
            state = region.ring_state(index, other)
            found.append({"to": other, "usedOctets": state["used"], "sizeOctets": state["size"]})
    return found


def process(pid: int) -> tuple[float | None, int | None]:
    """Return CPU time in seconds and resident memory in octets of a process; None if the process has ended."""
    try:
        found = psutil.Process(pid)
        times = found.cpu_times()
        return times.user + times.system, found.memory_info().rss
    except (psutil.Error, ValueError):
        return None, None
