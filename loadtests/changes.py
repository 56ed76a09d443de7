"""Cost of configuration changes beside many entities: `python -m loadtests.changes [--entities N] [--changes N] ...`.

For each type that may have thousands of entities, management creates and removes entities one by one, in a router with
few and in one with many. The supervisor's time for a change must not depend on the number of entities. Exit status: 0
if it does not, 1 if it does, 2 if the test cannot run.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from loadtests.processes import DEFAULT_ROUTER, BenchRouter, MeasureError, cpu_model

FEW = 10  # entities of the reference router
MOST_ADDED_MS = 2.0  # ms of the supervisor's CPU time that many entities may add to a change
ANSWER_LIMIT = 20.0  # seconds to wait for an answer of management

# Attributes of entity `number`, by short type name.
BODIES: dict[str, Callable[[int], dict[str, str]]] = {
    "address": lambda number: {"prefix": f"a{number}", "distribution": "balanced"},
    "autoLink": lambda number: {"address": f"a{number}", "direction": "in", "containerId": "c"},
    "linkRoute": lambda number: {"prefix": f"a{number}", "direction": "in", "containerId": "c"},
}


@dataclass(frozen=True)
class Cost:
    """Costs of a change in ms: time from request to answer, and CPU time of the supervisor."""

    create_ms: float
    delete_ms: float
    processor_ms: float


@dataclass(frozen=True)
class Outcome:
    """Costs of one type's changes beside few and beside many entities."""

    kind: str
    few: Cost
    many: Cost

    @property
    def added_ms(self) -> float:
        """CPU time that many entities add to a change."""
        return self.many.processor_ms - self.few.processor_ms


def configuration(kind: str, entities: int) -> str:
    """Return the configuration of a router with `entities` entities of a type."""
    sections = ["router {\n    mode: standalone\n    id: bench\n    workerThreads: 1\n}\n"]
    sections.append("listener {\n    host: 127.0.0.1\n    port: 0\n}\n")
    for number in range(entities):
        lines = "".join(f"    {name}: {value}\n" for name, value in BODIES[kind](number).items())
        sections.append(f"{kind} {{\n{lines}}}\n")
    return "".join(sections)


def measure(kind: str, entities: int, changes: int, command: Sequence[str]) -> Cost:
    """Create and remove entities, one after the other. Raises MeasureError."""
    from router.cli.client import ManagementClient
    from router.cli.options import MANAGEMENT, ManagementUrl, QueryTarget

    with BenchRouter(1, command, text=configuration(kind, entities)) as router:
        target = QueryTarget(
            ManagementUrl.parse(f"amqp://127.0.0.1:{router.port}"), MANAGEMENT, ANSWER_LIMIT, tls=None, sasl=None
        )
        supervisor = psutil.Process(router.pid)
        took: dict[str, list[float]] = {"CREATE": [], "DELETE": []}
        with ManagementClient(target) as client:
            client.rows(f"router.config.{kind}", ["name"])  # the first query fills caches
            before = sum(supervisor.cpu_times()[:2])
            for operation, times in took.items():
                for number in range(changes):
                    body = BODIES[kind](entities + number) if operation == "CREATE" else None
                    asked = time.perf_counter()
                    _change(client, operation, kind, f"x{number}", body)
                    times.append((time.perf_counter() - asked) * 1000)
            spent = sum(supervisor.cpu_times()[:2]) - before
            if len(client.rows(f"router.config.{kind}", ["name"])) != entities:
                raise MeasureError(f"{kind}: not all that was created is gone")
    return Cost(median(took["CREATE"]), median(took["DELETE"]), spent * 1000 / (2 * changes))


def _change(client: Any, operation: str, kind: str, name: str, body: dict[str, str] | None) -> None:
    properties = {"type": f"org.apache.qpid.dispatch.router.config.{kind}", "name": name}
    client.call(operation, properties, body, expect=None)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.changes", description="Changes beside many entities.")
    parser.add_argument("--entities", type=int, default=10_000, help="that are configured (%(default)s)")
    parser.add_argument("--changes", type=int, default=200, help="of each kind (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    command = shlex.join(DEFAULT_ROUTER)
    parser.add_argument("--router", default=command, metavar="COMMAND", help="the router's command (%(default)s)")
    return parser.parse_args(words)


def report(entities: int, outcomes: Sequence[Outcome]) -> str:
    """Return the result as text."""
    lines = [f"{cpu_model()}; milliseconds for a change beside {FEW} and beside {entities} entities"]
    for outcome in outcomes:
        few, many = outcome.few, outcome.many
        lines.append(
            f"{outcome.kind:>10}: CREATE {few.create_ms:.2f}, {many.create_ms:.2f}; "
            f"DELETE {few.delete_ms:.2f}, {many.delete_ms:.2f}; "
            f"the supervisor's processor {few.processor_ms:.2f}, {many.processor_ms:.2f}"
        )
    worst = max(outcome.added_ms for outcome in outcomes)
    verdict = "ok" if worst <= MOST_ADDED_MS else "MISSED"
    lines.append(f"many entities added {worst:.2f} ms at most (bar: {MOST_ADDED_MS:g} ms): {verdict}")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    """Run the test. Return the exit status."""
    options = parse(sys.argv[1:] if words is None else words)
    command = shlex.split(options.router)
    try:
        outcomes = [
            Outcome(kind, *(measure(kind, count, options.changes, command) for count in (FEW, options.entities)))
            for kind in BODIES
        ]
    except MeasureError as error:
        print(error, file=sys.stderr)
        return 2
    print(report(options.entities, outcomes))
    if options.json:
        options.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=2) + "\n")
    return 0 if max(outcome.added_ms for outcome in outcomes) <= MOST_ADDED_MS else 1


if __name__ == "__main__":
    sys.exit(main())
