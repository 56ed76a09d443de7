"""Segments as Arrow record batches."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sluice.pipeline import columns
from sluice.pipeline.errors import LandingError, OtherLogError
from sluice.pipeline.identity import differ
from sluice.pipeline.segments import CHECKSUM_KEY, IDENTITY_KEY, Landing, Segment, check_metadata, parse_log_key, schema
from sluice.pipeline.stores import LocalStore

#: Rows of a batch. Spark handles batches of this size faster than larger ones.
ROWS = 10_000


def read_segment(
    landing: Landing, segment: Segment, names: Sequence[str], identity: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the columns `names`, in this order, of a segment's rows.

    identity: that of the log, if known. Raises FileNotFoundError, OtherLogError for a segment of a log with another
    identity, and LandingError for a file that is damaged, not written by a lander, or of another format.
    """
    where = f"{landing.url}/{segment.path}"
    decoded = [name for name in names if name in columns.DECODED]
    stored = [name for name in names if name in columns.LANDED or name in columns.MESSAGE]
    if decoded and "message" not in stored:
        stored.append("message")
    table = read_stored(landing, segment, stored, identity)
    place = _place(segment, [name for name in names if name in columns.PLACE])
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
    table = read_stored(landing, segment, schema().names)
    return CHECKSUM_KEY in (table.schema.metadata or {})


def read_stored(landing: Landing, segment: Segment, stored: Sequence[str], identity: str | None = None) -> pa.Table:
    """Return columns that a segment's file stores, after comparing the checksums of their pages.

    identity: that of the log, if known. Raises FileNotFoundError, OtherLogError, LandingError.
    """
    store = landing.store
    where = f"{landing.url}/{segment.path}"
    try:
        # pyarrow reads a path without calling Python.
        source = str(store.root / segment.path) if isinstance(store, LocalStore) else store.open(segment.path)
        with pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True) as file:
            check_metadata(file.schema_arrow.metadata, where)
            written = (file.schema_arrow.metadata or {}).get(IDENTITY_KEY)
            if written is not None and differ(identity, written.decode()):
                raise OtherLogError(f"segment {segment.path} is of a log that was made anew")
            _check_rows(file.metadata.num_rows, segment, where)
            expected = schema()
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
    _check_rows(table.num_rows, segment, where)  # the footer, which has no checksum, says how many rows are read
    return table


def _check_rows(found: int, segment: Segment, where: str) -> None:
    if found != segment.rows:
        raise LandingError(f"{where} has {found} rows instead of {segment.rows}: it is damaged")


def _place(segment: Segment, names: list[str]) -> dict[str, Callable[[int], Any]]:
    """Return makers of the columns with one value for all rows. Each maker takes the number of rows.

    Most batches have as many rows as the first, so the values are repeated once and sliced.
    """
    values = {
        "lander": parse_log_key(segment.log).lander,
        "segment": segment.number,
        "landed_time": segment.landed * 1000,
    }

    def repeated(name: str) -> Callable[[int], Any]:
        kind = columns.TYPES[columns.PLACE[name]]
        whole = pa.repeat(pa.scalar(values[name], kind), min(ROWS, segment.rows))
        return lambda rows: whole.slice(0, rows)

    return {name: repeated(name) for name in names}
