"""`python -m loadtests.attacks`: all attacks at once beside pairs on the same worker, which must not notice.

Each attack runs repeatedly in a process of its own. Beside it, pairs send at a low rate through the router. Other
pairs send through a byte relay, which shows the effect of the machine alone. Exit status: 0 passed; 1 a worker was
replaced, a pair lost a message or its connection, an attack was never played, or, with at least CORES cores, a message
of a pair took longer than LATEST and than LATEST_TIMES the relay's longest; 2 the test could not start. With fewer
cores the attackers' own processes delay the pairs most.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import psutil

from loadtests.attacks.plays import ATTACKS, BROKERS
from loadtests.configuration import INFO_LOG, MULTICAST, configuration_text, listener, router_section
from loadtests.processes import (
    ROOT,
    BenchRouter,
    MeasureError,
    Relay,
    build_tools,
    finish_load,
    raise_file_limit,
    start_load,
)
from tests.system.router import Section

PAIRS: Final = 20
RATE: Final = 1000  # messages a second of all pairs together
LATEST: Final = 100_000.0  # µs
LATEST_TIMES: Final = 3.0
SECONDS: Final = 60.0
CORES: Final = 8
STOP_LIMIT: Final = 30.0  # seconds for an attacker to end its round
BUFFERED: Final = 64  # MiB that the router may hold for a connection
BETWEEN: Final = 1.0  # seconds between readings of the workers' memory


def configuration(workers: int) -> str:
    """Return a configuration with link routes to a broker for each attack that has one."""
    own: dict[str, Any] = {"maxBufferedMegabytes": BUFFERED}
    routes: list[Section] = [
        ("linkRoute", {"prefix": name, "direction": direction, "containerId": name})
        for name in BROKERS
        for direction in ("in", "out")
    ]
    listeners = [listener(**own), listener("brokers", role="route-container", **own)]
    return configuration_text(router_section(workers, "attacked"), *listeners, *routes, MULTICAST, INFO_LOG)


@dataclass(slots=True)
class Report:
    """Counts of one attacker. played: completed rounds. ended: rounds that the router ended."""

    played: int
    ended: int
    last: str


def workers_of(pid: int) -> dict[int, int]:
    """Return the octets in memory of a router's workers, by process id."""
    found = {}
    for process in psutil.Process(pid).children(recursive=True):
        try:
            if process.name().startswith("sluice-w"):
                found[process.pid] = process.memory_info().rss
        except psutil.NoSuchProcess:
            pass
    return found


def attack(router: BenchRouter, names: Sequence[str], seconds: float) -> dict[str, subprocess.Popen[str]]:
    """Start an attacker for each name."""
    client, broker = router.ports
    return {
        name: subprocess.Popen(
            [sys.executable, "-m", "loadtests.attacks.play", name, *map(str, (client, broker, client, seconds))],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )
        for name in names
    }  # fmt: skip


def reports(attackers: dict[str, subprocess.Popen[str]]) -> dict[str, Report]:
    """Wait for the attackers; return their reports. Raises MeasureError if one failed by itself."""
    found = {}
    for name, process in attackers.items():
        try:
            said, _ = process.communicate(timeout=STOP_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise MeasureError(f"attacker {name} did not end its round within {STOP_LIMIT:g} s") from None
        if process.returncode:
            raise MeasureError(f"attacker {name} ended with status {process.returncode}")
        found[name] = Report(**json.loads(said))
    return found


def watch(router: BenchRouter, pairs: subprocess.Popen[str], before: set[int]) -> tuple[int, list[str]]:
    """Watch the workers until the pairs have ended. Return the peak memory of a worker in octets, and faults."""
    most = 0
    while True:
        memory = workers_of(router.pid)
        most = max([most, *memory.values()])
        if set(memory) != before:
            return most, [f"a worker was replaced: {sorted(before)} became {sorted(memory)}"]
        try:
            pairs.wait(BETWEEN)
            return most, []
        except subprocess.TimeoutExpired:
            pass


def judge(mine: dict[str, Any], relay: dict[str, Any], played: dict[str, Report]) -> list[str]:
    """Return the violations of the expected result."""
    latest, theirs = float(mine["latency_us"]["max"]), float(relay["latency_us"]["max"])
    idle = [name for name, one in played.items() if not one.played + one.ended]
    faults = [f"attacks that were never played: {', '.join(idle)}"] if idle else []
    if len(os.sched_getaffinity(0)) < CORES:
        print(f"latency is judged with {CORES} cores and more only")
    elif latest > max(LATEST, LATEST_TIMES * theirs):
        faults.append(f"a message of the pairs took {latest / 1000:.0f} ms; the relay's latest {theirs / 1000:.0f} ms")
    return faults


def run(names: Sequence[str], workers: int, seconds: float) -> list[str]:
    """Run the attacks and print the result. Return faults. Raises MeasureError."""
    load: dict[str, object] = {"pairs": PAIRS, "distinct": True, "rate": RATE, "size": 100, "seconds": seconds}
    with BenchRouter(workers, text=configuration(workers)) as router, Relay() as relay:
        before = set(workers_of(router.pid))
        pairs = router.start_load(address="innocent", **load)
        beside = start_load({"port": relay.sender_port, "receiver_port": relay.receiver_port, "direct": True, **load})
        attackers = attack(router, names, seconds)
        most, faults = watch(router, pairs, before)
        played = reports(attackers)
        theirs = finish_load(beside)
        try:
            mine = finish_load(pairs)
        except MeasureError as error:
            return [*faults, f"pairs: {error}"]
    for name, one in played.items():
        print(f"  {name:20} {one.played:6,} rounds, {one.ended:6,} ended by the router; {one.last}")
    for who, report in (("pairs", mine), ("relay", theirs)):
        figures = ", ".join(f"{key} {value / 1000:.1f}" for key, value in report["latency_us"].items())
        print(f"{who}: {report['per_second']:,.0f} messages/s; ms: {figures}")
    print(f"workers: at most {most / (1 << 20):,.0f} MiB in one")
    return faults + judge(mine, theirs, played)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests.attacks", description="Do attacks harm others?")
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"which (all): {', '.join(ATTACKS)}")
    parser.add_argument("--workers", type=int, default=1, help="of the router (%(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long (%(default)s)")
    options = parser.parse_args(words)
    names: list[str] = options.attacks or list(ATTACKS)
    if unknown := [name for name in names if name not in ATTACKS]:
        parser.error(f"no such attack: {', '.join(unknown)}")
    raise_file_limit()
    try:
        build_tools()
        faults = run(names, options.workers, options.seconds)
    except MeasureError as error:
        print(error, file=sys.stderr)
        return 2
    for fault in faults:
        print(f"FAULT: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
