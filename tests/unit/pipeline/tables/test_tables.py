"""Tables of each format without Spark: batches, their numbers, concurrent writers, keys, compaction, refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
from pyspark.sql.types import StructType

from sluice.pipeline.errors import PipelineOptionError
from sluice.pipeline.stores import open_store
from sluice.pipeline.tables import FORMATS
from sluice.pipeline.tables.files import RESULT, FileWriter, commit_files, to_data_file
from sluice.pipeline.tables.keys import known_keys
from sluice.pipeline.tables.table import DataFile, TargetTable, TargetTableError, open_table
from tests.unit.pipeline.tables.rest_catalog import RestCatalogServer

FIELDS = {"address": "string", "message_id": "string", "segment": "long", "body": "binary", "landed_time": "timestamp"}
ARROW = pa.schema(
    [
        ("address", pa.string()),
        ("message_id", pa.string()),
        ("segment", pa.int64()),
        ("body", pa.binary()),
        ("landed_time", pa.timestamp("us", tz="UTC")),
    ]
)


def schema(**fields: str) -> StructType:
    described = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields.items()]
    return StructType.fromJson({"type": "struct", "fields": described})


class Tables:
    """Tables of one format in a temporary folder. catalog: URI of Iceberg's catalog; None for SQLite's there."""

    def __init__(self, kind: str, folder: Path, catalog: str | None = None) -> None:
        self.kind = kind
        self.folder = folder
        (folder / "warehouse").mkdir(exist_ok=True)
        self.catalog = {
            "uri": catalog or f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        }

    def open(self, *partition_by: str, fields: dict[str, str] = FIELDS) -> TargetTable:
        name = str(self.folder / "table") if self.kind == "delta" else "test.sensors.readings"
        return open_table(self.kind, name, schema(**fields), partition_by, self.catalog)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as the format's own library reads them."""
        if self.kind == "delta":
            from deltalake import DeltaTable

            found = DeltaTable(str(self.folder / "table")).to_pyarrow_table()
        else:
            from pyiceberg.catalog import load_catalog

            found = load_catalog("test", **self.catalog).load_table("sensors.readings").scan().to_arrow()
        return sorted(found.select(ARROW.names).to_pylist(), key=lambda row: row["segment"])

    def files(self) -> int:
        if self.kind == "delta":
            from deltalake import DeltaTable

            return len(DeltaTable(str(self.folder / "table")).file_uris())
        from pyiceberg.catalog import load_catalog

        table = load_catalog("test", **self.catalog).load_table("sensors.readings")
        return len(list(table.scan().plan_files()))


@pytest.fixture
def rest_catalog(tmp_path: Path) -> Iterator[RestCatalogServer]:
    server = RestCatalogServer(tmp_path)
    yield server
    server.stop()


@pytest.fixture(params=[*FORMATS, "iceberg-rest"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Tables:
    if request.param == "iceberg-rest":
        return Tables("iceberg", tmp_path, request.getfixturevalue("rest_catalog").url)
    return Tables(request.param, tmp_path)


def rows(*segments: int, address: str | None = "a") -> list[dict[str, Any]]:
    return [
        {"address": address, "message_id": f"m{n}", "segment": n, "body": b"\0\xff", "landed_time": None}
        for n in segments
    ]


def write(table: TargetTable, start: str, given: list[dict[str, Any]]) -> list[DataFile]:
    """Write rows as a task of Spark does."""
    open_store(table.folder).make_folder(start.rpartition("/")[0])
    made = FileWriter(table, start)(iter([pa.RecordBatch.from_pylist(given, ARROW)]))
    found = [row for batch in made for row in batch.to_pylist()]
    assert not found or [*found[0]] == [each.split()[0] for each in RESULT.split(", ")]
    return [to_data_file(each) for each in found]


def test_batch_that_runs_again_is_in_the_table_once(tables: Tables) -> None:
    table = tables.open()
    assert table.last_batch("q") == -1
    assert table.append("q", 0, write(table, "q/0/0", rows(1, 2)))
    again = tables.open()  # a new process
    assert again.last_batch("q") == 0
    assert not again.append("q", 0, write(again, "q/0/0-again", rows(1, 2)))
    assert again.append("q", 1, write(again, "q/0/1", rows(3)))
    assert again.last_batch("other") == -1, "each query counts for itself"
    assert tables.rows() == rows(1, 2, 3)


def test_batch_of_two_processes_is_committed_once(tables: Tables) -> None:
    one, two = tables.open(), tables.open()
    first, second = write(one, "q/0/0", rows(1)), write(two, "q/0/0-2", rows(1))
    assert one.append("q", 0, first)
    assert not two.append("q", 0, second), "the other process has committed since this one opened the table"
    assert two.append("p", 0, write(two, "p/0/0", rows(2))), "a commit of another writer does not stop this one"
    assert one.append("q", 1, write(one, "q/0/1", rows(3)))
    assert tables.rows() == rows(1, 2, 3)


def test_batch_that_another_process_commits_meanwhile_is_written_once(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = tables.open(), tables.open()
    first, second = write(one, "q/0/0", rows(1)), write(two, "q/0/0-2", rows(1))
    look = two.last_batch

    def look_and_be_forestalled(query: str) -> int:
        found = look(query)
        one.append("q", 0, first)
        return found

    monkeypatch.setattr(two, "last_batch", look_and_be_forestalled)
    assert not two.append("q", 0, second)
    assert tables.rows() == rows(1)


def test_files_of_lost_attempts_are_deleted_after_the_commit(tables: Tables) -> None:
    table = tables.open()
    lost, other = write(table, "q/0/0-lost", rows(1)), write(table, "q/0/00", rows(7))
    commit_files(table, "q", 0, "q/0/0", write(table, "q/0/0", rows(1)))
    left = {name for name, _ in open_store(table.folder).files("q/0")}
    assert {each.path.rpartition("/")[2] for each in other} < left, "those of another batch"
    assert not {each.path.rpartition("/")[2] for each in lost} & left
    assert tables.rows() == rows(1)


def test_commit_of_an_earlier_attempt_that_comes_late_keeps_its_files(tables: Tables) -> None:
    earlier, table = tables.open(), tables.open()
    late = write(earlier, "q/0/0-late", rows(1, 2))
    files = write(table, "q/0/0", rows(1, 2))
    assert earlier.append("q", 0, late)
    commit_files(table, "q", 0, "q/0/0", files)
    assert tables.rows() == rows(1, 2)


def test_batch_without_rows_is_remembered(tables: Tables) -> None:
    table = tables.open()
    assert table.append("q", 0, write(table, "q/0/0", rows(1)))
    assert table.append("q", 1, [])
    assert tables.open().last_batch("q") == 1
    assert tables.rows() == rows(1)


def test_partitioned_rows_come_back_with_their_values(tables: Tables) -> None:
    table = tables.open("address")
    given = [*rows(1, 2), *rows(3, address="b c/ü"), *rows(4, address="")]
    files = write(table, "q/0/0", given)
    assert sorted(each.partition for each in files) == [("",), ("a",), ("b c/ü",)]
    table.append("q", 0, files)
    found = tables.rows()
    if tables.kind == "delta":  # its protocol stores an empty text as null
        assert found.pop() == {**given.pop(), "address": None}
    assert found == given


def test_null_partition_value_comes_back(tables: Tables) -> None:
    table = tables.open("address")
    table.append("q", 0, write(table, "q/0/0", [*rows(1), *rows(2, address=None)]))
    assert tables.rows() == [*rows(1), *rows(2, address=None)]


def test_keys_that_the_table_has_are_found(tables: Tables) -> None:
    table = tables.open()
    for batch in range(3):
        given = rows(*range(10 * batch, 10 * batch + 10))
        table.append("q", batch, write(table, f"q/0/{batch}", [*given, *rows(100 + batch, address=None)]))
    wanted = pa.table({"address": ["a", "b", "a"], "message_id": ["m7", "m7", "m77"]})
    assert known_keys(wanted, table).to_pylist() == [{"address": "a", "message_id": "m7"}]
    assert known_keys(wanted.slice(0, 0), table).num_rows == 0


def test_files_with_other_keys_are_not_opened(tables: Tables) -> None:
    table = tables.open()
    for batch in range(3):
        files = write(table, f"q/0/{batch}", rows(*range(100 * batch + 100, 100 * batch + 110)))
        table.append("q", batch, files)
        if batch != 1:
            open_store(table.folder).delete(files[0].path)
    wanted = pa.table({"message_id": ["m202", "m207", "m20x"]})
    assert sorted(row["message_id"] for row in known_keys(wanted, table).to_pylist()) == ["m202", "m207"]


def test_keys_that_landed_before_a_time_are_not_read(tables: Tables) -> None:
    table = tables.open()
    times = [datetime(2026, 1, 1, 0, 0, second, 1500, tzinfo=UTC) for second in range(3)]
    for batch, at in enumerate(times):
        files = write(table, f"q/0/{batch}", [{**each, "landed_time": at} for each in rows(batch)])
        table.append("q", batch, files)
        if batch == 0:
            open_store(table.folder).delete(files[0].path)
    wanted = pa.table({"message_id": ["m0", "m1", "m2"]})
    found = known_keys(wanted, tables.open(), times[1]).to_pylist()
    assert sorted(row["message_id"] for row in found) == ["m1", "m2"]
    assert known_keys(wanted, tables.open(), times[1] + timedelta(microseconds=1)).to_pylist() == [{"message_id": "m2"}]


HOSTILE = ["", "\0", "'; --", '"\\"', "%_*?", "é" * 70, "\U0010ffff" * 3, "\U0010ffff" * 200, "z" * 5000, "null", "NaN"]


@pytest.mark.parametrize("partition_by", [(), ("address",)])
def test_keys_with_any_text_are_found(tables: Tables, partition_by: tuple[str, ...]) -> None:
    """Texts come from clients. Each file has one of them, so each is a bound of its file."""
    table = tables.open(*partition_by)
    for batch, text in enumerate(HOSTILE):
        table.append("q", batch, write(table, f"q/0/{batch}", [{**rows(batch)[0], "message_id": text}]))
    for text in HOSTILE:
        wanted = pa.table({"address": ["a"], "message_id": [text]})
        assert known_keys(wanted, tables.open(*partition_by)).num_rows == 1, ascii(text[:10])


@pytest.mark.parametrize("partition_by", [(), ("address",)])
def test_compaction_keeps_rows_and_batches(tables: Tables, partition_by: tuple[str, ...]) -> None:
    table = tables.open(*partition_by)
    for batch in range(12):
        table.append("q", batch, write(table, f"q/0/{batch}", rows(batch)))
    assert tables.files() == 12
    assert table.compact() == 12
    assert tables.files() == 1
    assert tables.rows() == rows(*range(12))
    again = tables.open(*partition_by)
    assert again.last_batch("q") == 11
    assert again.append("q", 12, write(again, "q/0/12", rows(12)))
    assert tables.rows() == rows(*range(13))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda tables: tables.open(fields={**FIELDS, "more": "string"}), "has no column 'more', which the query"),
        (lambda tables: tables.open(fields={**FIELDS, "segment": "string"}), "column 'segment' is .*, and the query"),
        (lambda tables: tables.open(fields={"address": "string"}), "columns that the query does not write: body, "),
        (lambda tables: tables.open("address"), r"is partitioned by \(\), and the query by \('address',\)"),
    ],
)
def test_table_with_other_columns_is_refused(
    tables: Tables, change: Callable[[Tables], TargetTable], text: str
) -> None:
    tables.open()
    with pytest.raises(TargetTableError, match=text):
        change(tables)


@pytest.mark.parametrize(
    ("column", "text"), [("nothing", "there is no column 'nothing'"), ("body", "column 'body' is binary; expected")]
)
def test_column_that_cannot_partition_is_refused(tables: Tables, column: str, text: str) -> None:
    with pytest.raises(PipelineOptionError, match=f"--partition-by: {text}"):
        tables.open(column)


@pytest.mark.parametrize(
    ("name", "properties", "error", "text"),
    [
        ("readings", {}, PipelineOptionError, "expected CATALOG.NAMESPACE.TABLE"),
        ("nothing.sensors.readings", {}, TargetTableError, "catalog 'nothing': .*[(]give --catalog, or"),
    ],
)
def test_iceberg_name_without_catalog_is_refused(
    name: str, properties: dict[str, str], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        open_table("iceberg", name, schema(**FIELDS), (), properties)


def test_commit_whose_answer_is_lost_is_in_the_table_once(tmp_path: Path, rest_catalog: RestCatalogServer) -> None:
    tables = Tables("iceberg", tmp_path, rest_catalog.url)
    table = tables.open()
    rest_catalog.lost = 1
    with pytest.raises(TargetTableError, match="the catalog does not tell if it has batch 0: .*lost"):
        table.append("q", 0, write(table, "q/0/0", rows(1)))
    again = tables.open()
    assert not again.append("q", 0, write(again, "q/0/0-again", rows(1)))
    assert again.append("q", 1, write(again, "q/0/1", rows(2)))
    assert tables.rows() == rows(1, 2)


def test_catalog_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(TargetTableError, match="^catalog 'test': "):
        Tables("iceberg", tmp_path, "http://127.0.0.1:1").open()
