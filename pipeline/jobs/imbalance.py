"""Balance of load between workers, and the clients behind an imbalance."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.jobs.rollup import Rollups


@dataclass(frozen=True)
class Imbalance:
    """Balance of one router over the period."""

    router: str
    cpu_seconds: dict[int, float]  # by worker
    deliveries: dict[int, int]  # incoming deliveries, by worker
    clients: list[tuple[str, int]]  # the busiest clients of the busiest worker, and their deliveries

    @property
    def skew(self) -> float:
        """Load of the busiest worker relative to the average; 1.0 is even."""
        return skew(list(self.cpu_seconds.values()))

    @property
    def gini(self) -> float:
        """Gini coefficient: 0.0 is even; towards 1.0, one worker does all."""
        return gini(list(self.cpu_seconds.values()))


def skew(loads: Sequence[float]) -> float:
    """Return the maximum divided by the mean."""
    whole = sum(loads)
    return max(loads) * len(loads) / whole if whole else 1.0


def gini(loads: Sequence[float]) -> float:
    """Return the Gini coefficient."""
    whole, count = sum(loads), len(loads)
    if not whole:
        return 0.0
    ranked = sum(rank * load for rank, load in enumerate(sorted(loads), 1))
    return 2 * ranked / (count * whole) - (count + 1) / count


def by_router(rollups: Rollups, most: int = 5) -> list[Imbalance]:
    """Return the figures of all routers, by name."""
    from pyspark.sql import functions as f

    cpu: dict[str, dict[int, float]] = {}
    ingress: dict[str, dict[int, int]] = {}
    sums = rollups.workers.groupBy("router", "worker").agg(f.sum("cpu_us"), f.sum("ingress"))
    for router, worker, used, count in sums.orderBy("router", "worker").collect():
        cpu.setdefault(router, {})[worker] = used / 1e6
        ingress.setdefault(router, {})[worker] = count
    busiest = {router: max(loads, key=lambda worker: loads[worker]) for router, loads in cpu.items()}
    clients: dict[str, list[tuple[str, int]]] = {router: [] for router in cpu}
    rows = rollups.flows.select("router", "worker_in", f.col("client_in").alias("client"), "deliveries").unionByName(
        rollups.flows.select("router", f.col("worker_out").alias("worker_in"), f.col("client_out").alias("client"),
                             "deliveries")
    )  # fmt: skip
    rows = rows.where("client is not null").groupBy("router", "worker_in", "client").agg(f.sum("deliveries").alias("n"))
    for router, worker, client, count in rows.orderBy(f.desc("n"), "client").collect():
        if busiest.get(router) == worker and len(clients[router]) < most:
            clients[router].append((client, count))
    return [Imbalance(router, cpu[router], ingress[router], clients[router]) for router in sorted(cpu)]
