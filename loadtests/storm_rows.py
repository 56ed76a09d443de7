"""Rows about healthy clients beside others that come and go in masses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtests.measuring import BODY, WARM_SECONDS, Bench, Readings
from loadtests.processes import ROOT, MeasureError, Relay, Router
from loadtests.report import Figure, at_most

PAIRS = 10  # healthy senders, each with a receiver
PACED_RATE = 2_000  # messages/s of all pairs together
WORKERS = 2
WORST_MS = 250.0  # what a healthy client may have to wait at most, on a machine whose cores are all busy
LIMIT = 60.0  # seconds for a storm
LAST = ("nice", "-n", "19")
#: Kinds of storms (storm.py), how many of it, and how the table calls it.
STORMS: dict[str, tuple[int, str]] = {
    "connects": (20_000, "connects that leave in five ways"),
    "half-open": (300, "half-open connections"),
    "receivers": (10_000, "dynamic receivers"),
    "bursts": (20_000, "dynamic receivers that come and go at once"),
    "attaches": (20_000, "attaches and detaches"),
}


@contextmanager
def storm(
    router: Router, kind: str, count: int, file: Path | None = None, *, last: bool = False
) -> Iterator[subprocess.Popen[str]]:
    """A storm that has begun. Raises MeasureError at the end when it failed, or takes too long.

    file: what the kind needs. last: its own computing waits for all others that want a core, and is not measured with
    them.
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
    """The worst latency of paced pairs while a storm goes on: through the router, in turn with the byte relay.

    amqpload fails when a message is lost. The relay shows what the machine does to anybody at that time.
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
