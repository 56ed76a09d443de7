"""Function for `foreachBatch` that appends each batch of a query to a table, exactly once."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from sluice.pipeline.errors import PipelineOptionError
from sluice.pipeline.payloads import ERROR
from sluice.pipeline.tables.files import commit_files, write_files
from sluice.pipeline.tables.keys import LANDED, new_rows
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
    """Writer of the batches of one query.

    unique, window: columns that identify a row, and the greatest distance of copies (keys.py).
    dead_letters: table for the rows whose payload could not be decoded. None: they go to the other rows.
    """

    def __init__(
        self,
        table: TargetTable,
        unique: Sequence[str],
        columns: Sequence[str],
        dead_letters: TargetTable | None = None,
        window: timedelta | None = None,
    ) -> None:
        for option, names in (("--unique", unique), ("--unique-within", () if window is None else (LANDED,))):
            missing = [name for name in names if name not in columns]
            if missing:
                raise PipelineOptionError(
                    f"{option}: there is no column {missing[0]!r}; there are {', '.join(columns)}"
                )
        self._table = table
        self._dead_letters = dead_letters
        self._unique = list(unique)
        self._window = window
        self._files: Counter[str] = Counter()  # files since the last compaction, by the name of the table
        #: Rows that were not written because the table had their keys.
        self.repeated = 0

    def __call__(self, frame: "DataFrame", batch: int) -> None:
        query = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        if not query:
            raise TargetTableError("Spark does not tell the id of the query")
        if self._table.last_batch(query) >= batch:  # committed before the query was interrupted
            return
        if self._dead_letters is None:
            self._append(self._table, frame, query, batch)
            return
        with persisted(frame):
            # The table's number of the batch says that both have it, so the dead letters come first.
            bad = frame.filter(f"{ERROR} is not null")
            if self._dead_letters.last_batch(query) < batch and not bad.isEmpty():
                self._append(self._dead_letters, bad, query, batch)
            self._append(self._table, frame.filter(f"{ERROR} is null"), query, batch)

    def _append(self, table: TargetTable, frame: "DataFrame", query: str, batch: int) -> None:
        """Write the rows of a batch to a table, in one commit."""
        start = f"{query}/{batch // BATCHES_OF_FOLDER:06}/{batch:09}"
        with self._rows(frame, table) as rows:
            files = write_files(rows, table, start)
            commit_files(table, query, batch, start, files)
        self._files[table.name] += len(files)
        if self._files[table.name] >= COMPACT_AFTER:
            self._files[table.name] = 0
            compact(table)

    @contextmanager
    def _rows(self, frame: "DataFrame", table: TargetTable) -> "Iterator[DataFrame]":
        if not self._unique:
            yield frame
            return
        with persisted(frame):
            rows, repeated = new_rows(frame, self._unique, table, self._window)
            self.repeated += repeated
            yield rows


@contextmanager
def persisted(frame: "DataFrame") -> Iterator[None]:
    """Keep the rows of a frame, which several jobs read, so that they are made and counted once."""
    frame.persist()
    try:
        yield
    finally:
        frame.unpersist()


def compact(table: TargetTable) -> None:
    """Merge small files of a table; log a warning if it cannot be done."""
    try:
        merged = table.compact()
    except TargetTableError as error:
        log.warning("small files are not merged: %s", error)
    else:
        log.info("table %s: %d small files merged", table.name, merged)
