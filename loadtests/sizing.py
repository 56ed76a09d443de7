"""Measurements behind the sizing guide: memory of an idle router, and CPU of a delivery by rate.

    python -m loadtests.sizing        # prints JSON, for loadtests/results/sizing.json

CPU includes all processes of the router and the kernel's work for them. Memory is the proportional set size.
"""

from __future__ import annotations

import json
from typing import Final

from loadtests.measuring import memory_kib
from loadtests.processes import BenchRouter, build_tools, raise_file_limit

WORKERS: Final = (1, 2, 4, 8, 16)
RATES: Final = (1_000, 10_000, 100_000, 1_000_000)  # deliveries a second
SECONDS: Final = 5.0
IDLE: Final = 2_000  # connections


def measured() -> dict[str, float]:
    """Return the figures by name: MiB of a router by workers, KiB of a connection, µs of CPU of a delivery by rate."""
    found: dict[str, float] = {}
    for workers in WORKERS:
        with BenchRouter(workers) as router:
            found[f"idle_router_{workers}"] = round(memory_kib(router.pid) / 1024, 1)
    with BenchRouter(1) as router:
        report = router.load(idle=IDLE)
        found["idle_connection"] = round(report["kib_per_connection"], 1)
        for rate in RATES:
            report = router.load(pairs=1, rate=rate, seconds=SECONDS, size=100)
            found[f"delivery_{rate}"] = round(report["router_cpu"]["us_per_delivery"], 3)
    return found


if __name__ == "__main__":
    build_tools()
    raise_file_limit()
    print(json.dumps(measured(), indent=4))
