"""Row about reloads under load: unsettled and presettled traffic over many connections while the configuration is
reloaded again and again.

Each reload changes the treatment of every address, opens or closes listeners, and changes attributes of the others and
log levels. amqpload reports messages that were lost, doubled or out of order, and connections that ended.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from loadtests.configuration import configuration_text, listener, router_section
from loadtests.management import manage
from loadtests.measuring import FULL, WARM_SECONDS, Bench
from loadtests.processes import BenchRouter, MeasureError, finish_load
from loadtests.report import Figure, at_most
from tests.system.router import Section, free_port

MOST_ADDED_MS = 5.0  # ms that reloads may add to the 99th percentile of latency
DISTRIBUTIONS = ("balanced", "multicast", "closest")
UNSETTLED, PRESETTLED = "u", "p"  # first segment of the addresses in use
KINDS = {UNSETTLED: "unsettled", PRESETTLED: "presettled"}
LOG_MODULES = ("SERVER", "ROUTER_CORE", "AGENT", "CONN_MGR")
LEVELS = ("info+", "notice+", "debug+")


@dataclass(frozen=True)
class ReloadSize:
    """Dimensions of a run.

    `connections`: of clients, half of them unsettled, half senders. `addresses`: change with each reload. `listeners`:
    open, close and change. `interval`: seconds between reloads. `rate`: messages/s in all.
    """

    connections: int
    addresses: int
    listeners: int
    reloads: int
    interval: float = 0.5
    rate: int = 10_000

    @property
    def pairs(self) -> int:
        """Number of pairs of sender and receiver with one address, for each of the two kinds of traffic."""
        return max(1, self.connections // 4)

    @property
    def seconds(self) -> float:
        """Duration of each of the two measurements."""
        return self.reloads * self.interval


FULL_SIZE = ReloadSize(connections=200, addresses=1000, listeners=3, reloads=50)
QUICK_SIZE = ReloadSize(connections=200, addresses=1000, listeners=3, reloads=10)


def configuration(size: ReloadSize, turn: int, port: int, more: Sequence[int]) -> str:
    """Return the file of reload number `turn`. port: listener of the clients. more: ports that open and close."""
    sections = [router_section(), listener(port=port)]
    for number, each in enumerate(more):
        if (turn + number) % 3:
            sections.append(listener(f"more{number}", port=each, linkCapacity=100 + turn))
    for number in range(size.addresses):
        distribution = DISTRIBUTIONS[(number + turn) % len(DISTRIBUTIONS)]
        prefix = f"{UNSETTLED if number % 2 else PRESETTLED}.{number // 2}"
        attributes = {"prefix": prefix, "distribution": distribution, "priority": _priority(prefix, turn)}
        sections.append(("address", attributes))
    logs: list[Section] = [
        ("log", {"module": module, "enable": LEVELS[(number + turn) % len(LEVELS)]})
        for number, module in enumerate(LOG_MODULES)
    ]
    return configuration_text(*sections, *logs)


class Traffic:
    """Both kinds of traffic at once, for some seconds. Owner: `reloads`."""

    def __init__(self, router: BenchRouter, size: ReloadSize, seconds: float) -> None:
        shared = {"pairs": size.pairs, "distinct": True, "rate": size.rate // 2, "seconds": f"{seconds:g}"}
        self._loads = {
            UNSETTLED: router.start_load(address=UNSETTLED, **shared),
            PRESETTLED: router.start_load(address=PRESETTLED, presettled=True, **shared),
        }

    @property
    def flows(self) -> bool:
        """True if no load has ended."""
        return all(load.poll() is None for load in self._loads.values())

    def finish(self) -> dict[str, dict[str, float]]:
        """Wait for the loads. Return latencies in ms by kind of traffic. Raises MeasureError on any fault."""
        reports = {kind: _finished(kind, load) for kind, load in self._loads.items()}
        return {
            kind: {name: value / 1000 for name, value in report["latency_us"].items()}
            for kind, report in reports.items()
        }


def _finished(kind: str, load: subprocess.Popen[str]) -> dict[str, Any]:
    try:
        return finish_load(load)
    except MeasureError as error:
        raise MeasureError(f"{KINDS[kind]} traffic: {error}") from error


def check_in_force(router: BenchRouter, size: ReloadSize, turn: int) -> None:
    """Check through management that the file of reload number `turn` is in force. Raises MeasureError."""
    with manage(router) as client:
        left = client.node_call("RELOAD", {"plan": True})["changes"]
        addresses = client.rows("router.config.address")
    wrong = [row["prefix"] for row in addresses if row["priority"] != _priority(row["prefix"], turn)]
    if left or wrong or len(addresses) != size.addresses:
        raise MeasureError(
            f"after the last reload {len(left)} changes are left, and {len(addresses)} addresses are there, "
            f"{len(wrong)} of them not as the file says"
        )


def _priority(prefix: str, turn: int) -> int:
    kind, _, number = prefix.partition(".")
    return (2 * int(number) + (kind == UNSETTLED) + turn) % 10


def reload_often(router: BenchRouter, size: ReloadSize, ports: Sequence[int], traffic: Traffic) -> list[float]:
    """Reload at each interval. Return the milliseconds of each reload. Raises MeasureError."""
    taken = []
    began = time.monotonic()
    for turn in range(1, size.reloads + 1):
        router.configuration.write_text(configuration(size, turn, ports[0], ports[1:]))
        asked = time.monotonic()
        router.hang_up()
        taken.append((time.monotonic() - asked) * 1000)
        if not traffic.flows:
            traffic.finish()
            raise MeasureError(f"the traffic ended after {turn} reloads, {max(taken):.0f} ms at most")
        time.sleep(max(0.0, began + turn * size.interval - time.monotonic()))
    return taken


def reloads(bench: Bench) -> list[Figure]:
    """Measure the latency of traffic before and during reloads. A lost message or connection fails the row."""
    size = FULL_SIZE if bench.effort is FULL else QUICK_SIZE
    ports = [free_port() for _ in range(1 + size.listeners)]
    with bench.router(1, configuration(size, 0, ports[0], ports[1:])) as router:
        Traffic(router, size, WARM_SECONDS).finish()
        before = Traffic(router, size, size.seconds).finish()
        traffic = Traffic(router, size, size.seconds + size.interval)
        taken = reload_often(router, size, ports, traffic)
        during = traffic.finish()
        check_in_force(router, size, size.reloads)
    what = f"{size.reloads} reloads of {size.addresses:,} addresses"
    figures = [
        Figure(f"{what}: a reload", median(taken), "ms", None),
        Figure(f"{what}: the longest", max(taken), "ms", None),
    ]
    for kind, name in KINDS.items():
        for percentile in ("p50", "p99", "p99.9", "max"):
            calm = before[kind][percentile]
            bar = at_most(calm + MOST_ADDED_MS) if percentile == "p99" else None
            title = f"{name} beside reloads: latency {percentile}"
            figures.append(Figure(title, during[kind][percentile], "ms", bar, calm, "no reloads"))
    return figures
