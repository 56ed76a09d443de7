"""What to change, from the roll-ups of a period: placements, which `apply` makes, and advice, which a person follows.

A connection goes to a worker before its first octet of AMQP: placements therefore know clients by listener and host,
not by container id. Without Spark here: it gets figures that are small.
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
MOST_LOAD: Final = 1.05  # of a worker, in those of the average: a balance is worth more than less traffic across
ROUNDS: Final = 10
MOST_SKEW: Final = 1.25  # load of the busiest worker, in those of the average, that a plan may make
LEAST_GAIN: Final = 0.1  # in the share of deliveries that go across workers: below it, nothing is moved
PREFIX: Final = "advice-"  # of the names of placements that a plan makes
REFUSED_SHARE: Final = 0.05
SKEWED: Final = 1.5  # load of the busiest worker, in those of the average
SETTLE_MARGIN: Final = 1.5
CONSUMER_MARGIN: Final = 1.2  # consumers that are just enough have no credit now and then
MOST_HELD_BACK: Final = 0.9  # share of their time that producers may be held back to tell what they would send
PEAK_MARGIN: Final = 1.5
LEAST_CONNECTIONS: Final = 10  # that any limit allows a user
LOOSE: Final = 10  # a limit that allows so many times what is wanted limits nobody

# A client as a listener sees it: listener and host.
Place = tuple[str, str]


@dataclass(frozen=True)
class Flow:
    """Deliveries from one place to another; None: not known."""

    source: Place | None
    target: Place | None
    worker_in: int
    worker_out: int
    deliveries: int


@dataclass
class Placed:
    """Where the clients of a router are to be."""

    workers: dict[Place, int]
    share_before: float
    share_after: float
    skew_before: float
    skew_after: float
    evidence: dict[Place, int] = field(default_factory=dict)  # deliveries of each


def place(flows: Sequence[Flow], workers: int) -> Placed:
    """Workers for places, so that what belongs together is together and no worker has much more than others."""
    loads: dict[Place, int] = {}
    weights: dict[tuple[Place, Place], int] = {}
    whole = sum(flow.deliveries for flow in flows)
    across = sum(flow.deliveries for flow in flows if flow.worker_in != flow.worker_out)
    unknown = 0  # across, whatever is done
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
    return Placed(
        found, across / whole if whole else 0.0, after / whole if whole else 0.0, skew(before), skew(sums), loads
    )


def _spread(loads: Mapping[Place, int], weights: Mapping[tuple[Place, Place], int], workers: int) -> dict[Place, int]:
    """First groups of places that talk most, as large as a worker takes; then single places, where that is better."""
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


def placement_plan(router: str, flows: Sequence[Flow], workers: int) -> list[dict[str, Any]]:
    """The rules of a plan for one router; none when little would be better."""
    if workers < 2 or not flows:
        return []
    placed = place(flows, workers)
    if placed.share_before - placed.share_after < LEAST_GAIN:
        return []
    if placed.skew_after > max(MOST_SKEW, placed.skew_before):
        return []  # few hosts have all the load: together they would fill one worker while others do nothing
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
    """Of rules and advice: shows whether somebody has changed a plan."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def plan(
    rules: Sequence[dict[str, Any]], advice: Sequence[dict[str, Any]], start: datetime, end: datetime, now: datetime
) -> dict[str, Any]:
    """The plan as it is written to a file."""
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
    """The link capacity that this rate needs, by Little's law; None when the present one does."""
    needed = int(rate * settle_us / 1e6 * SETTLE_MARGIN) + 1
    return needed if needed > capacity else None


@dataclass(frozen=True)
class Demand:
    """What an address of a router is sent, and what its consumers take."""

    rate: float  # deliveries a second that its producers sent, in the hour in which they were held back most
    held_back: float  # share of their time that producers had no credit, in that hour
    consumers: int  # links at once
    each: float  # deliveries a second that one takes, while it has no credit

    @property
    def offered(self) -> float:
        """Deliveries a second that producers would send."""
        return self.rate / (1 - min(self.held_back, MOST_HELD_BACK))

    @property
    def needed(self) -> int:
        """Consumers that take as much, and have some time left."""
        return math.ceil(round(self.offered * CONSUMER_MARGIN / self.each, 6))


def connections_advice(peak: int, limit: int | None) -> int | None:
    """A limit of connections for each user, from the most that one had open; None when the present one is as tight."""
    wanted = max(int(peak * PEAK_MARGIN) + 1, LEAST_CONNECTIONS)
    return wanted if limit is None or limit >= LOOSE * wanted else None
