"""Scenarios of `loadtests.scale` on real cores: a router with more and more workers, and clients beside it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from loadtests.measuring import BODY, WARM_SECONDS, cpu_seconds
from loadtests.processes import BenchRouter, finish_load

CONSUMERS: Final = 1_000
IDLE_PAIRS: Final = 2_500  # a connection for the producer and one for the consumer of each
IDLE_RATE: Final = 5_000  # deliveries/s of all pairs together


@dataclass(frozen=True, slots=True)
class Reading:
    """Result of one row with a number of workers."""

    row: str
    workers: int
    per_second: float
    cpu_us: float  # CPU time of all router processes for a delivery


Loads = Callable[[int], list[Mapping[str, object]]]  # by number of workers: options of each load generator


def pairs(place: str) -> Loads:
    """Return loads with as many pairs as workers, each with an address of its own.

    place: "together" on one worker or "apart".
    """
    return lambda workers: [{"address": f"pair{n}", "place": place, "size": BODY} for n in range(workers)]


ROWS: Final[dict[str, Loads]] = {
    "pairs on one worker": pairs("together"),
    "pairs across workers": pairs("apart"),
    f"one address with {CONSUMERS:,} consumers": lambda workers: [
        {"address": "crowd", "senders": workers, "receivers": CONSUMERS, "size": BODY}
    ],
    f"{2 * IDLE_PAIRS:,} mostly idle connections": lambda _: [
        {"address": "idle", "pairs": IDLE_PAIRS, "distinct": True, "rate": IDLE_RATE, "size": BODY}
    ],
}


def workers_up_to(cores: int) -> list[int]:
    """Return 1, 2, 4 and so on, and the number of all cores."""
    counts = [1]
    while 2 * counts[-1] <= cores:
        counts.append(2 * counts[-1])
    return counts if counts[-1] == cores else [*counts, cores]


def measure(counts: Sequence[int], seconds: float) -> Iterator[Reading]:
    """Measure each row with each number of workers. Raises MeasureError."""
    for name, loads in ROWS.items():
        for workers in counts:
            if workers == 1 and "across" in name:
                continue
            with BenchRouter(workers) as router:
                play(router, loads(workers), WARM_SECONDS)
                yield reading(name, workers, router, loads(workers), seconds)


def play(router: BenchRouter, loads: Sequence[Mapping[str, object]], seconds: float) -> list[float]:
    """Run all load generators at once. Return their rates. Raises MeasureError."""
    started = [router.start_load(**{**options, "seconds": seconds}) for options in loads]
    return [float(finish_load(one)["per_second"]) for one in started]


def reading(
    name: str, workers: int, router: BenchRouter, loads: Sequence[Mapping[str, object]], seconds: float
) -> Reading:
    before, begun = cpu_seconds(router.pid), time.monotonic()
    rates = play(router, loads, seconds)
    used, took = cpu_seconds(router.pid) - before, time.monotonic() - begun
    return Reading(name, workers, sum(rates), used / min(took, seconds) / sum(rates) * 1e6)


def as_table(readings: Sequence[Reading]) -> str:
    """Return the readings as a Markdown table."""
    lines = ["| row | workers | deliveries a second | µs of router CPU a delivery |", "| --- | --- | --- | --- |"]
    lines += [f"| {one.row} | {one.workers} | {one.per_second:,.0f} | {one.cpu_us:.2f} |" for one in readings]
    return "\n".join(lines)


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))
