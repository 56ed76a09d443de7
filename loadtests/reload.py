"""Reload under load: `python -m loadtests.reload [--reloads N] [--connections N] [--addresses N] ...`.

Unsettled and presettled traffic flows over many connections while the configuration is reloaded again and again. Each
reload changes the treatment of every address, opens or closes listeners, and changes attributes of the others and log
levels. amqpload reports messages that were lost, doubled or out of order, and connections that ended. The latency of
the same traffic is measured before, without reloads. Exit status: 0 if all holds, 1 if not, 2 if the test cannot run.
"""

from __future__ import annotations

import argparse
import json
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from loadtests.configuration import LINK_CAPACITY
from loadtests.processes import (
    DEFAULT_ROUTER,
    BenchRouter,
    MeasureError,
    build_tools,
    cpu_model,
    finish_load,
    raise_file_limit,
)

MOST_ADDED_MS = 5.0  # ms that reloads may add to the 99th percentile of latency
DISTRIBUTIONS = ("balanced", "multicast", "closest")
UNSETTLED, PRESETTLED = "u", "p"  # first segment of the addresses in use
WARM_SECONDS = 1.0
ANSWER_LIMIT = 20.0  # seconds to wait for an answer of management
PERCENTILES = ("p50", "p99", "p99.9", "max")  # percentiles in amqpload's report
LOG_MODULES = ("SERVER", "ROUTER_CORE", "AGENT", "CONN_MGR")
LEVELS = ("info+", "notice+", "debug+")


@dataclass(frozen=True)
class Size:
    """Dimensions of a run.

    `connections`: of clients, half of them unsettled, half senders. `rate`: messages/s in all.
    """

    connections: int
    addresses: int
    listeners: int
    reloads: int
    interval: float
    rate: int
    workers: int

    @property
    def pairs(self) -> int:
        """Number of pairs of sender and receiver with one address, for each of the two kinds of traffic."""
        return max(1, self.connections // 4)

    @property
    def seconds(self) -> float:
        """Duration of each of the two measurements."""
        return self.reloads * self.interval


@dataclass
class ReloadResult:
    """Result of a run. Latencies are in ms, by kind of traffic."""

    before: dict[str, dict[str, float]]
    during: dict[str, dict[str, float]]
    messages: int
    reload_ms: list[float] = field(default_factory=list)

    @property
    def added_ms(self) -> float:
        """Increase of the 99th percentile by reloads, for the kind of traffic with the larger one."""
        return max(self.during[kind]["p99"] - self.before[kind]["p99"] for kind in self.before)


def configuration(size: Size, turn: int, port: int, more: Sequence[int]) -> str:
    """Return the file of reload number `turn`. port: listener of the clients. more: ports that open and close."""
    sections = [_section("router", mode="standalone", id="bench", workerThreads=size.workers)]
    sections.append(_section("listener", name="clients", host="127.0.0.1", port=port, linkCapacity=LINK_CAPACITY))
    for number, each in enumerate(more):
        if (turn + number) % 3:
            name = f"more{number}"
            sections.append(_section("listener", name=name, host="127.0.0.1", port=each, linkCapacity=100 + turn))
    for number in range(size.addresses):
        kind = UNSETTLED if number % 2 else PRESETTLED
        distribution = DISTRIBUTIONS[(number + turn) % len(DISTRIBUTIONS)]
        prefix = f"{kind}.{number // 2}"
        sections.append(_section("address", prefix=prefix, distribution=distribution, priority=_priority(prefix, turn)))
    for number, module in enumerate(LOG_MODULES):
        sections.append(_section("log", module=module, enable=LEVELS[(number + turn) % len(LEVELS)]))
    return "".join(sections)


def _section(section: str, /, **attributes: object) -> str:
    return f"{section} {{\n" + "".join(f"    {key}: {value}\n" for key, value in attributes.items()) + "}\n"


class Traffic:
    """Both kinds of traffic at once, for some seconds. Owner: `measure`."""

    def __init__(self, router: BenchRouter, size: Size, seconds: float) -> None:
        shared = {"pairs": size.pairs, "distinct": True, "rate": size.rate // 2, "seconds": f"{seconds:g}"}
        self._loads = {
            UNSETTLED: router.start_load(address=UNSETTLED, **shared),
            PRESETTLED: router.start_load(address=PRESETTLED, presettled=True, **shared),
        }

    @property
    def flows(self) -> bool:
        """True if no load has ended."""
        return all(load.poll() is None for load in self._loads.values())

    def finish(self) -> tuple[dict[str, dict[str, float]], int]:
        """Wait for the loads.

        Return latencies (ms) by kind, and the number of messages. Raises MeasureError on any fault.
        """
        reports = {kind: _finished(kind, load) for kind, load in self._loads.items()}
        latencies = {
            kind: {name: value / 1000 for name, value in report["latency_us"].items()}
            for kind, report in reports.items()
        }
        return latencies, sum(report["received"] for report in reports.values())


def _finished(kind: str, load: subprocess.Popen[str]) -> dict[str, Any]:
    try:
        return finish_load(load)
    except MeasureError as error:
        raise MeasureError(f"{'unsettled' if kind == UNSETTLED else 'presettled'} traffic: {error}") from error


def check_in_force(router: BenchRouter, size: Size, turn: int) -> None:
    """Check through management that the file of reload number `turn` is in force. Raises MeasureError."""
    from router.cli.client import ManagementClient
    from router.cli.options import MANAGEMENT, ManagementUrl, QueryTarget

    target = QueryTarget(
        ManagementUrl.parse(f"amqp://127.0.0.1:{router.port}"), MANAGEMENT, ANSWER_LIMIT, tls=None, sasl=None
    )
    with ManagementClient(target) as client:
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


def measure(size: Size, command: Sequence[str]) -> ReloadResult:
    """Measure without reloads, then with. Raises MeasureError."""
    with ExitStack() as stack:
        ports = list(free_ports(1 + size.listeners))
        router = stack.enter_context(
            BenchRouter(size.workers, command, text=configuration(size, 0, ports[0], ports[1:]))
        )
        Traffic(router, size, WARM_SECONDS).finish()
        before, _ = Traffic(router, size, size.seconds).finish()
        traffic = Traffic(router, size, size.seconds + size.interval)
        outcome = ReloadResult(before, {}, 0)
        begun = time.monotonic()
        for turn in range(1, size.reloads + 1):
            router.configuration.write_text(configuration(size, turn, ports[0], ports[1:]))
            asked = time.monotonic()
            router.hang_up()
            outcome.reload_ms.append((time.monotonic() - asked) * 1000)
            if not traffic.flows:
                break
            time.sleep(max(0.0, begun + turn * size.interval - time.monotonic()))
        outcome.during, outcome.messages = traffic.finish()
        if len(outcome.reload_ms) < size.reloads:
            longest = max(outcome.reload_ms)
            raise MeasureError(
                f"the traffic ended after {len(outcome.reload_ms)} reloads, {longest:.0f} ms at most: "
                "make --interval longer"
            )
        check_in_force(router, size, size.reloads)
        return outcome


def free_ports(count: int) -> Iterator[int]:
    """Yield loopback ports that were free a moment ago."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        ports = [probe.getsockname()[1] for probe in probes]
    yield from ports


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.reload", description="Reload a router under load.")
    parser.add_argument("--connections", type=int, default=200, help="of clients (%(default)s)")
    parser.add_argument("--addresses", type=int, default=1000, help="that change each time (%(default)s)")
    parser.add_argument("--listeners", type=int, default=3, help="that come, go and change (%(default)s)")
    parser.add_argument("--reloads", type=int, default=50, help="(%(default)s)")
    parser.add_argument("--interval", type=float, default=0.5, help="seconds between them (%(default)s)")
    parser.add_argument("--rate", type=int, default=10_000, help="messages/s in all (%(default)s)")
    parser.add_argument("--workers", type=int, default=1, help="of the router (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    command = shlex.join(DEFAULT_ROUTER)
    parser.add_argument("--router", default=command, metavar="COMMAND", help="the router's command (%(default)s)")
    return parser.parse_args(words)


def report(size: Size, outcome: ReloadResult) -> str:
    """Return the result as text."""
    lines = [
        f"{cpu_model()}; {size.workers} workers, {4 * size.pairs} connections, {size.rate} messages/s, "
        f"{size.addresses} addresses, {size.reloads} reloads, one every {size.interval:g} s",
        f"{outcome.messages} messages during the reloads: none lost, doubled or out of order; no connection ended",
        f"a reload took {median(outcome.reload_ms):.0f} ms (median), {max(outcome.reload_ms):.0f} ms at most",
    ]
    for kind, name in ((UNSETTLED, "unsettled"), (PRESETTLED, "presettled")):
        for title, found in (("before", outcome.before[kind]), ("reloads", outcome.during[kind])):
            figures = ", ".join(f"{percentile} {found[percentile]:.2f}" for percentile in PERCENTILES)
            lines.append(f"{name:>10}, {title:<7}: {figures} ms")
    verdict = "ok" if outcome.added_ms <= MOST_ADDED_MS else "MISSED"
    lines.append(f"reloads added {outcome.added_ms:.2f} ms to p99 (bar: {MOST_ADDED_MS:g} ms): {verdict}")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    """Run the test. Return the exit status."""
    options = parse(sys.argv[1:] if words is None else words)
    size = Size(
        options.connections, options.addresses, options.listeners, options.reloads, options.interval, options.rate,
        options.workers,
    )  # fmt: skip
    try:
        build_tools()
    except MeasureError as error:
        print(error, file=sys.stderr)
        return 2
    raise_file_limit()
    try:
        outcome = measure(size, shlex.split(options.router))
    except MeasureError as error:
        print(error, file=sys.stderr)
        return 1
    print(report(size, outcome))
    if options.json:
        figures = {"size": asdict(size), **asdict(outcome), "added_ms": outcome.added_ms}
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0 if outcome.added_ms <= MOST_ADDED_MS else 1


if __name__ == "__main__":
    sys.exit(main())
