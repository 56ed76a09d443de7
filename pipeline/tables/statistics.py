"""Statistics of a file in the log of a Delta table (PROTOCOL.md, "Per-file Statistics"): readers skip files by them.

Bounds of a file are complete or absent. delta-rs takes a column without bounds, in a file that has bounds of others, as
one without values, and its datasets of pyarrow then skip rows that exist. An object without members is enough for a
struct; binary columns, lists and maps need none.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

#: Characters of a text in bounds. Longer texts have wider bounds.
TEXT_MOST = 64
#: Character that no other is greater than.
LAST = "\U0010ffff"


def file_statistics(table: pa.Table) -> dict[str, Any]:
    """Return the statistics of a file with these rows: least and greatest values, and numbers of nulls, by column.

    Only the number of rows, if the bounds of a column cannot be given.
    """
    rows = {"numRecords": table.num_rows}
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if _has_no_bounds(column.type):
            continue
        if pa.types.is_struct(column.type):
            least[name], greatest[name], nulls[name] = {}, {}, {}
            continue
        nulls[name] = column.null_count
        if column.null_count == table.num_rows:
            continue
        try:
            least[name], greatest[name] = _bounds(column)
        except (ValueError, OverflowError):
            return rows
    return {**rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _has_no_bounds(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_list(kind) or pa.types.is_map(kind))


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any]:
    """Return bounds of a column with values, as JSON has them. Raises ValueError, OverflowError if there are none."""
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        found = pc.min_max(column).as_py()
        return found["min"], found["max"]
    if pa.types.is_string(kind):
        found = pc.min_max(column).as_py()
        return found["min"][:TEXT_MOST], _text_above(found["max"])
    if pa.types.is_timestamp(kind) and kind.tz:
        found = pc.min_max(column).as_py()
        return _milliseconds(found["min"]), _milliseconds(found["max"] + timedelta(microseconds=999))
    raise ValueError(f"type {kind} has no bounds here")


def _text_above(text: str) -> str:
    """Return a short text that is not less than `text`. Raises ValueError if there is none."""
    if len(text) <= TEXT_MOST:
        return text
    above = text[:TEXT_MOST] + LAST
    if above < text:
        raise ValueError("text has no short upper bound")
    return above


def _milliseconds(at: datetime) -> str:
    """Return a time as text, without the microseconds of its last millisecond."""
    return f"{at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
