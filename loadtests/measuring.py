"""Measurement procedure of rows: durations, alternation with a reference, and medians of several rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import psutil

from loadtests.processes import BenchRouter, Relay

MIB = 1024 * 1024
MB = 1_000_000

WARM_SECONDS = 0.3  # seconds of load before measuring: pages are touched, buffers grow

CREDIT = 1000  # deliveries: credit of amqpload's receivers by default
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

    def in_turn(self, *loads: Callable[..., dict[str, Any]]) -> list[Readings]:
        """Warm up with each load, then measure the loads in turn. Return a series for each. A load takes `seconds`."""
        for load in loads:
            load(seconds=WARM_SECONDS)
        series = [Readings() for _ in loads]
        for _ in range(self.effort.rounds):
            for readings, load in zip(series, loads, strict=True):
                readings.append(load(seconds=self.effort.seconds))
        return series

    def alternate(self, relay: Relay, router: BenchRouter, **options: object) -> list[Readings]:
        """Measure relay and router in turn."""
        return self.in_turn(partial(relay.load, **options), partial(router.load, **options))

    def repeat(self, router: BenchRouter, **options: object) -> Readings:
        """Measure the router alone."""
        (readings,) = self.in_turn(partial(router.load, **options))
        return readings


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


def memory_kib(pid: int) -> float:
    """Return the memory of a process and its live descendants in KiB. Shared pages are counted once."""
    process = psutil.Process(pid)
    return sum(each.memory_full_info().pss for each in [process, *process.children(recursive=True)]) / 1024


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
