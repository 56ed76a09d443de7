"""Rows of a batch whose keys a table does not have: an insert-only merge, exact for any distance of the copies.

The keys of the table are read as a stream and compared with those of the batch, so memory depends on the batch alone.
Files whose keys are in another range than those of the batch are not read.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sluice.pipeline.tables.table import TargetTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def new_rows(frame: "DataFrame", unique: Sequence[str], table: TargetTable) -> "tuple[DataFrame, int]":
    """Return the rows of a batch that neither the table nor an earlier row of the batch has, and how many are left out.

    Rows are equal if they are in the columns `unique`. A row with a null in one of them is equal to no other.
    """
    from pyspark.sql import functions as f

    complete = frame.filter(" and ".join(f"`{name}` is not null" for name in unique))
    batch = complete.select(*unique).distinct().toArrow()
    known = known_keys(batch, table)
    rows = complete.dropDuplicates(list(unique))
    if known.num_rows:
        there = frame.sparkSession.createDataFrame(known)
        rows = rows.join(f.broadcast(there), list(unique), "left_anti")
    incomplete = frame.filter(" or ".join(f"`{name}` is null" for name in unique))
    repeated = complete.count() - (batch.num_rows - known.num_rows)
    return rows.select(*frame.columns).unionByName(incomplete), repeated


def known_keys(batch: pa.Table, table: TargetTable) -> pa.Table:
    """Return the keys of a batch (distinct, no nulls) that the table has."""
    if not batch.num_rows:
        return batch
    names = batch.column_names
    ranges: dict[str, tuple[Any, Any]] = {}
    for name in names:
        found = pc.min_max(batch.column(name)).as_py()
        ranges[name] = (found["min"], found["max"])
    known = batch.slice(0, 0)
    for rows in table.keys(names, ranges):
        keys = pa.Table.from_batches([rows]).select(names).cast(batch.schema)
        first = keys.filter(pc.is_in(keys.column(names[0]), value_set=batch.column(names[0])))
        if first.num_rows:
            matches = first.join(batch, names, join_type="inner")
            known = pa.concat_tables([known, matches.select(names)])
    return known.group_by(names).aggregate([]).select(names)
