"""Parquet files of a batch, written by the tasks of Spark that have its rows.

Each attempt of a task has file names of its own, because another attempt may run at the same time. The files of lost
attempts are never part of the table, and are deleted when the batch is committed.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sluice.pipeline.stores import LandingStore, open_store
from sluice.pipeline.tables.statistics import file_statistics
from sluice.pipeline.tables.table import DataFile, TargetTable
from sluice.router import json_codec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Columns of the result of `FileWriter`, in Spark's DDL.
RESULT = "path string, octets bigint, rows bigint, partition string, statistics string"
#: Size at which a file is complete, before compression; octets.
FILE_OCTETS = 128 << 20
#: Sum of incomplete files of a task at which the largest of them is written; octets.
MEMORY = 256 << 20


class FileWriter:
    """Function for `mapInArrow`: writes the rows of a task to files, and yields a row of RESULT for each file.

    start: the first part of the files' paths in the table's folder, with the batch.
    """

    def __init__(self, table: TargetTable, start: str) -> None:
        self._root = table.folder
        self._start = start
        self._partition_by = list(table.partition_by)
        self._dropped = [] if table.stores_partition_columns else self._partition_by
        self._with_statistics = table.commits_statistics

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = 0 if context is None else context.taskAttemptId()
        self._store = open_store(self._root)
        self._prefix = f"{self._start}-{attempt}"
        self._written = 0
        waiting: dict[tuple[str | None, ...], list[pa.Table]] = {}
        for batch in batches:
            for partition, rows in self._split(pa.Table.from_batches([batch])):
                waiting.setdefault(partition, []).append(rows)
                if _octets(waiting[partition]) >= FILE_OCTETS:
                    yield self._write(partition, waiting.pop(partition))
            while sum(map(_octets, waiting.values())) >= MEMORY:
                largest = max(waiting, key=lambda each: _octets(waiting[each]))
                yield self._write(largest, waiting.pop(largest))
        for partition, tables in waiting.items():
            yield self._write(partition, tables)

    def _split(self, rows: pa.Table) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
        """Yield the rows of each partition, with the texts of its values."""
        if not self._partition_by:
            if rows.num_rows:
                yield (), rows
            return
        for values in rows.select(self._partition_by).group_by(self._partition_by).aggregate([]).to_pylist():
            mask = None
            for name, value in values.items():
                column = rows.column(name)
                found = pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), False)
                mask = found if mask is None else pc.and_(mask, found)
            yield tuple(map(partition_text, values.values())), rows.filter(mask).drop_columns(self._dropped)

    def _write(self, partition: tuple[str | None, ...], tables: list[pa.Table]) -> pa.RecordBatch:
        table = pa.concat_tables(tables)
        table = table.cast(to_stored_schema(table.schema))
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        octets = sink.getvalue()
        path = f"{self._prefix}-{self._written}.parquet"
        self._written += 1
        self._store.publish(path, octets)
        place = json_codec.encode(partition).decode()
        statistics = json_codec.encode(file_statistics(table)).decode() if self._with_statistics else ""
        return pa.RecordBatch.from_pylist(
            [
                {
                    "path": path,
                    "octets": octets.size,
                    "rows": table.num_rows,
                    "partition": place,
                    "statistics": statistics,
                }
            ]
        )


def _octets(tables: list[pa.Table]) -> int:
    return sum(each.nbytes for each in tables)


def partition_text(value: Any) -> str | None:
    """Return the text of a partition value in the metadata of tables."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def to_stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of files: texts and octets with offsets of 32 bits, times in µs, no metadata of Spark."""
    return pa.schema([pa.field(each.name, _stored(each.type)) for each in schema])


def _stored(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz and "UTC")
    if pa.types.is_map(kind):
        return pa.map_(_stored(kind.key_type), _stored(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _stored(each.type)) for each in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_stored(kind.value_type))
    return kind


def to_data_file(row: Mapping[str, Any]) -> DataFile:
    """Return the file of a row of RESULT."""
    return DataFile(**{**row, "partition": tuple(json_codec.decode(row["partition"]))})


def write_files(frame: "DataFrame", table: TargetTable, start: str) -> list[DataFile]:
    """Write the rows of a batch to files whose paths begin with `start`; return them."""
    open_store(table.folder).make_folder(start.rpartition("/")[0])
    rows = frame.mapInArrow(FileWriter(table, start), RESULT).collect()
    return [to_data_file(row.asDict()) for row in rows]


def commit_files(table: TargetTable, query: str, batch: int, start: str, files: Sequence[DataFile]) -> None:
    """Add the files of a batch to the table, and delete those of lost attempts, whose paths begin with `start`, too.

    The table may have the batch already: a commit of an earlier attempt, or of another process, came late. Then nothing
    is deleted, because any of the files may be that commit's. Raises TargetTableError.
    """
    if not table.append(query, batch, files):
        return
    store = open_store(table.folder)
    for path in {*_existing(store, start)} - {each.path for each in files}:
        store.delete(path)


def _existing(store: LandingStore, start: str) -> list[str]:
    folder = start.rpartition("/")[0]
    return [f"{folder}/{name}" for name, _ in store.files(folder) if f"{folder}/{name}".startswith(f"{start}-")]
