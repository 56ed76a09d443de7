"""Segments as Arrow record batches."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sluice.pipeline import columns
from sluice.pipeline.errors import LandingError, OtherLogError
from sluice.pipeline.identity import Identities, differ
from sluice.pipeline.segments import (
    CHECKSUM_KEY,
    IDENTITY_KEY,
    Landing,
    MergedFile,
    Segment,
    check_metadata,
    clip,
    merged_schema,
    parse_log_key,
    schema,
)
from sluice.pipeline.stores import LocalStore

#: Rows of a batch. Spark handles batches of this size faster than larger ones.
ROWS = 10_000
#: Columns of merged files from which the columns of a segment's place are read.
PLACED = ("segment", "landed_time")


class SegmentReader:
    """Reader of the segments of one task.

    A segment that was planned may be in a merged file since, and its own file deleted. A task reads each merged file
    once, even if it has many separate parts of it.
    """

    def __init__(self, landing: Landing, names: Sequence[str], identities: Identities) -> None:
        self.landing = landing
        self.names = names
        self.identities = identities
        self._merged: dict[str, list[Segment]] = {}  # parts of merged files, by log
        self._file: MergedFile | None = None  # the last merged file that was read, and its content
        self._table: pa.Table | None = None

    def read(self, segment: Segment) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a segment. Raises as `read_segment` does."""
        try:
            batches = self._read(segment)
        except FileNotFoundError:
            parts = self._find_merged(segment)
            if parts is None:
                raise
            batches = (batch for part in parts for batch in self._read(part))
        yield from batches

    def _read(self, segment: Segment) -> Iterator[pa.RecordBatch]:
        stored = stored_columns(segment, self.names)
        identity = self.identities.get(segment.log)
        if segment.file is None:
            table = read_stored(self.landing, segment, stored, identity)
        else:
            if segment.file != self._file or self._table is None:
                self._table = read_stored(self.landing, segment.file.whole(), stored, identity)
                self._file = segment.file
            table = _part_of(self._table, segment)
        return decoded_batches(self.landing, segment, table, self.names)

    def _find_merged(self, segment: Segment) -> list[Segment] | None:
        """Return the parts of merged files that have all rows of a segment whose file does not exist; None: none do."""
        for known in (True, False):
            if not known or segment.log not in self._merged:
                self._merged[segment.log] = self.landing.merged_parts(segment.log)[0]
            found = clip(self._merged[segment.log], segment.number, segment.end)
            if sum(part.span for part in found) == segment.span and segment.file not in [each.file for each in found]:
                return found
        return None


def read_segment(
    landing: Landing, segment: Segment, names: Sequence[str], identity: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the columns `names`, in this order, of a segment's rows.

    identity: that of the log, if known. Raises FileNotFoundError, OtherLogError for a segment of a log with another
    identity, and LandingError for a file that is damaged, not written by a lander, or of another format.
    """
    table = read_stored(landing, segment, stored_columns(segment, names), identity)
    yield from decoded_batches(landing, segment, table, names)


def stored_columns(segment: Segment, names: Sequence[str]) -> list[str]:
    """Return the columns of a segment's file that the columns `names` need."""
    placed = PLACED if segment.file is not None else ()
    stored = [name for name in names if name in columns.LANDED or name in columns.MESSAGE or name in placed]
    if "message" not in stored and any(name in columns.DECODED for name in names):
        stored.append("message")
    if segment.file is not None and "segment" not in stored:
        stored.append("segment")
    return stored


def decoded_batches(
    landing: Landing, segment: Segment, table: pa.Table, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the columns `names` of the rows of `table`, which has the columns of `stored_columns`."""
    where = f"{landing.url}/{segment.path}"
    decoded = [name for name in names if name in columns.DECODED]
    stored = table.schema.names
    missing = [name for name in names if name in columns.PLACE and name not in stored]
    place = _place(segment, table.num_rows, missing)
    result = columns.schema(names)
    rows = ROWS
    if "message" in stored and table.num_rows:
        rows = min(ROWS, max(1, columns.DECODE_OCTETS_MAX * table.num_rows // max(table.column("message").nbytes, 1)))
    for batch in table.to_batches(max_chunksize=rows):
        arrays = {name: batch.column(name) for name in stored}
        for name, value in place.items():
            arrays[name] = value(batch.num_rows)
        try:
            arrays.update(columns.decoded_columns(arrays["message"], decoded) if decoded else {})
        except (ValueError, OverflowError) as error:
            raise LandingError(f"{where} cannot be decoded: {error}") from error
        yield pa.RecordBatch.from_arrays([arrays[name] for name in names], schema=result)


def verify_segment(landing: Landing, segment: Segment) -> bool:
    """Read all that a segment's file stores. Return True if its pages have checksums, which were then compared.

    Segments of earlier releases have none. Raises FileNotFoundError, LandingError for a damaged file.
    """
    table = read_stored(landing, segment, (schema() if segment.file is None else merged_schema()).names)
    return CHECKSUM_KEY in (table.schema.metadata or {})


def merged_segments(landing: Landing, part: Segment) -> list[Segment]:
    """Return a part of a merged file, divided by segments, with their landing times and rows.

    Raises FileNotFoundError, LandingError.
    """
    table = read_stored(landing, part, PLACED)
    counts = table.group_by(list(PLACED), use_threads=False).aggregate([([], "count_all")])
    found = zip(*(counts.column(name).to_pylist() for name in (*PLACED, "count_all")), strict=True)
    return [
        part.part(number, number + 1)._replace(landed=round(landed.timestamp() * 1000), rows=rows)
        for number, landed, rows in found
    ]


def read_stored(
    landing: Landing,
    segment: Segment,
    stored: Sequence[str],
    identity: str | None = None,
    octets: bytes | None = None,
) -> pa.Table:
    """Return columns that a segment's file stores, after comparing the checksums of their pages.

    identity: that of the log, if known. octets: content of the file, if it was read. Of a merged file, the result has
    the segment's rows only, if `stored` has the column "segment", which then is compared with the name as well.
    Raises FileNotFoundError, OtherLogError, LandingError.
    """
    if segment.file is not None and "segment" not in stored:
        raise ValueError("the rows of a part are found by the column 'segment'")
    store = landing.store
    where = f"{landing.url}/{segment.path}"
    try:
        # pyarrow reads a path without calling Python.
        source: Any = str(store.root / segment.path) if isinstance(store, LocalStore) else None
        if octets is not None:
            source = pa.BufferReader(octets)
        elif source is None:
            source = store.open(segment.path)
        with pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True) as file:
            check_metadata(file.schema_arrow.metadata, where)
            written = (file.schema_arrow.metadata or {}).get(IDENTITY_KEY)
            if written is not None and differ(identity, written.decode()):
                raise OtherLogError(f"segment {segment.path} is of a log that was made anew")
            rows = segment.rows if segment.file is None else segment.file.rows
            _check_rows(file.metadata.num_rows, rows, where)
            expected = schema() if segment.file is None else merged_schema()
            for name in stored:
                at = file.schema_arrow.get_field_index(name)
                if at < 0 or file.schema_arrow.field(at).type != expected.field(name).type:
                    raise LandingError(f"{where} has no column {name!r} of type {expected.field(name).type}")
            if not stored:  # only the number of rows is needed
                return pa.table({"ordinal": pa.nulls(segment.rows)})
            table = file.read(columns=list(stored), use_threads=False)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, ValueError) as error:  # a damaged footer has names that are no UTF-8
        raise LandingError(f"{where} is damaged: {str(error).splitlines()[0]}") from error
    except OSError as error:  # pyarrow's own error for pages that do not fit
        raise LandingError(f"{where} cannot be read: {error}") from error
    _check_rows(table.num_rows, rows, where)  # the footer, which has no checksum, says how many rows are read
    if segment.file is None:
        return table
    numbers = table.column("segment").combine_chunks().to_numpy()
    if numbers[0] != segment.file.first or numbers[-1] != segment.file.last or (numbers[1:] < numbers[:-1]).any():
        raise LandingError(f"{where} has other segments than its name says: it is damaged")
    return _part_of(table, segment)


def read_placed(
    landing: Landing, segment: Segment, identity: str | None = None, octets: bytes | None = None
) -> pa.Table:
    """Return all columns that a segment's file stores, and the place of each row: the columns of `merged_schema`.

    Arguments and errors are those of `read_stored`.
    """
    if segment.file is not None:
        return read_stored(landing, segment, merged_schema().names, identity, octets)
    table = read_stored(landing, segment, schema().names, identity, octets)
    for name, make in _place(segment, table.num_rows, list(PLACED), table.num_rows).items():
        table = table.append_column(name, make(table.num_rows))
    return table


def _part_of(table: pa.Table, segment: Segment) -> pa.Table:
    """Return the rows of a part from the content of its merged file, in which rows are sorted by segment."""
    numbers = table.column("segment").combine_chunks().to_numpy()
    first, end = numbers.searchsorted([segment.number, segment.end])
    return table.slice(first, end - first)


def _check_rows(found: int, expected: int, where: str) -> None:
    if found != expected:
        raise LandingError(f"{where} has {found} rows instead of {expected}: it is damaged")


def _place(segment: Segment, rows: int, names: list[str], most: int = ROWS) -> dict[str, Callable[[int], Any]]:
    """Return makers of the columns with one value for all of `rows` rows. Each maker takes a number up to `most`.

    Most batches have as many rows as the first, so the values are repeated once and sliced.
    """
    values = {
        "lander": parse_log_key(segment.log).lander,
        "segment": segment.number,
        "landed_time": segment.landed * 1000,
    }

    def repeated(name: str) -> Callable[[int], Any]:
        kind = columns.TYPES[columns.PLACE[name]]
        whole = pa.repeat(pa.scalar(values[name], kind), min(most, rows))
        return lambda rows: whole.slice(0, rows)

    return {name: repeated(name) for name in names}
