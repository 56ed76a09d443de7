"""Rows of a batch whose keys a table does not have: an insert-only merge.

The keys of the table are read as a stream and compared with those of the batch, so memory depends on the batch alone.
Files whose keys are in another range than those of the batch are not read.

Window: copies that landed at most so long after each other are found, whatever is read first. So a batch is compared
with all rows that landed since its oldest one, or within the window before that. Without a window, copies of any
distance are found.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sluice.pipeline.tables.table import TargetTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


#: Column with the landing times that a window compares.
LANDED = "landed_time"


def new_rows(
    frame: "DataFrame", unique: Sequence[str], table: TargetTable, window: timedelta | None
) -> "tuple[DataFrame, int]":
    """Return the rows of a batch that neither the table nor an earlier row of the batch has, and how many are left out.

    Rows are equal if they are in the columns `unique`. A row with a null in one of them is equal to no other.
    window: None for any distance of the copies.
    """
    from pyspark.sql import functions as f

    complete = frame.filter(" and ".join(f"`{name}` is not null" for name in unique))
    since = None if window is None else _earliest(complete, window)
    batch = complete.select(*unique).distinct().toArrow()
    known = known_keys(batch, table, since)
    rows = complete.dropDuplicates(list(unique))
    if known.num_rows:
        there = frame.sparkSession.createDataFrame(known)
        rows = rows.join(f.broadcast(there), list(unique), "left_anti")
    incomplete = frame.filter(" or ".join(f"`{name}` is null" for name in unique))
    repeated = complete.count() - (batch.num_rows - known.num_rows)
    return rows.select(*frame.columns).unionByName(incomplete), repeated


def _earliest(rows: "DataFrame", window: timedelta) -> datetime | None:
    """Return the landing time from which rows of the table are compared; None for all rows."""
    from pyspark.sql import functions as f

    oldest = rows.select(f.unix_micros(f.min(LANDED))).collect()[0][0]
    if oldest is None:
        return None
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=oldest) - window
    except OverflowError:
        return None


def known_keys(batch: pa.Table, table: TargetTable, since: datetime | None = None) -> pa.Table:
    """Return the keys of a batch (distinct, no nulls) that the table has, in rows that landed at `since` or later."""
    if not batch.num_rows:
        return batch
    names = batch.column_names
    ranges: dict[str, tuple[Any, Any]] = {}
    for name in names:
        found = pc.min_max(batch.column(name)).as_py()
        ranges[name] = (found["min"], found["max"])
    if since is not None:
        ranges.setdefault(LANDED, (since, None))
    known = batch.slice(0, 0)
    for rows in table.keys(names, ranges):
        keys = pa.Table.from_batches([rows]).select(names).cast(batch.schema)
        first = keys.filter(pc.is_in(keys.column(names[0]), value_set=batch.column(names[0])))
        if first.num_rows:
            matches = first.join(batch, names, join_type="inner")
            known = pa.concat_tables([known, matches.select(names)])
    return known.group_by(names).aggregate([]).select(names)
