"""Row about configuration changes: their cost beside few and beside many entities of their type."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import psutil

from loadtests.configuration import configuration_text, listener, router_section
from loadtests.management import manage
from loadtests.measuring import Bench
from loadtests.processes import MeasureError
from loadtests.report import Figure, at_most
from tests.system.router import Section

FEW, MANY = 10, 10_000  # configured entities
CHANGES = 40  # of each kind, in a round
MOST_ADDED_MS = 2.0  # ms of the supervisor's CPU time that many entities may add to a change
TYPES = "org.apache.qpid.dispatch.router.config."

#: Attributes of entity `number`, by short type name.
BODIES: dict[str, Callable[[int], dict[str, Any]]] = {
    "address": lambda number: {"prefix": f"a{number}", "distribution": "balanced"},
    "autoLink": lambda number: {"address": f"a{number}", "direction": "in", "containerId": "c"},
    "linkRoute": lambda number: {"prefix": f"a{number}", "direction": "in", "containerId": "c"},
}


class ChangeCost(NamedTuple):
    """Costs of a change in ms: time from request to answer, and CPU time of the supervisor."""

    create: float
    delete: float
    cpu: float


def change_cost(bench: Bench, kind: str, entities: int) -> ChangeCost:
    """Create and remove entities by management, one after the other. Raises MeasureError."""
    changes = CHANGES * bench.effort.rounds
    there: list[Section] = [(kind, BODIES[kind](number)) for number in range(entities)]
    with bench.router(1, configuration_text(router_section(), listener(), *there)) as router, manage(router) as client:
        supervisor = psutil.Process(router.pid)
        client.rows(f"router.config.{kind}", ["name"])  # the first query fills caches
        before = sum(supervisor.cpu_times()[:2])
        took: dict[str, list[float]] = {"CREATE": [], "DELETE": []}
        for operation, times in took.items():
            for number in range(changes):
                body = BODIES[kind](entities + number) if operation == "CREATE" else None
                asked = time.perf_counter()
                client.call(operation, {"type": TYPES + kind, "name": f"x{number}"}, body, expect=None)
                times.append((time.perf_counter() - asked) * 1000)
        spent = sum(supervisor.cpu_times()[:2]) - before
        if len(client.rows(f"router.config.{kind}", ["name"])) != entities:
            raise MeasureError(f"{kind}: not all that was created is gone")
    return ChangeCost(median(took["CREATE"]), median(took["DELETE"]), spent * 1000 / (2 * changes))


def changes(bench: Bench) -> list[Figure]:
    """Measure changes of each type that may have thousands of entities, beside few and beside many of them."""
    figures = []
    for kind in BODIES:
        few, many = (change_cost(bench, kind, entities) for entities in (FEW, MANY))
        what, than = f"{kind} beside {MANY:,}", f"{FEW}"
        figures += [
            Figure(f"{what}: CREATE", many.create, "ms", None, few.create, than),
            Figure(f"{what}: DELETE", many.delete, "ms", None, few.delete, than),
            Figure(f"{what}: CPU of the supervisor", many.cpu, "ms", at_most(few.cpu + MOST_ADDED_MS), few.cpu, than),
        ]
    return figures
