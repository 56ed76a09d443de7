"""Recommendations from the roll-ups of a period: placements, which `apply` makes, and advice for people.

A connection is assigned to a worker before its first octet of AMQP. Placements therefore identify clients by listener
and host, not by container id. This module works on small figures, without Spark.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pipeline.jobs.imbalance import skew

VERSION: Final = 1
VALID: Final = timedelta(days=7)
MOST_LOAD: Final = 1.05  # load of a worker, relative to the average; balance matters more than fewer crossings
ROUNDS: Final = 10
MOST_SKEW: Final = 1.25  # maximal load of the busiest worker after a plan, relative to the average
LEAST_GAIN: Final = 0.1  # minimal gain in the share of deliveries that cross workers; a plan with less moves nothing
PREFIX: Final = "advice-"  # prefix of the names of a plan's placements
REFUSED_SHARE: Final = 0.05
SKEWED: Final = 1.5  # load of the busiest worker, relative to the average
SETTLE_MARGIN: Final = 1.5
CONSUMER_MARGIN: Final = 1.2  # with just enough consumers, credit runs out now and then
MOST_HELD_BACK: Final = 0.9  # share of time beyond which the offered rate of producers cannot be estimated
PEAK_MARGIN: Final = 1.5
LEAST_CONNECTIONS: Final = 10  # lower bound of an advised limit
LOOSE: Final = 10  # a limit that is this many times the advised one counts as none

# A client as a listener sees it: listener and host.
Place = tuple[str, str]


@dataclass(frozen=True)
class TrafficFlow:
    """Deliveries from one place to another. None: place not known."""

    source: Place | None
    target: Place | None
    worker_in: int
    worker_out: int
    deliveries: int


@dataclass
class WorkerAssignment:
    """Placement of a router's clients on workers."""

    workers: dict[Place, int]
    share_before: float
    share_after: float
    skew_before: float
    skew_after: float
    evidence: dict[Place, int] = field(default_factory=dict)  # deliveries of each place


def assign_workers(flows: Sequence[TrafficFlow], workers: int) -> WorkerAssignment:
    """Assign places to workers: places that talk to each other together, without overloading a worker."""
    loads: dict[Place, int] = {}
    weights: dict[tuple[Place, Place], int] = {}
    whole = sum(flow.deliveries for flow in flows)
    across = sum(flow.deliveries for flow in flows if flow.worker_in != flow.worker_out)
    unknown = 0  # deliveries that cross workers whatever the placement
    for flow in flows:
        for end in (flow.source, flow.target):
            if end is not None:
                loads[end] = loads.get(end, 0) + flow.deliveries
        if flow.source is None or flow.target is None:
            unknown += flow.deliveries if flow.worker_in != flow.worker_out else 0
        elif flow.source != flow.target:
            pair = min(flow.source, flow.target), max(flow.source, flow.target)
            weights[pair] = weights.get(pair, 0) + flow.deliveries
    before = [0.0] * workers
    for flow in flows:
        before[flow.worker_in] += flow.deliveries
        before[flow.worker_out] += flow.deliveries
    found = _spread(loads, weights, workers)
    after = unknown + sum(count for (one, other), count in weights.items() if found[one] != found[other])
    sums = [0.0] * workers
    for node, worker in found.items():
        sums[worker] += loads[node]
    return WorkerAssignment(
        found, across / whole if whole else 0.0, after / whole if whole else 0.0, skew(before), skew(sums), loads
    )


def _spread(loads: Mapping[Place, int], weights: Mapping[tuple[Place, Place], int], workers: int) -> dict[Place, int]:
    """Assign groups of places that exchange most, up to a worker's load, then improve place by place."""
    most = max(MOST_LOAD * sum(loads.values()) / workers, max(loads.values(), default=0))
    near: dict[Place, dict[Place, int]] = {node: {} for node in loads}
    for (one, other), count in weights.items():
        near[one][other] = near[other][one] = count
    groups: dict[Place, set[Place]] = {node: {node} for node in loads}
    for (one, other), _ in sorted(weights.items(), key=lambda item: (-item[1], item[0])):
        first, second = groups[one], groups[other]
        if first is not second and sum(loads[node] for node in first | second) <= most:
            first |= second
            for node in second:
                groups[node] = first
    found: dict[Place, int] = {}
    sums = [0] * workers
    distinct = {id(group): group for group in groups.values()}.values()
    for group in sorted(distinct, key=lambda each: (-sum(loads[node] for node in each), min(each))):
        worker = min(range(workers), key=lambda index: (sums[index], index))
        for node in sorted(group):
            found[node] = worker
            sums[worker] += loads[node]
    for _ in range(ROUNDS):
        moved = False
        for node in sorted(loads, key=lambda each: (-loads[each], each)):
            own = found[node]
            ties = [0] * workers
            for other, count in near[node].items():
                ties[found[other]] += count
            best = max(
                (index for index in range(workers) if index == own or sums[index] + loads[node] <= most),
                key=lambda index: (ties[index], index == own),
            )
            if best != own:
                sums[own] -= loads[node]
                sums[best] += loads[node]
                found[node], moved = best, True
        if not moved:
            break
    return found


def placement_plan(router: str, flows: Sequence[TrafficFlow], workers: int) -> list[dict[str, Any]]:
    """Return the rules of a plan for one router; empty if the gain would be small."""
    if workers < 2 or not flows:
        return []
    placed = assign_workers(flows, workers)
    if placed.share_before - placed.share_after < LEAST_GAIN:
        return []
    if placed.skew_after > max(MOST_SKEW, placed.skew_before):
        return []  # a few hosts have all the load: together they would fill one worker while the others idle
    gain = {
        "cross_worker_before": round(placed.share_before, 4),
        "cross_worker_after": round(placed.share_after, 4),
        "skew_before": round(placed.skew_before, 3),
        "skew_after": round(placed.skew_after, 3),
    }
    rules = []
    for (listener, host), worker in sorted(placed.workers.items()):
        name = PREFIX + hashlib.sha256(f"{listener} {host}".encode()).hexdigest()[:12]
        rules.append({
            "kind": "placement",
            "router": router,
            "name": name,
            "attributes": {"listener": listener, "host": host, "worker": worker},
            "evidence": {"deliveries": placed.evidence[listener, host]},
            "gain": gain,
        })  # fmt: skip
    return rules


def digest(body: Mapping[str, Any]) -> str:
    """Return the hash of rules and advice. It shows whether a plan was edited."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def make_plan(
    rules: Sequence[dict[str, Any]], advice: Sequence[dict[str, Any]], start: datetime, end: datetime, now: datetime
) -> dict[str, Any]:
    """Return the plan as it is written to a file."""
    body = {"rules": list(rules), "advice": list(advice)}
    return {
        "version": VERSION,
        "from": start.astimezone(UTC).isoformat(),
        "to": end.astimezone(UTC).isoformat(),
        "made_at": now.astimezone(UTC).isoformat(),
        "expires_at": (now + VALID).astimezone(UTC).isoformat(),
        "digest": digest(body),
        **body,
        "inverse": [{"kind": "placement", "router": rule["router"], "name": rule["name"]} for rule in rules],
    }


def capacity_advice(rate: float, settle_us: float, capacity: int) -> int | None:
    """Return the link capacity that this rate needs, by Little's law. None: the present capacity suffices."""
    needed = int(rate * settle_us / 1e6 * SETTLE_MARGIN) + 1
    return needed if needed > capacity else None


@dataclass(frozen=True)
class AddressDemand:
    """Load that an address of a router receives, and the load its consumers take."""

    rate: float  # deliveries a second sent by its producers, in the hour in which they were held back most
    held_back: float  # share of their time that producers had no credit, in that hour
    consumers: int  # consumer links at once
    each: float  # deliveries a second that one consumer takes while its credit is used up

    @property
    def offered(self) -> float:
        """Deliveries a second that producers would send with enough credit."""
        return self.rate / (1 - min(self.held_back, MOST_HELD_BACK))

    @property
    def needed(self) -> int:
        """Number of consumers that take the offered rate with some time to spare."""
        return math.ceil(round(self.offered * CONSUMER_MARGIN / self.each, 6))


def connections_advice(peak: int, limit: int | None) -> int | None:
    """Return a limit of connections for each user, from the most that one user had open.

    None: the present limit is tight enough.
    """
    wanted = max(int(peak * PEAK_MARGIN) + 1, LEAST_CONNECTIONS)
    return wanted if limit is None or limit >= LOOSE * wanted else None
