"""Measurement procedure of rows: durations, alternation with a reference, and medians of several rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import psutil

from loadtests.processes import BenchRouter, Relay

MIB = 1024 * 1024
MB = 1_000_000

WARM_SECONDS = 0.3  # seconds of load before measuring: pages are touched, buffers grow

BODY = 100  # bytes, unless a row says otherwise


@dataclass(frozen=True)
class Effort:
    """Duration of measurements: rounds per row, seconds per run, size of a streamed message in octets."""

    rounds: int
    seconds: float
    stream_bytes: int
    beside_seconds: float


FULL = Effort(rounds=5, seconds=1.5, stream_bytes=1000 * MB, beside_seconds=10.0)
QUICK = Effort(rounds=3, seconds=0.7, stream_bytes=50 * MB, beside_seconds=4.0)


@dataclass(frozen=True)
class Bench:
    """Context of a row: the effort and the router's command."""

    effort: Effort
    router_command: Sequence[str]

    def router(self, workers: int, text: str | None = None) -> BenchRouter:
        """Return a fresh router with `workers` workers. text: its configuration."""
        return BenchRouter(workers, self.router_command, text)

    def alternate(self, relay: Relay, router: BenchRouter, **options: object) -> tuple[Readings, Readings]:
        """Warm up relay and router, then measure them in turn. Return both series."""
        relays, routers = Readings(), Readings()
        relay.load(seconds=WARM_SECONDS, **options)
        router.load(seconds=WARM_SECONDS, **options)
        for _ in range(self.effort.rounds):
            relays.append(relay.load(seconds=self.effort.seconds, **options))
            routers.append(router.load(seconds=self.effort.seconds, **options))
        return relays, routers

    def in_turn(self, router: BenchRouter, *loads: dict[str, object]) -> list[Readings]:
        """Warm up with each load, then measure the loads in turn. Return a series for each."""
        series = [Readings() for _ in loads]
        for options in loads:
            router.load(seconds=WARM_SECONDS, **options)
        for _ in range(self.effort.rounds):
            for readings, options in zip(series, loads, strict=True):
                readings.append(router.load(seconds=self.effort.seconds, **options))
        return series

    def repeat(self, router: BenchRouter, **options: object) -> Readings:
        """Warm the router up, then measure it alone."""
        router.load(seconds=WARM_SECONDS, **options)
        return Readings(router.load(seconds=self.effort.seconds, **options) for _ in range(self.effort.rounds))


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its live descendants."""
    process = psutil.Process(pid)
    found = 0.0
    for each in [process, *process.children(recursive=True)]:
        try:
            times = each.cpu_times()
        except psutil.Error:
            continue
        found += times.user + times.system
    return found


class Readings(list[dict[str, Any]]):
    """Reports of amqpload from several rounds."""

    def median(self, *path: str) -> float:
        """Return the median of one number of the reports, by its path of keys."""
        values = []
        for report in self:
            value: Any = report
            for key in path:
                value = value[key]
            values.append(float(value))
        return median(values)

    def largest(self, *path: str) -> float:
        """Return the largest value of one number of the reports, for counts that must always be zero."""
        return max(Readings([report]).median(*path) for report in self)
