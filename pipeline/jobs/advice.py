"""Advice from the figures of a period: shown by the report and written by `recommend`."""

from datetime import datetime
from typing import Any, Final, NamedTuple

from pipeline import recommend
from pipeline.jobs import capacity, demand, imbalance, latency, population, starvation
from pipeline.jobs.rollup import Rollups
from pipeline.telemetry.reader import TelemetryTables

LEAST_WITHOUT: Final = 60.0  # seconds without credit; less is not reported


def placement_rules(rollups: Rollups) -> list[dict[str, Any]]:
    """Return placements for all routers."""
    from pyspark.sql import functions as f

    workers: dict[str, int] = dict(rollups.workers.groupBy("router").agg(f.max("worker") + 1).collect())
    keys = ("listener_in", "host_in", "listener_out", "host_out", "worker_in", "worker_out")
    flows: dict[str, list[recommend.TrafficFlow]] = {}
    for router, *names, worker_in, worker_out, count in (
        rollups.flows.groupBy("router", *keys).agg(f.sum("deliveries")).collect()
    ):
        listener_in, host_in, listener_out, host_out = names
        source = (listener_in, host_in) if listener_in and host_in else None
        target = (listener_out, host_out) if listener_out and host_out else None
        flows.setdefault(router, []).append(recommend.TrafficFlow(source, target, worker_in, worker_out, count))
    found = []
    for router in sorted(flows):
        found += recommend.placement_plan(router, flows[router], workers.get(router, 1))
    return found


class AdviceFigures(NamedTuple):
    """Figures shared by advice and report. Each is the result of several Spark jobs."""

    addresses: list[latency.AddressFigures]
    imbalances: list[imbalance.Imbalance]
    capacities: list[capacity.RouterCapacity]

    @classmethod
    def of(cls, rollups: Rollups) -> "AdviceFigures":
        """Run the jobs."""
        return cls(latency.by_address(rollups), imbalance.by_router(rollups), capacity.by_router(rollups))


def advice(rollups: Rollups, figures: AdviceFigures | None = None) -> list[dict[str, Any]]:
    """Return advice for people, the most urgent first. figures: the result of AdviceFigures.of, if already computed."""
    figures = figures or AdviceFigures.of(rollups)
    found = _consumer_advice(rollups)
    for address in figures.addresses:
        bad = address.outcomes["rejected"] + address.outcomes["released"] + address.outcomes["modified"]
        if address.deliveries and bad / address.deliveries > recommend.REFUSED_SHARE:
            text = f"{bad / address.deliveries:.1%} of {address.deliveries:,} deliveries were refused or given back."
            found.append({"kind": "outcomes", "subject": address.address, "text": text})
    found += _link_capacity_advice(rollups)
    for router in figures.capacities:
        if router.full_on is not None:
            text = f"The busiest worker uses {capacity.FULL:.0%} of a core on {_day(router.full_on)} if it goes on so."
            found.append({"kind": "capacity", "router": router.router, "subject": router.router, "text": text})
    for router_load in figures.imbalances:
        if len(router_load.cpu_seconds) > 1 and router_load.skew > recommend.SKEWED:
            text = f"The busiest worker does {router_load.skew:.1f} times the average."
            found.append(
                {"kind": "imbalance", "router": router_load.router, "subject": router_load.router, "text": text}
            )
    return found + policy_limits(rollups.telemetry)


def _consumer_advice(rollups: Rollups) -> list[dict[str, Any]]:
    """Advise on consumers that withhold credit, with the number of consumers needed."""
    found = []
    demands = demand.by_address(rollups)
    for one in starvation.starved_consumers(rollups, most=5, least=LEAST_WITHOUT):
        waited = f"{one.undelivered:,} deliveries waited" + (f", {one.stuck:,} were stuck" if one.stuck else "")
        text = (
            f"{one.client} gave no credit for {one.address} in {one.share:.0%} of the time "
            f"({one.without_seconds / 60:,.0f} min); {waited}. "
        )
        advised: dict[str, Any] = {"kind": "consumer", "router": one.router, "subject": one.address}
        wanted = demands.get((one.router, one.address))
        if wanted is not None and wanted.needed > wanted.consumers:
            text += (
                f"A consumer took {wanted.each:,.1f} deliveries/s while it had none, and producers would send "
                f"{wanted.offered:,.1f}/s: {wanted.needed:,} consumers are needed, "
                f"{wanted.needed - wanted.consumers:,} more; or faster ones."
            )
            advised["evidence"] = {
                "rate": round(wanted.rate, 3),
                "held_back": round(wanted.held_back, 4),
                "consumers": wanted.consumers,
                "rate_of_one": round(wanted.each, 3),
            }
            advised["gain"] = {"rate": round(wanted.offered, 3), "consumers": wanted.needed}
        else:
            text += "Make it faster, or add a consumer."
        found.append({**advised, "text": text})
    return found


def _link_capacity_advice(rollups: Rollups) -> list[dict[str, Any]]:
    """Advise on links of producers whose capacity held them back, by Little's law."""
    found = []
    for one in demand.held_back_producers(rollups, LEAST_WITHOUT):
        wanted = recommend.capacity_advice(one.rate, one.settle_us, one.capacity)
        if wanted is not None:
            text = (
                f"{one.client} had no credit for {one.without_seconds / 60:,.0f} min. {one.rate:,.0f} deliveries/s of "
                f"a link that take {one.settle_us / 1e3:,.1f} ms need a linkCapacity of {wanted:,}; it is "
                f"{one.capacity:,}."
            )
            found.append({
                "kind": "linkCapacity",
                "router": one.router,
                "subject": one.address,
                "text": text,
                "evidence": {
                    "client": one.client,
                    "rate": round(one.rate, 3),
                    "settle_us": round(one.settle_us, 1),
                    "capacity": one.capacity,
                },
                "gain": {"capacity": wanted, "rate": round(wanted / (one.settle_us / 1e6), 3)},
            })  # fmt: skip
    return found


def policy_limits(telemetry: TelemetryTables) -> list[dict[str, Any]]:
    """Advise on connection limits for each user, by vhost, so that a runaway client is stopped before it affects
    others.
    """
    present = population.limits(telemetry)
    found = []
    seen = set()
    for peak in population.peaks(telemetry):  # the first of a vhost is the highest
        place = peak.router, peak.vhost
        if place in seen:
            continue
        seen.add(place)
        limit = present.get(place)
        wanted = recommend.connections_advice(peak.connections, limit)
        if wanted is not None:
            text = (
                f"{peak.user} had {peak.connections:,} connections open at once, more than any other user of vhost "
                f"{peak.vhost or '-'}. maxConnectionsPerUser of {wanted:,} leaves room; "
                f"it {'is not set' if limit is None else f'is {limit:,}'}."
            )
            found.append(
                {"kind": "policy", "router": peak.router, "subject": f"vhost {peak.vhost or '-'}", "text": text}
            )
    return found


def _day(when: datetime) -> str:
    return f"{when:%Y-%m-%d}"
