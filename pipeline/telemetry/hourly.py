"""Sums by hour or minute that Arrow computes from telemetry files in Spark's tasks.

Spark only moves these sums, a few out of a thousand rows: Spark itself needs about ten times as long for each row.
Nothing here imports Spark, so that a task starts soon.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sluice.pipeline.errors import FileError
from sluice.router.telemetry.schema import HISTOGRAM, INT, LONG, TABLES, TEXT, TIME, time_column

ROWS_AT_ONCE: Final = 1 << 18  # rows that are summed at once: some 100 MB of links
HOUR: Final = 3_600_000_000  # microseconds
MINUTE: Final = 60_000_000  # microseconds
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
#: Arrow tables as rows of Spark: name of the sums, date of their hours, serialized octets.
PACKED: Final[Mapping[str, str]] = {"name": TEXT, "date": "date", "data": "binary"}


class RouterFiles(NamedTuple):
    """Files of one router that one task reads."""

    router: str
    paths: Sequence[str]


class MicrosecondPeriod(NamedTuple):
    """Period in microseconds since the epoch, without its end."""

    start: int
    end: int


@dataclass(frozen=True)
class HourlySums:
    """Definition of sums: rows of one table, grouped by hour (or minute), router and keys.

    The column `hour` is the start of that time. Roll-ups have hours, reports of short periods minutes.
    """

    table: str
    reads: tuple[str, ...]  # columns that are read, beside the time
    keys: Mapping[str, str]  # key columns, with their types
    sums: tuple[str, ...]
    peaks: Mapping[str, str] = field(default_factory=dict)  # columns whose largest values are kept
    #: Computes keys, sums or peaks that are no columns of the table from the columns read.
    derive: Callable[[pa.Table], pa.Table] | None = None

    @property
    def columns(self) -> dict[str, str]:
        """Columns of the result."""
        keys = {"hour": TIME, "router": TEXT, **self.keys}
        return {**keys, **dict.fromkeys(self.sums, LONG), **self.peaks}

    def of(self, rows: pa.Table, step: int = HOUR) -> pa.Table:
        """Return the sums of rows that were read. step: HOUR or MINUTE."""
        rows = rows.select([_STARTS, "router", *self.reads])
        starts = rows.column(_STARTS).cast(pa.int64())
        rows = rows.append_column("hour", pc.multiply(pc.divide(starts, step), step).cast(_TYPES[TIME]))
        if self.derive is not None:
            rows = self.derive(rows)
        return self.grouped(rows, self.columns)

    def grouped(self, rows: pa.Table, columns: Mapping[str, str]) -> pa.Table:
        """Return the sums and peaks of rows that are equal in all other columns.

        columns: names and types of the columns of the result.
        """
        taken = {name: rows.column(name) for name in columns}
        # Arrow groups numbers several times as fast as texts.
        texts = {name: _encoded(taken[name]) for name, kind in columns.items() if kind == TEXT}
        taken.update((name, column.indices) for name, column in texts.items())
        wanted = [(name, "sum") for name in self.sums] + [(name, "max") for name in self.peaks]
        keys = [name for name in columns if name not in self.sums and name not in self.peaks]
        groups = pa.table(taken).group_by(keys, use_threads=False).aggregate(wanted)
        found = {}
        for name, kind in columns.items():
            suffix = "_sum" if name in self.sums else "_max" if name in self.peaks else ""
            column = groups.column(name + suffix)
            found[name] = texts[name].dictionary.take(column) if name in texts else column.cast(_TYPES[kind])
        return pa.table(found)


def schema(columns: Mapping[str, str]) -> pa.Schema:
    """Return the Arrow schema of columns with these Spark types."""
    return pa.schema([(name, _TYPES[kind]) for name, kind in columns.items()])


def columns_read(wanted: Iterable[HourlySums]) -> list[str]:
    """Return the columns that are read of the one table, beside the time and the router."""
    return list(dict.fromkeys(name for each in wanted for name in each.reads))


def sums_of_files(
    wanted: Mapping[str, HourlySums], parts: Iterable[RouterFiles], period: MicrosecondPeriod, step: int = HOUR
) -> Iterator[tuple[str, pa.Table]]:
    """Yield sums of the rows that begin in the period, from files of one table, with their names in `wanted`.

    Each file is read once for all sums. A key may occur more than once. Raises FileError.
    """
    (table,) = {each.table for each in wanted.values()}
    names = columns_read(wanted.values())
    waiting: list[pa.Table] = []
    count = 0
    for part in parts:
        for rows in read_files(table, names, part):
            waiting.append(rows_in_period(rows, _STARTS, period))
            count += rows.num_rows
            if count >= ROWS_AT_ONCE:
                yield from _sums(wanted, waiting, step)
                waiting, count = [], 0
    if waiting:
        yield from _sums(wanted, waiting, step)


def sums_of_rows(
    wanted: Mapping[str, HourlySums], batches: Iterable[pa.RecordBatch], step: int = HOUR
) -> Iterator[tuple[str, pa.Table]]:
    """Yield sums of rows that Spark has read, with their names in `wanted`. Rows: time, router, columns read."""
    for batch in batches:
        yield from _sums(wanted, [pa.Table.from_batches([batch])], step)


def _sums(wanted: Mapping[str, HourlySums], tables: list[pa.Table], step: int) -> Iterator[tuple[str, pa.Table]]:
    rows = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    for name, each in wanted.items():
        yield name, each.of(rows, step)


def pack_by_date(name: str, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield rows that have an `hour` as PACKED, one record batch for each date."""
    days = rows.column("hour").cast(pa.date32())
    for day in days.unique():
        octets = pa.array([serialized(rows.filter(pc.equal(days, day)))], pa.binary())
        yield pa.record_batch([pa.array([name]), pa.array([day]), octets], names=list(PACKED))


def serialized(rows: pa.Table) -> bytes:
    """Serialize rows for `unpacked`."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    octets: bytes = sink.getvalue().to_pybytes()
    return octets


def unpacked(octets: bytes) -> pa.Table:
    return pa.ipc.open_stream(octets).read_all()


def read_files(table: str, names: Sequence[str], part: RouterFiles) -> Iterator[pa.Table]:
    """Yield the rows of files: the time, the columns `names`, and `router`.

    Texts are dictionaries. Raises FileError.
    """
    kinds = {name: TABLES[table][name] for name in (time_column(table), *names)}
    texts = [name for name, kind in kinds.items() if kind == TEXT]
    router = pa.array([part.router])
    for path in part.paths:
        try:
            metadata = pq.read_metadata(path)
            found = set(metadata.schema.to_arrow_schema().names)
            encoded = [name for name in texts if name in found]
            with pq.ParquetFile(
                path, metadata=metadata, read_dictionary=encoded, page_checksum_verification=True
            ) as file:
                there = [name for name in kinds if name in found]
                for batch in file.iter_batches(ROWS_AT_ONCE, columns=there, use_threads=False):
                    columns = {
                        name: _column(batch, name if name in found else None, kind) for name, kind in kinds.items()
                    }
                    columns["router"] = pa.DictionaryArray.from_arrays(_zeros(batch.num_rows), router)
                    yield pa.table(columns)
        except FileNotFoundError:
            raise FileError(f"{path} was deleted or merged before it could be read: run the command again") from None
        except (OSError, ValueError, pa.ArrowException) as error:  # names in a damaged footer may be no UTF-8
            raise FileError(f"{path} cannot be read: {error}") from error


def _zeros(rows: int) -> pa.Array:
    return pa.nulls(rows, pa.int32()).fill_null(0)


def _column(batch: pa.RecordBatch, name: str | None, kind: str) -> pa.Array:
    """Return a column in its present type; null values if a file of another version lacks it."""
    if name is None:
        return pa.nulls(batch.num_rows, pa.dictionary(pa.int32(), pa.string()) if kind == TEXT else _TYPES[kind])
    column = batch.column(name)
    return column if kind == TEXT or column.type == _TYPES[kind] else column.cast(_TYPES[kind])


def _encoded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    whole = column.combine_chunks()
    return whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()


def rows_in_period(rows: pa.Table, time: str, period: MicrosecondPeriod) -> pa.Table:
    """Return the rows whose time is in the period."""
    starts = rows.column(time).cast(pa.int64())
    least, most = pc.min_max(starts).values()
    if not starts.null_count and least.is_valid and period.start <= least.as_py() and most.as_py() < period.end:
        return rows
    return rows.filter(pc.and_(pc.greater_equal(starts, period.start), pc.less(starts, period.end)))


def explode_map(table: pa.Table, column: str, names: tuple[str, str]) -> pa.Table:
    """Return a row for each entry of a map, with its key and value in columns `names`; none for null and empty maps."""
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
    """Return each index i repeated sizes[i] times."""
    import numpy as np

    counts = sizes.to_numpy(zero_copy_only=False)
    return pa.array(np.repeat(np.arange(len(counts)), counts))
