"""Delta Lake tables, through delta-rs.

The number of a batch is the version of an application transaction (action `txn` of the protocol) in the commit that
adds the files of the batch.
"""

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from sluice.pipeline.stores import open_store
from sluice.pipeline.tables.table import (
    ATTEMPTS,
    TARGET_FILE,
    DataFile,
    KeyRanges,
    TargetTable,
    TargetTableError,
    check_columns,
)
from sluice.router import json_codec

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

VACUUM_EVERY = 3600.0  # seconds between two searches for files that compaction replaced and whose retention is over


class DeltaTarget(TargetTable):
    """Delta table in a folder."""

    stores_partition_columns = False
    commits_statistics = True

    def __init__(self, name: str, schema: "StructType", partition_by: Sequence[str]) -> None:
        self.name = name
        self.folder = name
        self.partition_by = tuple(partition_by)
        self._schema = Schema.from_json(schema.json())
        self._vacuum_at = time.monotonic() + VACUUM_EVERY
        open_store(name).make_folder("")
        try:
            self._table = self._open()
        except DeltaError as error:
            raise TargetTableError(f"table {name}: {error}") from error
        found = {field.name: _type(field) for field in self._table.schema().fields}
        check_columns(name, {field.name: _type(field) for field in self._schema.fields}, found)
        there = tuple(self._table.metadata().partition_columns)
        if there != self.partition_by:
            raise TargetTableError(f"table {name} is partitioned by {there}, and the query by {self.partition_by}")

    def _open(self) -> DeltaTable:
        try:
            return DeltaTable(self.name)
        except TableNotFoundError:
            return DeltaTable.create(self.name, self._schema, mode="ignore", partition_by=list(self.partition_by))

    def last_batch(self, query: str) -> int:
        found = self._table.transaction_version(query)
        return -1 if found is None else int(found)

    def append(self, query: str, batch: int, files: Sequence[DataFile]) -> bool:
        actions: list[AddAction | RemoveAction] = [self._action(each) for each in files]
        # No retries by delta-rs: it would not look whether another process has committed the batch meanwhile.
        properties = CommitProperties(app_transactions=[Transaction(query, batch)], max_commit_retries=0)
        for _ in range(ATTEMPTS):
            self._table.update_incremental()
            if self.last_batch(query) >= batch:
                return False
            try:
                self._table.create_write_transaction(
                    actions, "append", self._table.schema(), list(self.partition_by), commit_properties=properties
                )
            except CommitFailedError:
                continue
            except DeltaError as error:
                raise TargetTableError(f"table {self.name}: {error}") from error
            self._table.update_incremental()
            return True
        raise TargetTableError(
            f"table {self.name}: other writers forestalled {ATTEMPTS} attempts to commit batch {batch}"
        )

    def _action(self, file: DataFile) -> AddAction:
        values = dict(zip(self.partition_by, file.partition, strict=True))
        return AddAction(file.path, file.octets, values, time.time_ns() // 1_000_000, True, file.statistics)

    def keys(self, columns: Sequence[str], ranges: KeyRanges) -> Iterator[pa.RecordBatch]:
        wanted: list[tuple[str, str, Any]] = [
            (name, sign, limit)
            for name, limits in ranges.items()
            for sign, limit in zip((">=", "<="), limits, strict=True)
            if limit is not None
        ]
        # delta-rs takes an empty text as null.
        predicate = [each for each in wanted if each[2] != "" and isinstance(each[2], str | int | datetime)]
        # Each file of a dataset costs 0.6 ms, also those that its scanner skips.
        files = self._table.to_pyarrow_dataset(file_pruning_predicate=predicate or None)
        within = pq.filters_to_expression(wanted) if wanted else None
        yield from files.scanner(columns=list(columns), filter=within).to_batches()

    def compact(self) -> int:
        try:
            removed = int(self._table.optimize.compact(target_size=TARGET_FILE)["numFilesRemoved"])
            if time.monotonic() >= self._vacuum_at:
                self._vacuum_at = time.monotonic() + VACUUM_EVERY
                self._table.vacuum(dry_run=False)
        except DeltaError as error:
            raise TargetTableError(f"table {self.name}: {error}") from error
        return removed


def _type(field: Any) -> Any:
    return json_codec.decode(field.type.to_json())
