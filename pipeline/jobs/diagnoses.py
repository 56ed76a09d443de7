"""Causes of trouble at addresses: who holds up whose messages, who refuses them, and when.

Sums by hour or minute are divided into slices, each slice with held-up producers gets one cause, and slices of one
cause at one address are one diagnosis.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from sluice.pipeline.jobs.percentiles import percentile
from sluice.pipeline.jobs.rollup import Rollups
from sluice.pipeline.telemetry.reader import collected_to_utc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOBODY: Final = "nobody"  # no receiver was attached
WITHHELD: Final = "withheld"  # receivers gave no credit
SLOW: Final = "slow"  # receivers had credit and settled late
WINDOW: Final = "window"  # deliveries were settled soon, and producers used all their credit
REJECTED: Final = "rejected"
RETURNED: Final = "returned"  # released or modified
STALLS: Final = (NOBODY, WITHHELD, SLOW)
# A sender to an address without receivers may have nothing to send: that is less urgent than messages that wait.
_RANK: Final = {WITHHELD: 0, SLOW: 0, NOBODY: 1, REJECTED: 2, RETURNED: 3, WINDOW: 4}

LEAST_HELD: Final = 30.0  # seconds of a slice for which a producer was held up; less is no trouble
LEAST_SHARE: Final = 0.05  # share of deliveries with one outcome; less is not reported
LEAST_COUNT: Final = 10  # deliveries with one outcome; fewer are not reported
_LATE: Final = 21  # first histogram bucket whose deliveries took longer than 2**20 µs, about a second
_HALF: Final = 0.5
_FULL: Final = 0.9  # share of its capacity from which on a link counts as full
_MOST_ADDRESSES: Final = 50  # addresses that are examined, by each measure
_MOST_CLIENTS: Final = 20_000  # rows of clients that are read
_OUTCOMES: Final = ("rejected", "released", "modified")


class ClientSums(NamedTuple):
    """Sums of one client's links to one address over the period."""

    client: str
    direction: str  # as in fact_link: "in" if the client sends
    deliveries: int
    outcomes: Mapping[str, int]  # rejected, released, modified
    without_seconds: float
    unsettled: int  # most unsettled deliveries of one link


@dataclass
class AddressSlice:
    """Sums of one address in one hour or minute."""

    start: datetime
    without: float = 0.0  # seconds without credit of a link, of the producing client for which this is longest
    producing: float = 0.0  # seconds with producers' links, summed
    receiving: float = 0.0  # seconds with receivers' links, summed
    withheld: float = 0.0  # seconds of these without credit
    taken: int = 0  # deliveries that were accepted, or settled by their sender
    deliveries: int = 0
    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_OUTCOMES, 0))
    capacity: int = 0  # of a producer's link
    unsettled: int = 0  # most unsettled deliveries of a producer's link
    settled: dict[int, int] = field(default_factory=dict)  # deliveries by bucket of the time to their settlement

    @property
    def late(self) -> float:
        """Seconds for which deliveries that took longer than a second filled the capacity of a link.

        Infinite if a link was full and most deliveries took that long: those not settled yet are not in the histogram.
        """
        if self.unsettled >= _FULL * self.capacity > 0 and (percentile(self.settled, 50) or 0) >= 2 ** (_LATE - 1):
            return math.inf
        times = sum(count * 0.75 * 2.0**bucket for bucket, count in self.settled.items() if bucket >= _LATE)
        return times / 1e6 / self.capacity if self.capacity else 0.0

    def held(self, step: float) -> float:
        """Return the seconds of this slice for which a producer was held up."""
        return min(step, max(self.without, self.late))

    def cause(self, step: float) -> str | None:
        """Return the cause for which producers were held up; None if they were not."""
        if self.held(step) < min(LEAST_HELD, step):
            return None
        if not self.receiving and not self.taken:
            return NOBODY
        if self.receiving and self.withheld >= _HALF * self.receiving:
            return WITHHELD
        if self.late >= _HALF * self.held(step):
            return SLOW
        return WINDOW if self.settled else None


@dataclass(frozen=True)
class Diagnosis:
    """Trouble of one kind at one address."""

    kind: str
    address: str
    clients: Sequence[str]  # clients that cause it, the main one first; empty if no client of the telemetry does
    senders: Sequence[str]  # clients whose messages are concerned
    since: datetime
    until: datetime
    present: bool  # True if the last slice of the telemetry has it
    seconds: float  # time for which a producer was held up; 0 for outcomes
    count: int  # deliveries with the outcome; unsettled deliveries of the first client for stalls
    deliveries: int  # all deliveries to the address meanwhile
    outcomes: Mapping[str, int]
    p99_us: float | None  # time to settlement meanwhile
    capacity: int
    held: Sequence[tuple[datetime, float]]  # share of each slice for which a producer was held up
    p99: Sequence[tuple[datetime, float]]  # seconds to settlement by slice


def by_address(rollups: Rollups, most: int = 20) -> list[Diagnosis]:
    """Return what was wrong, the most urgent first."""
    addresses = _examined(rollups.links)
    if not addresses:
        return []
    clients = _clients(rollups.links, addresses)
    found = [
        one
        for address, slices in _slices(rollups, addresses).items()
        for one in diagnose(address, slices, clients.get(address, []), rollups.step, _last(rollups))
    ]
    return in_order(found)[:most]


def in_order(found: Iterable[Diagnosis]) -> list[Diagnosis]:
    """Sort diagnoses: present ones first, then stalls, then outcomes, each by its extent."""
    return sorted(found, key=lambda one: (not one.present, _RANK[one.kind], -one.seconds, -one.count, one.address))


def diagnose(
    address: str, slices: Sequence[AddressSlice], clients: Sequence[ClientSums], step: float, last: datetime
) -> list[Diagnosis]:
    """Return the diagnoses of one address. slices: in order. step: their length in s. last: start of the last slice."""
    by_kind: dict[str, list[AddressSlice]] = defaultdict(list)
    for each in slices:
        cause = each.cause(step)
        if cause is not None:
            by_kind[cause].append(each)
        for kind, names in ((REJECTED, ("rejected",)), (RETURNED, ("released", "modified"))):
            count = sum(each.outcomes[name] for name in names)
            # Without receivers every delivery comes back: that is the stall, not a second fault.
            if count and cause != NOBODY and count >= LEAST_SHARE * each.deliveries:
                by_kind[kind].append(each)
    found = [_diagnosis(kind, address, slices, of, clients, step, last) for kind, of in by_kind.items()]
    return [one for one in found if one.seconds or one.count >= LEAST_COUNT]


def _diagnosis(
    kind: str,
    address: str,
    slices: Sequence[AddressSlice],
    bad: Sequence[AddressSlice],
    clients: Sequence[ClientSums],
    step: float,
    last: datetime,
) -> Diagnosis:
    outcomes = {name: sum(each.outcomes[name] for each in bad) for name in _OUTCOMES}
    stalled = kind in (*STALLS, WINDOW)
    causes = _causes(kind, clients)
    senders = sorted((each for each in clients if each.direction == "in"), key=lambda each: -each.without_seconds)
    names = {REJECTED: ("rejected",), RETURNED: ("released", "modified")}.get(kind, ())
    settled: dict[int, int] = defaultdict(int)
    for each in bad:
        for bucket, count in each.settled.items():
            settled[bucket] += count
    return Diagnosis(
        kind=kind,
        address=address,
        clients=[each.client for each in causes],
        senders=[each.client for each in senders],
        since=bad[0].start,
        until=bad[-1].start + timedelta(seconds=step),
        # A minute at the end of the telemetry may be cut short.
        present=bad[-1].start >= last - timedelta(seconds=step),
        seconds=sum(each.held(step) for each in bad) if stalled else 0.0,
        count=(causes[0].unsettled if causes else 0) if stalled else sum(outcomes[name] for name in names),
        deliveries=sum(each.deliveries for each in bad),
        outcomes=outcomes,
        p99_us=percentile(settled, 99),
        capacity=max(each.capacity for each in bad),
        held=[(each.start, each.held(step) / step) for each in slices],
        p99=[(each.start, (percentile(each.settled, 99) or 0.0) / 1e6) for each in slices],
    )


def _causes(kind: str, clients: Sequence[ClientSums]) -> list[ClientSums]:
    """Return the clients that cause trouble of a kind, the first most."""

    def extent(each: ClientSums) -> float:
        if kind == WITHHELD:
            return each.without_seconds
        if kind == REJECTED:
            return each.outcomes["rejected"]
        if kind == RETURNED:
            return each.outcomes["released"] + each.outcomes["modified"]
        return each.unsettled if kind in (SLOW, WINDOW) else 0

    found = [each for each in clients if each.direction == "out" and extent(each)]
    return sorted(found, key=lambda each: (-extent(each), each.client))


def _examined(links: "DataFrame") -> list[str]:
    """Return the addresses at which producers waited longest, or most deliveries were late or not accepted."""
    from pyspark.sql import functions as f

    sums = (
        links.where("dir = 'in' and address is not null")
        .groupBy("address")
        .agg(
            f.sum("zero_credit_ms").alias("without"),
            f.sum("delayed_1s").alias("late"),
            f.sum(f.col("rejected") + f.col("released") + f.col("modified")).alias("refused"),
        )
    )
    found: dict[str, None] = {}
    for measure, least in (("without", LEAST_HELD * 1000), ("late", LEAST_COUNT), ("refused", LEAST_COUNT)):
        rows = sums.where(f"{measure} >= {least}").orderBy(f.desc(measure), "address").limit(_MOST_ADDRESSES)
        found.update(dict.fromkeys(row[0] for row in rows.collect()))
    return list(found)


def _clients(links: "DataFrame", addresses: Sequence[str]) -> dict[str, list[ClientSums]]:
    from pyspark.sql import functions as f

    rows = (
        links.where(f.col("address").isin(*addresses))
        .groupBy("address", "client", "dir")
        .agg(
            f.sum("deliveries").alias("deliveries"),
            *(f.sum(name) for name in _OUTCOMES),
            f.sum("zero_credit_ms"),
            f.max("unsettled_peak"),
        )
        .orderBy(f.desc("deliveries"), "address", "client", "dir")
        .limit(_MOST_CLIENTS)
    )
    found: dict[str, list[ClientSums]] = defaultdict(list)
    for address, client, direction, deliveries, rejected, released, modified, without, unsettled in rows.collect():
        outcomes = dict(zip(_OUTCOMES, (rejected or 0, released or 0, modified or 0), strict=True))
        found[address].append(
            ClientSums(client or "?", direction, deliveries or 0, outcomes, (without or 0) / 1000, unsettled or 0)
        )
    return found


def _slices(rollups: Rollups, addresses: Sequence[str]) -> dict[str, list[AddressSlice]]:
    from pyspark.sql import functions as f

    chosen = f.col("address").isin(*addresses)
    share = f.col("without") / f.greatest(f.col("linked"), f.lit(1))
    rows = (
        rollups.links.where(chosen)
        .groupBy("address", "hour", "dir", "router", "client")
        .agg(
            f.sum("zero_credit_ms").alias("without"),
            f.sum("link_ms").alias("linked"),
            f.sum(f.col("accepted") + f.col("presettled")).alias("taken"),
            *(f.sum(name).alias(name) for name in ("deliveries", *_OUTCOMES)),
            f.max("capacity").alias("capacity"),
            f.max("unsettled_peak").alias("unsettled"),
        )
        .groupBy("address", "hour", "dir")
        .agg(
            f.max(share),
            *(f.sum(name) for name in ("without", "linked", "taken", "deliveries", *_OUTCOMES)),
            f.max("capacity"),
            f.max("unsettled"),
        )
        .orderBy("address", "hour")
        .collect()
    )
    found: dict[tuple[str, datetime], AddressSlice] = {}
    for address, hour, direction, worst, without, linked, taken, deliveries, *outcomes, capacity, unsettled in rows:
        one = found.setdefault((address, hour), AddressSlice(collected_to_utc(hour)))
        if direction == "in":
            one.without, one.producing = min(1.0, worst or 0.0) * rollups.step, (linked or 0) / 1000
            one.taken, one.deliveries = taken or 0, deliveries or 0
            one.capacity, one.unsettled = capacity or 0, unsettled or 0
            one.outcomes = dict(zip(_OUTCOMES, (count or 0 for count in outcomes), strict=True))
        else:
            one.receiving, one.withheld = (linked or 0) / 1000, (without or 0) / 1000
    sums = rollups.settles.where(chosen).groupBy("address", "hour", "bucket").sum("count").collect()
    for address, hour, bucket, count in sums:
        if (address, hour) in found:
            found[address, hour].settled[bucket] = count
    by_name: dict[str, list[AddressSlice]] = defaultdict(list)
    for (address, _), one in found.items():
        by_name[address].append(one)
    return by_name


def _last(rollups: Rollups) -> datetime:
    """Return the start of the last hour or minute with telemetry."""
    from pyspark.sql import functions as f

    return collected_to_utc(rollups.workers.agg(f.max("hour")).collect()[0][0])
