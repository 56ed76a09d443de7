"""Statistics in the log of Delta tables: bounds, and the rows that readers find with them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from sluice.pipeline.tables.statistics import file_statistics
from sluice.router import json_codec

TIME = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
PAYLOAD = pa.struct([("celsius", pa.float64())])
SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("never", pa.string()),
        ("number", pa.int32()),
        ("flag", pa.bool_()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("body", pa.binary()),
        ("map", pa.map_(pa.string(), pa.string())),
        ("list", pa.list_(pa.int64())),
        ("payload", PAYLOAD),
    ]
)
ROW = {"text": "b", "number": 2, "flag": True, "at": TIME, "body": b"\xff", "payload": {"celsius": float("nan")}}
ROWS = [ROW, {**ROW, "text": "a", "number": None, "flag": False, "payload": None}]


def test_statistics_have_bounds_of_each_column():
    assert file_statistics(pa.Table.from_pylist(ROWS, SCHEMA)) == {
        "numRecords": 2,
        "minValues": {"text": "a", "number": 2, "flag": False, "at": "2026-01-02T03:04:05.678Z", "payload": {}},
        "maxValues": {"text": "b", "number": 2, "flag": True, "at": "2026-01-02T03:04:05.679Z", "payload": {}},
        "nullCount": {"text": 0, "never": 2, "number": 1, "flag": 0, "at": 0, "payload": {}},
    }


def test_bounds_of_long_texts_are_short():
    found = file_statistics(pa.table({"text": ["a" * 5000, "b" * 5000]}))
    assert found["minValues"] == {"text": "a" * 64}
    assert found["maxValues"] == {"text": "b" * 64 + "\U0010ffff"}


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["\U0010ffff" * 65 + "x"]),
        pa.array([datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)], pa.timestamp("us", tz="UTC")),
        pa.array([-(1 << 62)], pa.timestamp("us", tz="UTC")),
        pa.array([1.5]),
        pa.array([datetime(2026, 1, 1)], pa.timestamp("us")),
    ],
    ids=["text", "last-time", "time-before-year-1", "float", "local-time"],
)
def test_file_with_a_column_without_bounds_has_none(column: Any):
    assert file_statistics(pa.table({"number": [1], "column": column})) == {"numRecords": 1}


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        (ds.field("payload").is_null(), 1),
        (ds.field("payload").is_valid(), 1),
        (ds.field("never").is_null(), 2),
        (ds.field("number").is_null(), 1),
        (ds.field("number") == 2, 1),
        (ds.field("number") == 3, 0),
        (ds.field("text") <= "a", 1),
        (ds.field("at") == TIME, 2),
        (ds.field("body") == b"\xff", 2),
    ],
)
def test_reader_that_filters_finds_its_rows(tmp_path: Path, condition: Any, rows: int):
    deltalake = pytest.importorskip("deltalake")
    table = pa.Table.from_pylist(ROWS, SCHEMA)
    made = deltalake.DeltaTable.create(str(tmp_path), SCHEMA)
    pq.write_table(table, tmp_path / "file.parquet")
    octets = (tmp_path / "file.parquet").stat().st_size
    statistics = json_codec.encode(file_statistics(table)).decode()
    action = deltalake.transaction.AddAction("file.parquet", octets, {}, 0, True, statistics)
    made.create_write_transaction([action], "append", made.schema(), [])
    assert deltalake.DeltaTable(str(tmp_path)).to_pyarrow_dataset().to_table(filter=condition).num_rows == rows
