"""Apache Iceberg tables, through pyiceberg and any catalog that it knows.

The number of a batch is a property of the table, set by the commit that adds the files of the batch. Summaries of
snapshots would lose it when snapshots expire.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    NotInstalledError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, LessThanOrEqual, Reference
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.table import Table, Transaction
from sqlalchemy.exc import SQLAlchemyError

from sluice.pipeline.errors import PipelineOptionError
from sluice.pipeline.stores import open_store
from sluice.pipeline.tables.files import to_stored_schema
from sluice.pipeline.tables.table import (
    ATTEMPTS,
    SMALL_FILE,
    TARGET_FILE,
    DataFile,
    KeyRanges,
    TargetTable,
    TargetTableError,
    check_columns,
)

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyspark.sql.types import StructType

#: Prefix of the table property with the number of a query's last batch.
BATCH = "sluice.batch."
#: Properties of a new table. Without them, a commit a second would leave as many manifests and metadata files.
PROPERTIES = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
#: Table property with the number of times that a library repeats a commit which another writer forestalled.
RETRIES = "commit.retry.num-retries"
#: Errors of catalogs: of the REST protocol, of a database, of connections.
CATALOG_ERRORS = (RESTError, SQLAlchemyError, NotInstalledError, OSError)
ROWS = 65_536  # rows of a batch while files are merged


class IcebergTarget(TargetTable):
    """Iceberg table, named CATALOG.NAMESPACE.TABLE."""

    stores_partition_columns = True
    commits_statistics = False

    def __init__(
        self, name: str, schema: "StructType", partition_by: Sequence[str], properties: Mapping[str, str]
    ) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self.name = name
        self.partition_by = tuple(partition_by)
        catalog, dot, identifier = name.partition(".")
        if not dot or "." not in identifier:
            raise PipelineOptionError(f"table {name!r}: expected CATALOG.NAMESPACE.TABLE")
        arrow = to_arrow_schema(schema, timezone="UTC")
        try:
            self._catalog = load_catalog(catalog, **properties)
        except ValueError as error:
            raise TargetTableError(
                f"catalog {catalog!r}: {error} (give --catalog, or a section in .pyiceberg.yaml)"
            ) from error
        except CATALOG_ERRORS as error:
            raise TargetTableError(f"catalog {catalog!r}: {first_line(error)}") from error
        try:
            self._table = self._open(self._catalog, identifier, arrow)
        except CATALOG_ERRORS as error:
            raise TargetTableError(f"catalog {catalog!r}: {first_line(error)}") from error
        self.folder = f"{self._table.location()}/data"
        found = {each.name: str(each.type) for each in to_stored_schema(self._table.schema().as_arrow())}
        check_columns(name, {each.name: str(each.type) for each in to_stored_schema(arrow)}, found)
        there = tuple(self._table.schema().find_column_name(each.source_id) for each in self._table.spec().fields)
        if there != self.partition_by:
            raise TargetTableError(f"table {name} is partitioned by {there}, and the query by {self.partition_by}")

    def _open(self, catalog: Catalog, identifier: str, schema: pa.Schema) -> Table:
        try:
            return catalog.load_table(identifier)
        except NoSuchTableError:
            pass
        catalog.create_namespace_if_not_exists(identifier.rpartition(".")[0])
        try:
            with (
                catalog.create_table_transaction(identifier, schema, properties=PROPERTIES) as transaction,
                transaction.update_spec() as spec,
            ):
                for name in self.partition_by:
                    spec.add_identity(name)
        except TableAlreadyExistsError:
            pass
        return catalog.load_table(identifier)

    def last_batch(self, query: str) -> int:
        return int(self._table.properties.get(f"{BATCH}{query}", "-1"))

    def append(self, query: str, batch: int, files: Sequence[DataFile]) -> bool:
        paths = [f"{self.folder}/{each.path}" for each in files]

        def change(transaction: Transaction) -> bool:
            if self.last_batch(query) >= batch:
                return False
            transaction.set_properties({f"{BATCH}{query}": str(batch)})
            if paths:
                transaction.add_files(paths, {"sluice.query": query, "sluice.batch": str(batch)}, False)
            return True

        return self._commit(change, f"batch {batch}")

    def _commit(self, change: Callable[[Transaction], bool], what: str) -> bool:
        """Commit a change, which is made again on the new table if another writer was faster."""
        for _ in range(ATTEMPTS):
            try:
                self._table.refresh()
                # pyiceberg would commit again by itself, without another look at the number of the batch. The property
                # is changed in this process only, because other writers of the table may rely on it.
                self._table.metadata.properties[RETRIES] = "0"
                transaction = self._table.transaction()
                if not change(transaction):
                    return False
                transaction.commit_transaction()
            except CommitFailedException:
                continue
            except CommitStateUnknownException as error:
                # A query that starts again looks at the number of the batch.
                raise TargetTableError(
                    f"table {self.name}: the catalog does not tell if it has {what}: {first_line(error)}"
                ) from error
            except CATALOG_ERRORS as error:
                raise TargetTableError(f"table {self.name}: {first_line(error)}") from error
            return True
        raise TargetTableError(f"table {self.name}: other writers forestalled {ATTEMPTS} commits of {what}")

    def keys(self, columns: Sequence[str], ranges: KeyRanges) -> Iterator[pa.RecordBatch]:
        wanted: BooleanExpression = AlwaysTrue()
        for name, (least, greatest) in ranges.items():
            if least is not None:
                wanted = And(wanted, GreaterThanOrEqual(term=Reference(name), value=least))
            if greatest is not None:
                wanted = And(wanted, LessThanOrEqual(term=Reference(name), value=greatest))
        yield from self._table.scan(row_filter=wanted, selected_fields=tuple(columns)).to_arrow_batch_reader()

    def compact(self) -> int:
        self._table.refresh()
        groups: dict[str, list[IcebergFile]] = {}
        for task in self._table.scan().plan_files():
            if task.file.file_size_in_bytes < SMALL_FILE and not task.delete_files:
                groups.setdefault(repr(task.file.partition), []).append(task.file)
        replaced: list[IcebergFile] = []
        made: list[str] = []
        for files in groups.values():
            chosen = _fitting(files)
            if len(chosen) > 1:
                replaced += chosen
                made.append(self._merge(chosen))
        if not replaced:
            return 0
        before = self._table.metadata.current_snapshot_id

        def change(transaction: Transaction) -> bool:
            if self._table.metadata.current_snapshot_id != before:
                raise TargetTableError(f"table {self.name}: another writer changed it while files were merged")
            with transaction.update_snapshot().overwrite() as snapshot:
                for file in replaced:
                    snapshot.delete_data_file(file)
                for file in parquet_files_to_data_files(self._table.io, self._table.metadata, iter(made)):
                    snapshot.append_data_file(file)
            return True

        self._commit(change, "merged files")
        return len(replaced)

    def _merge(self, files: Sequence["IcebergFile"]) -> str:
        """Write the rows of files to one file, and return its URL."""
        store = open_store(self.folder)
        sink = pa.BufferOutputStream()
        schema = to_stored_schema(self._table.schema().as_arrow())
        with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
            for file in files:
                with self._table.io.new_input(file.file_path).open() as source:
                    for batch in pq.ParquetFile(source).iter_batches(ROWS):
                        writer.write_table(pa.Table.from_batches([batch]).select(schema.names).cast(schema))
        name = f"merged/{uuid.uuid4().hex}.parquet"
        store.make_folder("merged")
        store.publish(name, sink.getvalue())
        return f"{self.folder}/{name}"


def first_line(error: Exception) -> str:
    """Return the first line of an error that a library raised."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _fitting(files: "Sequence[IcebergFile]") -> "list[IcebergFile]":
    """Return the smallest files whose sum is at most TARGET_FILE."""
    chosen = []
    left = TARGET_FILE
    for file in sorted(files, key=lambda each: each.file_size_in_bytes):
        left -= file.file_size_in_bytes
        if left < 0:
            break
        chosen.append(file)
    return chosen
