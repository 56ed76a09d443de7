"""Function for `foreachBatch` that appends each batch of a query to a table, exactly once."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sluice.pipeline.errors import PipelineOptionError
from sluice.pipeline.tables.files import write_files
from sluice.pipeline.tables.keys import new_rows
from sluice.pipeline.tables.table import TargetTable, TargetTableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Local property in which Spark has the id of the query: that of its checkpoint, the same after a restart.
QUERY_ID = "sql.streaming.queryId"
#: Batches whose files share a folder.
BATCHES_OF_FOLDER = 1000
#: Files after which small files are merged.
COMPACT_AFTER = 100

log = logging.getLogger(__name__)


class TableBatchWriter:
    """Writer of the batches of one query."""

    def __init__(self, table: TargetTable, unique: Sequence[str], columns: Sequence[str]) -> None:
        missing = [name for name in unique if name not in columns]
        if missing:
            raise PipelineOptionError(f"--unique: there is no column {missing[0]!r}; there are {', '.join(columns)}")
        self._table = table
        self._unique = list(unique)
        self._files = 0  # files since the last compaction
        #: Rows that were not written because the table had their keys.
        self.repeated = 0

    def __call__(self, frame: "DataFrame", batch: int) -> None:
        query = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        if not query:
            raise TargetTableError("Spark does not tell the id of the query")
        if self._table.last_batch(query) >= batch:  # committed before the query was interrupted
            return
        with self._rows(frame) as rows:
            files = write_files(rows, self._table, f"{query}/{batch // BATCHES_OF_FOLDER:06}/{batch:09}")
            self._table.append(query, batch, files)
        self._files += len(files)
        if self._files >= COMPACT_AFTER:
            self._files = 0
            self._compact()

    @contextmanager
    def _rows(self, frame: "DataFrame") -> "Iterator[DataFrame]":
        if not self._unique:
            yield frame
            return
        frame.persist()
        try:
            rows, repeated = new_rows(frame, self._unique, self._table)
            self.repeated += repeated
            yield rows
        finally:
            frame.unpersist()

    def _compact(self) -> None:
        try:
            merged = self._table.compact()
        except TargetTableError as error:
            log.warning("small files are not merged: %s", error)
        else:
            log.info("table %s: %d small files merged", self._table.name, merged)
