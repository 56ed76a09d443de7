"""Traffic matrices: who sends how much to whom."""

from dataclasses import dataclass, field
from typing import Final

from pipeline.jobs.rollup import Rollups

OTHERS: Final = "(others)"
SEVERAL: Final = "(several)"  # producers of one address on one worker: the counters do not tell them apart


@dataclass(frozen=True)
class Matrix:
    """Deliveries by pair, from a row's name to a column's."""

    title: str
    cells: dict[tuple[str, str], int] = field(default_factory=dict)
    ordered: bool = False  # by name, not by deliveries

    @property
    def names(self) -> list[str]:
        """All names, those with the most deliveries first."""
        sums: dict[str, int] = {}
        for (source, target), count in self.cells.items():
            for name in {source, target}:
                sums[name] = sums.get(name, 0) + count
        if self.ordered:
            return sorted(sums)
        return sorted(sums, key=lambda name: (name in (OTHERS, SEVERAL), -sums[name], name))

    @property
    def total(self) -> int:
        """All deliveries."""
        return sum(self.cells.values())


def worker_matrices(rollups: Rollups) -> dict[str, Matrix]:
    """By router: deliveries from the worker of their producer to that of their consumer."""
    found: dict[str, Matrix] = {}
    rows = rollups.flows.groupBy("router", "worker_in", "worker_out").sum("deliveries").collect()
    for router, source, target, count in rows:
        matrix = found.setdefault(router, Matrix(f"Workers of {router}", ordered=True))
        matrix.cells[_worker(source), _worker(target)] = count
    return found


def _worker(index: int) -> str:
    return f"w{index:02}" if index > 9 else f"w{index}"


def crossing(matrix: Matrix) -> float:
    """The share of deliveries that went from one worker to another."""
    across = sum(count for (source, target), count in matrix.cells.items() if source != target)
    return across / matrix.total if matrix.total else 0.0


def router_matrix(rollups: Rollups) -> Matrix:
    """Deliveries from one router to a neighbour, as the sender counted them; those that stay are in the diagonal."""
    from pyspark.sql import functions as f

    matrix = Matrix("Routers")
    for router, count in rollups.workers.groupBy("router").agg(f.sum("ingress")).collect():
        matrix.cells[router, router] = count
    sent = rollups.telemetry.table("fact_internode").groupBy("router", "peer").agg(f.sum("sent"))
    for router, peer, count in sent.collect():
        if count:
            matrix.cells[router, peer] = count
            stays = matrix.cells.get((router, router), 0)
            matrix.cells[router, router] = max(0, stays - count)
    return matrix


def client_matrix(rollups: Rollups, most: int = 20) -> Matrix:
    """Deliveries between clients: those of the `most` busiest pairs, and all others together.

    Where several producers of one worker sent to an address, their part is not known: `SEVERAL`.
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
    matrix = Matrix("Clients")
    for source, target, count in rows.limit(most).collect():
        matrix.cells[source, target] = count
    whole = rows.agg(f.sum("deliveries")).collect()[0][0] or 0
    if whole > matrix.total:
        matrix.cells[OTHERS, OTHERS] = whole - matrix.total
    return matrix
