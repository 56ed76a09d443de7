"""Rows about established clients beside masses of others that connect and leave."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtests.measuring import BODY, WARM_SECONDS, Bench, Readings
from loadtests.processes import ROOT, BenchRouter, MeasureError, Relay
from loadtests.report import Figure, at_most

PAIRS = 10  # established senders, each with a receiver
PACED_RATE = 2_000  # messages/s of all pairs together
WORKERS = 2
WORST_MS = 250.0  # longest wait in ms allowed for an established client, on a machine whose cores are all busy
LIMIT = 60.0  # seconds for a storm
LAST = ("nice", "-n", "19")
#: Kinds of storms (storm.py), with count and name in the table.
STORMS: dict[str, tuple[int, str]] = {
    "connects": (20_000, "connects that leave in five ways"),
    "half-open": (300, "half-open connections"),
    "receivers": (10_000, "dynamic receivers"),
    "bursts": (20_000, "dynamic receivers that come and go at once"),
    "attaches": (20_000, "attaches and detaches"),
}


@contextmanager
def storm(
    router: BenchRouter, kind: str, count: int, file: Path | None = None, *, last: bool = False
) -> Iterator[subprocess.Popen[str]]:
    """Run a storm that has begun on entry. Raises MeasureError at the end if it failed or takes too long.

    file: needed by some kinds. last: give the storm's process the lowest priority, so that its own computing is not
    measured.
    """
    words = [*(LAST if last else []), sys.executable, "-m", "loadtests.storm", kind, str(router.port), str(count)]
    words += [str(file)] if file is not None else []
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        yield process
        _, complaints = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        raise MeasureError(f"{count} {kind} took longer than {LIMIT:g} s") from None
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        raise MeasureError(f"{count} {kind}: {complaints.strip().splitlines()[-1]}")


def storms(bench: Bench) -> list[Figure]:
    """Measure the worst latency of paced pairs during a storm, through the router in turn with the byte relay.

    amqpload fails if a message is lost. The relay shows the effect of the machine alone.
    """
    load: dict[str, object] = {"pairs": PAIRS, "rate": PACED_RATE, "size": BODY, "seconds": bench.effort.seconds}
    figures = []
    with Relay() as relay, bench.router(WORKERS) as router:
        router.load(**{**load, "seconds": WARM_SECONDS})
        for kind, (count, title) in STORMS.items():
            mine, theirs = Readings(), Readings()
            with storm(router, kind, count) as process:
                while not mine or (kind != "half-open" and process.poll() is None):
                    mine.append(router.load(distinct=True, **load))
                    theirs.append(relay.load(**load))
            worst = ("latency_us", "max")
            figures.append(
                Figure(
                    f"{PAIRS} pairs beside {count:,} {title}: worst latency",
                    mine.largest(*worst) / 1000,
                    "ms",
                    at_most(WORST_MS),
                    theirs.largest(*worst) / 1000,
                )
            )
    return figures
