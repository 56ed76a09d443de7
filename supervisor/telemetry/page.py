"""Rendering of /metrics: a snapshot as metric families, and families as text, in slices."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from hashlib import blake2s
from typing import Final

from msgspec import Struct
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from sluice.supervisor.telemetry.catalogue import Definition

PIECE: Final = 200  # samples rendered without a pause, which takes about a millisecond
MAX_LABEL: Final = 200  # limit in characters for a label value; longer ones are cut and made unique
_CUT: Final = 160

_TOTAL: Final = "_total"


class DispatchMetric(Struct, frozen=True):
    """Metric of Dispatch: an integer, written without fraction or exponent as in 1.19."""

    definition: Definition
    value: int

    def text(self) -> bytes:
        """Return HELP, TYPE and the value."""
        name, about, kind = self.definition.name, self.definition.about, self.definition.kind
        return f"# HELP {name} {about}\n# TYPE {name} {kind}\n{name} {self.value}\n".encode()


class Families:
    """Samples of a page by metric, in the order of the calls of `open`. Owner: one page."""

    def __init__(self) -> None:
        self.metrics: list[Metric | DispatchMetric] = []

    def whole(self, definition: Definition, value: int) -> None:
        """Add a metric of Dispatch."""
        self.metrics.append(DispatchMetric(definition, value))

    def open(self, definition: Definition) -> "Family":
        """Start a metric, and return the family to add its samples to."""
        name = definition.name
        if definition.kind == "counter":
            name = name.removesuffix(_TOTAL)  # the writer appends the suffix again
        metric = Metric(name, definition.about, definition.kind)
        self.metrics.append(metric)
        return Family(metric, definition)

    def single(self, definition: Definition, value: float) -> None:
        """Add a metric without labels."""
        self.open(definition).add((), value)


class Family:
    """Metric to which samples are added. Owner: its page."""

    __slots__ = ("_labels", "_metric", "_name")

    def __init__(self, metric: Metric, definition: Definition) -> None:
        self._metric = metric
        self._name = definition.name
        self._labels = definition.labels

    def add(self, values: Iterable[str | int], value: float) -> None:
        """Add a sample. values: of the definition's labels, in their order."""
        labels = {name: label(text) for name, text in zip(self._labels, values, strict=True)}
        self._metric.samples.append(Sample(self._name, labels, value))

    def histogram(self, bounds: Iterable[float], counts: Iterable[int], total: float) -> None:
        """Add the samples of a histogram without labels.

        bounds: upper bounds, the last one infinite. counts: number in each bucket. total: sum of all values.
        """
        below = 0
        for bound, count in zip(bounds, counts, strict=True):
            below += count
            text = "+Inf" if bound == float("inf") else repr(bound)
            self._metric.samples.append(Sample(f"{self._name}_bucket", {"le": text}, below))
        self._metric.samples.append(Sample(f"{self._name}_count", {}, below))
        self._metric.samples.append(Sample(f"{self._name}_sum", {}, total))


def label(value: str | int) -> str:
    """Return a label value of at most MAX_LABEL characters. Different texts give different values."""
    text = str(value)
    if len(text) <= MAX_LABEL:
        return text
    return f"{text[:_CUT]}…{blake2s(text.encode(), digest_size=8).hexdigest()}"


class _SingleMetricRegistry:
    """Registry with one metric, as the writer requires."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


async def render(metrics: Iterable[Metric | DispatchMetric], pause: Callable[[], Awaitable[None]]) -> bytes:
    """Return the page as text, format 0.0.4. `pause` is awaited between slices."""
    written: list[bytes] = []
    for metric in metrics:
        if isinstance(metric, DispatchMetric):
            written.append(metric.text())
            continue
        for start in range(0, max(len(metric.samples), 1), PIECE):
            piece = Metric(metric.name, metric.documentation, metric.type)
            piece.samples = metric.samples[start : start + PIECE]
            text = generate_latest(_SingleMetricRegistry(piece))
            written.append(text if start == 0 else text.split(b"\n", 2)[2])  # HELP and TYPE are written already
            if len(piece.samples) == PIECE:
                await pause()
        await pause()
    return b"".join(written)
