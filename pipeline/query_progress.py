"""Progress of a query of Spark: sums over its batches."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from sluice.pipeline.errors import PipelineError
from sluice.pipeline.payloads import ERROR, RETRIES, RETRY_ERROR

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

#: Name of the observation in Spark's progress with the number of payloads that cannot be decoded.
OBSERVED = "payloads"
#: Name of the observation with the repeated requests to the schema registry.
REGISTRY_OBSERVED = "schemaRegistry"


class RowFilter(Protocol):
    """Writer of batches that leaves out rows."""

    #: Rows that were left out because the table had their keys.
    repeated: int


class QueryProgress:
    """Sums over the batches of a query, since its process began.

    rows: the writer of the batches, if it leaves out any.
    """

    def __init__(self, rows: RowFilter | None = None) -> None:
        self._rows = rows
        self._added: set[tuple[int, str]] = set()  # (number, start) of the batches in Spark's history
        self.batches = 0  # with messages
        self.read = 0  # messages
        self.dropped = 0  # messages that Spark dropped as repetitions
        self.late = 0  # messages that a watermark dropped
        self.undecoded = 0  # messages whose payload could not be decoded
        self.registry_retries = 0  # repeated requests to the schema registry
        self.registry_error = ""  # why the last one was repeated, after its time

    @property
    def repeated(self) -> int:
        """Messages that are not in the table because it has them already."""
        return self.dropped + (self._rows.repeated if self._rows else 0)

    def add(self, batches: "Iterable[StreamingQueryProgress]") -> "list[StreamingQueryProgress]":
        """Add batches; return those that are new and have messages. Raises PipelineError if a watermark dropped any."""
        # A trigger without messages has the number of the next batch.
        by_key = {(each.batchId, each.timestamp): each for each in batches}
        fresh = [each for key, each in by_key.items() if key not in self._added]
        self._added = set(by_key)
        for each in fresh:
            self.read += each.numInputRows
            self.batches += each.numInputRows > 0
            for state in each.stateOperators:
                self.late += state.numRowsDroppedByWatermark
                self.dropped += int(state.customMetrics.get("numDroppedDuplicateRows", 0))
            self.undecoded += undecoded(each)
            retries, error = registry_retries(each)
            self.registry_retries += retries
            self.registry_error = max(self.registry_error, error)
        if self.late:
            raise PipelineError(
                f"{self.late} messages are missing in the table: they came after the query's watermark. They are still "
                "in the landing folder; write them with a new checkpoint and a new table"
            )
        return [each for each in fresh if each.numInputRows]


def undecoded(batch: "StreamingQueryProgress") -> int:
    """Return the number of messages of a batch whose payload could not be decoded."""
    return int(batch.observedMetrics[OBSERVED][ERROR]) if OBSERVED in batch.observedMetrics else 0


def registry_retries(batch: "StreamingQueryProgress") -> tuple[int, str]:
    """Return the number of repeated requests to the schema registry in a batch, and the last reason ("" for none)."""
    row = batch.observedMetrics.get(REGISTRY_OBSERVED)
    return (int(row[RETRIES] or 0), str(row[RETRY_ERROR] or "")) if row is not None else (0, "")
