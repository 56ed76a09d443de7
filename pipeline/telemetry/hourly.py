"""Sums of an hour, which Arrow makes of the files of telemetry in the tasks of Spark.

Only these sums become rows of Spark, a few of a thousand: of its own it needs about ten times as long for each row.
Nothing here imports Spark, so that a task starts soon.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.errors import FileError
from router.telemetry.schema import HISTOGRAM, INT, LONG, TABLES, TEXT, TIME

MOST: Final = 1 << 18  # rows that are summed at once: some 100 MB of links
_HOUR: Final = 3_600_000_000  # microseconds
DOUBLE: Final = "double"
_TYPES: Final[Mapping[str, pa.DataType]] = {
    INT: pa.int32(),
    LONG: pa.int64(),
    DOUBLE: pa.float64(),
    TEXT: pa.string(),
    TIME: pa.timestamp("us", tz="UTC"),
    HISTOGRAM: pa.map_(pa.int32(), pa.int64()),
}
_STARTS: Final = "interval_start"


class Part(NamedTuple):
    """Files of one router that one task reads."""

    router: str
    paths: Sequence[str]


class Period(NamedTuple):
    """Microseconds since the epoch; the end is not in it."""

    start: int
    end: int


@dataclass(frozen=True)
class Hourly:
    """What is summed: rows of one table, to a row for each hour, router and value of the keys."""

    table: str
    reads: tuple[str, ...]  # columns, beside the time
    keys: Mapping[str, str]  # and their types
    sums: tuple[str, ...]
    peaks: Mapping[str, str] = field(default_factory=dict)  # whose largest values are kept
    #: Makes the above of what was read, where they are no columns of the table.
    derive: Callable[[pa.Table], pa.Table] | None = None

    @property
    def columns(self) -> dict[str, str]:
        """Of the result."""
        keys = {"hour": TIME, "router": TEXT, **self.keys}
        return {**keys, **dict.fromkeys(self.sums, LONG), **self.peaks}

    def of_files(self, parts: Iterable[Part], period: Period) -> Iterator[pa.RecordBatch]:
        """Sums of the rows that begin in the period. One key may come more than once. Raises FileError."""
        return self._summed((table for part in parts for table in self._read(part)), period)

    def of_rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Sums of rows that Spark has read: the time, the router, and `reads`."""
        return self._summed(map(pa.Table.from_batches, ([batch] for batch in batches)), None)

    def _read(self, part: Part) -> Iterator[pa.Table]:
        kinds = {_STARTS: TIME, **{name: TABLES[self.table][name] for name in self.reads}}
        texts = [name for name, kind in kinds.items() if kind == TEXT]
        router = pa.array([part.router])
        for path in part.paths:
            try:
                metadata = pq.read_metadata(path)
                encoded = [name for name in texts if name in metadata.schema.names]
                with pq.ParquetFile(path, metadata=metadata, read_dictionary=encoded) as file:
                    found = set(file.schema_arrow.names)
                    there = [name for name in kinds if name in found]
                    for batch in file.iter_batches(MOST, columns=there, use_threads=False):
                        columns = {
                            name: _column(batch, name if name in found else None, kind) for name, kind in kinds.items()
                        }
                        columns["router"] = pa.DictionaryArray.from_arrays(_zeros(batch.num_rows), router)
                        yield pa.table(columns)
            except FileNotFoundError:
                raise FileError(f"{path} was deleted or merged while it was to be read: start again") from None
            except (OSError, pa.ArrowException) as error:
                raise FileError(f"{path} cannot be read: {error}") from error

    def _summed(self, tables: Iterable[pa.Table], period: Period | None) -> Iterator[pa.RecordBatch]:
        waiting: list[pa.Table] = []
        rows = 0
        for table in tables:
            waiting.append(table if period is None else _within(table, period))
            rows += table.num_rows
            if rows >= MOST:
                yield from self._sum(waiting)
                waiting, rows = [], 0
        if waiting:
            yield from self._sum(waiting)

    def _sum(self, tables: list[pa.Table]) -> list[pa.RecordBatch]:
        table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
        starts = table.column(_STARTS).cast(pa.int64())
        hours = pc.multiply(pc.divide(starts, _HOUR), _HOUR)
        table = table.append_column("hour", hours)
        if self.derive is not None:
            table = self.derive(table)
        columns = {name: table.column(name) for name in self.columns}
        # Numbers are grouped several times as fast as texts.
        texts = {name: _encoded(columns[name]) for name, kind in self.columns.items() if kind == TEXT}
        columns.update((name, column.indices) for name, column in texts.items())
        wanted = [(name, "sum") for name in self.sums] + [(name, "max") for name in self.peaks]
        keys = ["hour", "router", *self.keys]
        groups = pa.table(columns).group_by(keys, use_threads=False).aggregate(wanted)
        found = {}
        for name, kind in self.columns.items():
            suffix = "_sum" if name in self.sums else "_max" if name in self.peaks else ""
            column = groups.column(name + suffix)
            found[name] = texts[name].dictionary.take(column) if name in texts else column.cast(_TYPES[kind])
        batches: list[pa.RecordBatch] = pa.table(found).combine_chunks().to_batches()
        return batches


def _zeros(rows: int) -> pa.Array:
    return pa.nulls(rows, pa.int32()).fill_null(0)


def _column(batch: pa.RecordBatch, name: str | None, kind: str) -> pa.Array:
    """As it is now; files of other versions may lack it: None."""
    if name is None:
        return pa.nulls(batch.num_rows, pa.dictionary(pa.int32(), pa.string()) if kind == TEXT else _TYPES[kind])
    column = batch.column(name)
    return column if kind == TEXT or column.type == _TYPES[kind] else column.cast(_TYPES[kind])


def _encoded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    whole = column.combine_chunks()
    return whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()


def _within(table: pa.Table, period: Period) -> pa.Table:
    starts = table.column(_STARTS).cast(pa.int64())
    least, most = pc.min_max(starts).values()
    if not starts.null_count and least.is_valid and period.start <= least.as_py() and most.as_py() < period.end:
        return table
    return table.filter(pc.and_(pc.greater_equal(starts, period.start), pc.less(starts, period.end)))


def exploded(table: pa.Table, column: str, names: tuple[str, str]) -> pa.Table:
    """A row for each entry of a map, with its key and value under these names; nothing for null and empty maps."""
    maps: Any = table.column(column).combine_chunks()
    offsets = maps.offsets
    first, last = (offsets[0].as_py(), offsets[-1].as_py()) if len(maps) else (0, 0)
    sizes = pc.subtract(offsets[1:], offsets[:-1])
    rows = _repeated(sizes)
    found = table.drop_columns([column]).take(rows)
    for name, values in zip(names, (maps.keys, maps.items), strict=True):
        found = found.append_column(name, values[first:last])
    return found


def _repeated(sizes: pa.Array) -> pa.Array:
    """0 so many times as the first one says, and so on."""
    import numpy as np

    counts = sizes.to_numpy(zero_copy_only=False)
    return pa.array(np.repeat(np.arange(len(counts)), counts))
