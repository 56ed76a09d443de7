"""Figures of the history: their names, and how a period's value follows from readings.

Names are those of the same attributes in management (`router` rows, GET-WORKERS), where there is one.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from msgspec import Struct


class FigureKind(Enum):
    """Derivation of a period's value."""

    RATE = "rate"  # growth of a counter, per second
    MEAN = "mean"  # mean of a quantity over the readings of the period
    QUANTILE = "quantile"  # time within which a share of the period's deliveries was settled, in seconds


class HistoryFigure(Struct, frozen=True):
    """Figure of the history. `share`: of a quantile."""

    name: str
    kind: FigureKind
    share: float = 0.0


class FigureReading(Struct, frozen=True):
    """Present values. `clock`: seconds of the monotonic clock. `latency`: deliveries by bucket, ever growing.

    `loads`: by worker, the share of a core that it has used since the reading before.
    """

    clock: float
    counters: Mapping[str, float]
    quantities: Mapping[str, float]
    latency: Sequence[int]
    loads: Mapping[int, float]


def _all(kind: FigureKind, *names: str) -> tuple[HistoryFigure, ...]:
    return tuple(HistoryFigure(name, kind) for name in names)


FIGURES: Final = (
    *_all(
        FigureKind.RATE,
        *("deliveriesIngress", "deliveriesEgress", "deliveriesTransit"),
        *("acceptedDeliveries", "rejectedDeliveries", "releasedDeliveries", "modifiedDeliveries"),
        *("presettledDeliveries", "droppedPresettledDeliveries", "deliveriesRedirectedToFallback"),
        *("deliveriesDelayed1Sec", "deliveriesDelayed10Sec"),
        *("connectionsAccepted", "loginsFailed", "policyDenials"),
        *("cpuSeconds", "supervisorCpuSeconds"),  # of all workers together; of the supervisor's process
    ),
    *_all(
        FigureKind.MEAN,
        *("deliveriesStuck", "linksBlocked", "connectionCount", "linkCount", "addrCount", "nodeCount"),
        *("memoryUsage", "bufferedOctets"),
        "busiestWorkerLoad",  # of one core
    ),
    HistoryFigure("latencyP50Seconds", FigureKind.QUANTILE, 0.5),
    HistoryFigure("latencyP90Seconds", FigureKind.QUANTILE, 0.9),
    HistoryFigure("latencyP99Seconds", FigureKind.QUANTILE, 0.99),
)
NAMES: Final = tuple(figure.name for figure in FIGURES)
