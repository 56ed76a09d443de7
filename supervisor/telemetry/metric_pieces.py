"""Metrics of /metrics in pieces, as plain values for another process."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from prometheus_client.metrics_core import Metric

from sluice.router.config.entities import RouterConfig
from sluice.router.ring.region import Region
from sluice.router.stats.sums import AddressCounters
from sluice.supervisor.composition import RouterCore
from sluice.supervisor.telemetry.collect import MetricsCollector
from sluice.supervisor.telemetry.families import ExportCounts, MetricsBuilder
from sluice.supervisor.telemetry.health import Health
from sluice.supervisor.telemetry.page import PIECE, DispatchMetric
from sluice.supervisor.telemetry.usage import Usage
from sluice.supervisor.web.http_counts import HttpCounts

NO_HTTP: Final = HttpCounts({}, {}, 0, 0.0)

# Name, labels and value of a sample.
Sample = tuple[str, dict[str, str], float]
# Name, kind and description of a metric, and samples. Some metrics have several pieces, which follow each other.
Piece = tuple[str, str, str, list[Sample]]


class MetricPieces:
    """Source of pages of metrics. Owner: the export."""

    def __init__(
        self, collector: MetricsCollector, builder: MetricsBuilder, pause: Callable[[], Awaitable[None]]
    ) -> None:
        """pause: awaited between slices."""
        self._collector: Final = collector
        self._builder: Final = builder
        self._pause: Final = pause

    async def page(self) -> AsyncIterator[Piece]:
        """Yield all metrics of the present state."""
        snapshot = await self._collector.collect()
        for metric in self._builder.build(snapshot):
            if isinstance(metric, DispatchMetric):
                about = metric.definition
                yield about.name, about.kind, about.about, [(about.name, {}, metric.value)]
                continue
            name = f"{metric.name}_total" if metric.type == "counter" else metric.name
            for samples in _slices(metric):
                yield name, metric.type, metric.documentation, samples
                await self._pause()


def _slices(metric: Metric) -> list[list[Sample]]:
    """Return the samples of a metric in slices; those of a histogram together."""
    samples = [(each.name, dict(each.labels), float(each.value)) for each in metric.samples]
    if metric.type == "histogram":
        return [samples]
    return [samples[start : start + PIECE] for start in range(0, len(samples), PIECE)]


def make(
    pause: Callable[[], Awaitable[None]], http: Callable[[], HttpCounts | None], router: RouterConfig, version: str,
    core: RouterCore, region: Region, counters: AddressCounters, usage: Usage, health: Health,
    rows_lost: Callable[[], int], exports: Callable[[], ExportCounts],
) -> MetricPieces:  # fmt: skip
    """Create the source with all its parts. http: return the counters of the HTTP service, if there is one."""
    collector = MetricsCollector(core, region, counters, usage, pause)
    builder = MetricsBuilder(
        router, version, core, region, health, lambda: http() or NO_HTTP, rows_lost, exports
    )  # fmt: skip
    return MetricPieces(collector, builder, pause)
