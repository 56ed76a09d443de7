"""Rows about the lander: rate at which it lands messages from a router, each segment on disk before it is accepted."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from loadtests.configuration import router_configuration
from loadtests.measuring import BODY, Bench, Readings, cpu_seconds
from loadtests.processes import ROOT, STOP_LIMIT, BenchRouter, MeasureError
from loadtests.report import Figure, at_least, at_most, ratio_at_least, ratio_at_most

WINDOW = 100_000  # unsettled deliveries allowed to one sender
LANDED = 1e6  # deliveries/s
LANDER_MOST = 0.5  # µs of CPU of a delivery from one sender
LANDER_MOST_OF_MANY = 1e6 / LANDED  # µs; their segments are shorter, and each has two fsyncs
SENDERS = 20  # of the row with many senders, each with the credit of a listener without linkCapacity
SHARE = 0.6  # required share of the rate of a receiver that only counts, if LANDED is missed
ROUTER_MOST = 1.2  # CPU of a delivery in the router, as a multiple of that with a receiver that only counts
IDLE_MOST = 10.0  # % of the cores' time that is idle while messages land
PROCESSES = 3  # sender, router and lander; of more cores some are idle whatever these do
CONFIGURATION = router_configuration(1, WINDOW)
ADAPTIVE = router_configuration(1)


@contextmanager
def lander(router: BenchRouter, address: str, into: Path | None = None) -> Iterator[int]:
    """Run a lander; yield its process id. It lands on the disk of this checkout, not in a temporary file system."""
    with tempfile.TemporaryDirectory(dir=ROOT / "build", prefix="landing-") as path:
        words = ["--url", f"amqp://127.0.0.1:{router.port}", "--address", address, "--path", str(into or path)]
        command = [sys.executable, "-m", "sluice.router.cli.main", "pipeline", "land"]
        process = subprocess.Popen(
            [*command, *words, "--stage-high", "0", "--status", "0"],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stderr is not None
            first = process.stderr.readline()
            if not first.startswith("landing "):
                raise MeasureError(f"the lander does not land: {first.strip()}")
            yield process.pid
            process.terminate()
            _, said = process.communicate(timeout=STOP_LIMIT)
            if process.returncode:
                raise MeasureError(f"the lander ended with status {process.returncode}: {said.strip()}")
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()


def landing(bench: Bench) -> list[Figure]:
    """Measure one sender of unsettled messages with random bodies of 100 bytes."""
    return _landing(bench, CONFIGURATION, 1, LANDER_MOST, "landing, one lander")


def landing_of_many(bench: Bench) -> list[Figure]:
    """Measure SENDERS senders whose credit adapts."""
    return _landing(
        bench, ADAPTIVE, SENDERS, LANDER_MOST_OF_MANY, f"landing from {SENDERS} senders with adaptive credit"
    )


def _landing(bench: Bench, configuration: str, senders: int, lander_most: float, name: str) -> list[Figure]:
    """Measure a lander beside a receiver in C through the same router.

    The CPU time is measured as well, because other load changes it less than rates.
    """
    landed, wire = Readings(), Readings()
    options: dict[str, object] = {
        "seconds": max(bench.effort.seconds * 2, 2.0),
        "size": BODY,
        "random": True,
        "senders": senders,
    }
    used = router_landed = router_wire = idle = total = 0.0
    with bench.router(1, configuration) as router, lander(router, "landed") as process:
        router.load(address="landed", receivers=0, **options)
        for _ in range(bench.effort.rounds):
            before, router_before = cpu_seconds(process), cpu_seconds(router.pid)
            cores_before = cores_seconds()
            landed.append(router.load(address="landed", receivers=0, **options))
            cores_idle, cores_total = (now - then for now, then in zip(cores_seconds(), cores_before, strict=True))
            idle, total = idle + cores_idle, total + cores_total
            used += cpu_seconds(process) - before
            router_between = cpu_seconds(router.pid)
            wire.append(router.load(address="wire", credit=WINDOW, **options))
            router_landed += router_between - router_before
            router_wire += cpu_seconds(router.pid) - router_between
    rate, reference = landed.median("per_second"), wire.median("per_second")
    bar = at_least(LANDED) if rate >= LANDED else ratio_at_least(SHARE)
    landed_sum, wire_sum = (sum(report["sent"] for report in readings) for readings in (landed, wire))
    micros = used * 1e6 / landed_sum
    router_micros, reference_micros = router_landed * 1e6 / landed_sum, router_wire * 1e6 / wire_sum
    return [
        Figure(f"{name}, with fsync", rate, "/s", bar, reference, "a receiver that only counts"),
        Figure(f"{name}: CPU of a delivery", micros, "µs", at_most(lander_most)),
        Figure(
            f"{name}: CPU of a delivery in the router",
            router_micros,
            "µs",
            ratio_at_most(ROUTER_MOST),
            reference_micros,
            "a receiver that only counts",
        ),
        Figure(
            f"{name}: idle time of all cores",
            100 * idle / total,
            "%",
            at_most(IDLE_MOST) if (psutil.cpu_count() or 1) <= PROCESSES else None,
        ),
    ]


def cores_seconds() -> tuple[float, float]:
    """Return the idle time of all cores, waiting for the disk included, and their time, since the machine began."""
    times = psutil.cpu_times()
    return times.idle + getattr(times, "iowait", 0.0), sum(times) - getattr(times, "guest", 0.0)
