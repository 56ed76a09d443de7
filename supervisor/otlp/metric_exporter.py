"""Metrics for a collector: conversion of the samples of /metrics to data points of OpenTelemetry's SDK.

Names, types and labels are those of /metrics, as the specification "Prometheus and OpenMetrics Compatibility" of
OpenTelemetry asks: counters keep their suffix `_total`, and there are no units, which would become a second suffix.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from sluice.router.config.collector_tls import CollectorTls
from sluice.supervisor.otlp.exporter import Exporter

# Name of a sample, labels and value.
Sample = tuple[str, dict[str, str], float]
_Series = tuple[str, tuple[tuple[str, str], ...]]


class MetricFamily(NamedTuple):
    """Metric of a page with its samples. kind: gauge, counter or histogram."""

    name: str
    kind: str
    about: str
    samples: list[Sample]


class MetricPage(NamedTuple):
    """Metrics at a time, in ns since the Unix epoch."""

    time: int
    families: list[MetricFamily]


class MetricExporter(Exporter[MetricPage]):
    """Exporter of metrics. The page that waits is replaced by a later one, whose counters include its own."""

    SUBJECT = "Metrics"
    BATCH = 1
    MOST_WAITING = 1  # pages
    NEWEST = True

    def __init__(self, endpoint: str, tls: CollectorTls, router: str, began: int) -> None:
        """began: start of the router, in ns since the Unix epoch; others as of Exporter. Raises ExportError."""
        super().__init__(endpoint, tls, router)
        self._starts: Final = CounterStarts(began)

    @staticmethod
    def number(item: MetricPage) -> int:
        return sum(
            1 if family.kind == "histogram" else len(family.samples)
            for family in item.families
        )  # fmt: skip

    def _made(self, **options: Any) -> Any:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        return OTLPMetricExporter(**options)

    def _rejected(self) -> Callable[[bytes], int]:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

        return lambda content: ExportMetricsServiceResponse.FromString(content).partial_success.rejected_data_points

    def _send(self, batch: Sequence[MetricPage]) -> bool:
        from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, ResourceMetrics, ScopeMetrics

        (page,) = batch
        self._starts.begin(page.time)
        metrics = [self._converted(family, page.time) for family in page.families if family.samples]
        self._starts.end()
        data = MetricsData([ResourceMetrics(self.resource, [ScopeMetrics(self.scope, metrics, "")], "")])
        return self._exporter.export(data) is MetricExportResult.SUCCESS

    def _converted(self, family: MetricFamily, now: int) -> Any:
        from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Histogram, Metric, Sum

        data: Any
        if family.kind == "histogram":
            data = Histogram([self._histogram(family, now)], AggregationTemporality.CUMULATIVE)
        elif family.kind == "counter":
            data = Sum(self._numbers(family, now), AggregationTemporality.CUMULATIVE, is_monotonic=True)
        else:
            data = Gauge(self._numbers(family, now))
        return Metric(family.name, family.about, "", data)

    def _numbers(self, family: MetricFamily, now: int) -> list[Any]:
        from opentelemetry.sdk.metrics.export import NumberDataPoint

        counts = family.kind == "counter"
        return [
            NumberDataPoint(labels, self._starts.of(name, labels, value) if counts else 0, now, float(value))
            for name, labels, value in family.samples
        ]

    def _histogram(self, family: MetricFamily, now: int) -> Any:
        """Return the only data point of a histogram, whose samples are cumulative over its buckets."""
        from opentelemetry.sdk.metrics.export import HistogramDataPoint

        bounds: list[float] = []
        below: list[int] = [0]
        count, total = 0, 0.0
        for name, labels, value in family.samples:
            if name.endswith("_bucket"):
                bounds.append(float(labels["le"]))
                below.append(int(value))
            elif name.endswith("_count"):
                count = int(value)
            else:
                total = value
        return HistogramDataPoint(
            attributes={},
            start_time_unix_nano=self._starts.of(family.name, {}, count),
            time_unix_nano=now,
            count=count,
            sum=total,
            bucket_counts=[upper - lower for lower, upper in pairwise(below)],
            explicit_bounds=bounds[:-1],  # the last one is infinite
            min=None,  # type: ignore[arg-type] # unknown, as the field of the protocol may be
            max=None,  # type: ignore[arg-type]
        )


class CounterStarts:
    """Start time of each counter: that of the router, or of the page before the one that shows that it fell.

    Counters of a worker's process begin again with its successor. Only counters of the last page are remembered.
    """

    def __init__(self, began: int) -> None:
        """began: start of the router, in ns since the Unix epoch."""
        self._began: Final = began
        self._last: dict[_Series, tuple[float, int]] = {}  # value and start time at the last page
        self._next: dict[_Series, tuple[float, int]] = {}
        self._time = began  # of the last page
        self._now = began

    def begin(self, now: int) -> None:
        """Begin a page. now: its time in ns."""
        self._next, self._now = {}, now

    def of(self, name: str, labels: dict[str, str], value: float) -> int:
        """Return the start time of a counter with this value, in ns."""
        series = name, tuple(labels.items())
        before, start = self._last.get(series, (0.0, self._began))
        if value < before:
            start = self._time
        self._next[series] = value, start
        return start

    def end(self) -> None:
        """End a page."""
        self._last, self._time = self._next, self._now
