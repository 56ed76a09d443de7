"""Metrics of a query of Spark, for Prometheus."""

from collections.abc import Iterator

from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from sluice.pipeline.query_progress import QueryProgress


class QueryCollector(Collector):
    """Collector for prometheus_client. It is called from another thread and only reads numbers."""

    def __init__(self, progress: QueryProgress) -> None:
        self._progress = progress

    def collect(self) -> Iterator[Metric]:
        progress = self._progress
        for name, text, value in (
            ("batches", "Batches with messages.", progress.batches),
            ("messages", "Messages that were read.", progress.read),
            ("repeated", "Messages that were left out because the table has them already.", progress.repeated),
            ("undecoded", "Messages whose payload could not be decoded.", progress.undecoded),
            ("registry_retries", "Requests to the schema registry that were repeated.", progress.registry_retries),
        ):
            yield CounterMetricFamily(f"sluice_query_{name}", text, value=value)
