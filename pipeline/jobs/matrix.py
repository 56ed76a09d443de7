"""Traffic matrices between workers, routers and clients."""

from dataclasses import dataclass, field
from typing import Final

from pipeline.jobs.rollup import Rollups

OTHERS: Final = "(others)"
SEVERAL: Final = "(several)"  # producers of one address on one worker, which the counters do not distinguish


@dataclass(frozen=True)
class TrafficMatrix:
    """Deliveries by pair, from a row's name to a column's."""

    title: str
    cells: dict[tuple[str, str], int] = field(default_factory=dict)
    ordered: bool = False  # names sorted alphabetically, not by deliveries

    @property
    def names(self) -> list[str]:
        """Names of the matrix, those with the most deliveries first unless `ordered`."""
        sums: dict[str, int] = {}
        for (source, target), count in self.cells.items():
            for name in {source, target}:
                sums[name] = sums.get(name, 0) + count
        if self.ordered:
            return sorted(sums)
        return sorted(sums, key=lambda name: (name in (OTHERS, SEVERAL), -sums[name], name))

    @property
    def total(self) -> int:
        """Number of all deliveries."""
        return sum(self.cells.values())


def worker_matrices(rollups: Rollups) -> dict[str, TrafficMatrix]:
    """Return, by router, deliveries from the producer's worker to the consumer's."""
    found: dict[str, TrafficMatrix] = {}
    rows = rollups.flows.groupBy("router", "worker_in", "worker_out").sum("deliveries").collect()
    for router, source, target, count in rows:
        matrix = found.setdefault(router, TrafficMatrix(f"Workers of {router}", ordered=True))
        matrix.cells[_worker(source), _worker(target)] = count
    return found


def _worker(index: int) -> str:
    return f"w{index:02}" if index > 9 else f"w{index}"


def crossing(matrix: TrafficMatrix) -> float:
    """Return the share of deliveries that went from one worker to another."""
    across = sum(count for (source, target), count in matrix.cells.items() if source != target)
    return across / matrix.total if matrix.total else 0.0


def router_matrix(rollups: Rollups) -> TrafficMatrix:
    """Return deliveries from router to neighbour, as the sender counted them. The diagonal has those that stay."""
    from pyspark.sql import functions as f

    matrix = TrafficMatrix("Routers")
    for router, count in rollups.workers.groupBy("router").agg(f.sum("ingress")).collect():
        matrix.cells[router, router] = count
    sent = rollups.telemetry.table("fact_internode").groupBy("router", "peer").agg(f.sum("sent"))
    for router, peer, count in sent.collect():
        if count:
            matrix.cells[router, peer] = count
            stays = matrix.cells.get((router, router), 0)
            matrix.cells[router, router] = max(0, stays - count)
    return matrix


def client_matrix(rollups: Rollups, most: int = 20) -> TrafficMatrix:
    """Return deliveries between clients: the `most` busiest pairs, and all others together.

    If several producers of one worker sent to an address, the share of each is unknown. Their source is `SEVERAL`.
    """
    from pyspark.sql import functions as f

    rows = (
        rollups.flows.groupBy(
            f.coalesce("client_in", f.lit(SEVERAL)).alias("source"),
            f.coalesce("client_out", f.lit("?")).alias("target"),
        )
        .agg(f.sum("deliveries").alias("deliveries"))
        .orderBy(f.desc("deliveries"), "source", "target")
    )
    matrix = TrafficMatrix("Clients")
    for source, target, count in rows.limit(most).collect():
        matrix.cells[source, target] = count
    whole = rows.agg(f.sum("deliveries")).collect()[0][0] or 0
    if whole > matrix.total:
        matrix.cells[OTHERS, OTHERS] = whole - matrix.total
    return matrix
