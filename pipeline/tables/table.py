"""Interface of a table to which a query appends its batches, each exactly once.

A batch becomes visible by one commit of the table's format, which stores the number of the batch beside its rows. A
batch that runs again is recognised by this number, whatever interrupted the query.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from sluice.pipeline.errors import PipelineError, PipelineOptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: Attempts of a commit that other writers of the table forestall.
ATTEMPTS = 20
#: Files below this size are merged by `compact`; octets.
SMALL_FILE = 32 << 20
#: Size of merged files; octets.
TARGET_FILE = 128 << 20
#: Types of columns that may partition a table, in Spark's DDL. Their values have one text in every engine.
PARTITION_TYPES = ("string", "int", "bigint", "boolean")

#: Least and greatest values of columns: {column: (least, greatest)}; None: without bound.
KeyRanges = Mapping[str, tuple[Any, Any]]


class TargetTableError(PipelineError):
    """Raised if a table cannot be opened, created or written."""


class DataFile(NamedTuple):
    """Parquet file of a batch."""

    path: str  # relative to the folder of the table's data
    octets: int
    rows: int
    partition: tuple[str | None, ...] = ()  # values of the partition columns, as text
    statistics: str = ""  # JSON of statistics.py, "" if the table needs none


class TargetTable(ABC):
    """Table of an open format. `folder` is the path or URL under which batches write their files."""

    name: str
    folder: str
    partition_by: Sequence[str]
    #: False: files lack the partition columns, whose values are in the metadata of the table.
    stores_partition_columns: bool
    #: True: commits have statistics of the files. False: the format takes them from the files.
    commits_statistics: bool

    @abstractmethod
    def last_batch(self, query: str) -> int:
        """Return the number of the last batch of a query that the table has, -1 if it has none."""

    @abstractmethod
    def append(self, query: str, batch: int, files: Sequence[DataFile]) -> bool:
        """Add the files of a batch, and its number, in one commit.

        Return False, and change nothing, if the table has the batch already. Raises TargetTableError.
        """

    @abstractmethod
    def keys(self, columns: Sequence[str], ranges: KeyRanges) -> Iterator[pa.RecordBatch]:
        """Yield columns of all rows whose values are in these ranges, and perhaps of others.

        Files that have no such rows, by the metadata of the table, are not opened.
        """

    @abstractmethod
    def compact(self) -> int:
        """Merge small files in a commit of its own; return how many. Raises TargetTableError if it cannot."""


def check_partition_columns(schema: "StructType", columns: Sequence[str]) -> None:
    """Raise PipelineOptionError for a column that does not exist or has a type that cannot partition a table."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name in columns:
        if name not in kinds:
            raise PipelineOptionError(f"--partition-by: there is no column {name!r}; there are {', '.join(kinds)}")
        if kinds[name] not in PARTITION_TYPES:
            types = ", ".join(PARTITION_TYPES)
            raise PipelineOptionError(f"--partition-by: column {name!r} is {kinds[name]}; expected {types}")


def check_columns(name: str, wanted: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Raise TargetTableError unless an existing table has exactly the columns of a query, given as {name: type}."""
    for column, kind in wanted.items():
        if column not in found:
            raise TargetTableError(f"table {name} has no column {column!r}, which the query writes")
        if found[column] != kind:
            raise TargetTableError(f"table {name}: column {column!r} is {found[column]}, and the query writes {kind}")
    extra = sorted(found.keys() - wanted.keys())
    if extra:
        raise TargetTableError(f"table {name} has columns that the query does not write: {', '.join(extra)}")


def open_table(
    kind: str, name: str, schema: "StructType", partition_by: Sequence[str], properties: Mapping[str, str]
) -> TargetTable:
    """Open a table of a format, "delta" or "iceberg"; create it if it does not exist.

    properties: those of Iceberg's catalog. Raises TargetTableError, PipelineOptionError, MissingError.
    """
    check_partition_columns(schema, partition_by)
    if kind == "delta":
        from sluice.pipeline.tables.delta import DeltaTarget

        return DeltaTarget(name, schema, partition_by)
    from sluice.pipeline.tables.iceberg import IcebergTarget

    return IcebergTarget(name, schema, partition_by, properties)
