"""Tables of each format as DuckDB reads them: rows, values, and files that it skips by their statistics."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")
from sluice.pipeline.tables import FORMATS
from tests.pipeline.second_engine import delta, iceberg, query
from tests.unit.pipeline.tables.test_tables import HOSTILE, Tables, rows, write

COLUMNS = "address, message_id, segment, body, landed_time"


@pytest.fixture(params=FORMATS)
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Tables:
    return Tables(request.param, tmp_path)


def source(tables: Tables) -> str:
    """Return the table for a FROM clause of DuckDB."""
    return delta(tables.folder / "table") if tables.kind == "delta" else iceberg(tables.catalog, "sensors.readings")


@pytest.mark.parametrize("partition_by", [(), ("address",)])
def test_second_engine_reads_the_rows_before_and_after_compaction(
    tables: Tables, partition_by: tuple[str, ...]
) -> None:
    table = tables.open(*partition_by)
    given = [{**each, "landed_time": None} for each in (*rows(1, 2), *rows(3, address="b c/ü"), *rows(4, address=None))]
    for batch, row in enumerate(given):
        table.append("q", batch, write(table, f"q/0/{batch}", [row]))
    expected = [tuple(row.values()) for row in given]
    assert query(f"SELECT {COLUMNS} FROM {source(tables)} ORDER BY segment") == expected
    table.compact()
    assert query(f"SELECT {COLUMNS} FROM {source(tables)} ORDER BY segment") == expected


def test_second_engine_finds_any_text_by_statistics(tables: Tables) -> None:
    table = tables.open()
    for batch, text in enumerate(HOSTILE):
        table.append("q", batch, write(table, f"q/0/{batch}", [{**rows(batch)[0], "message_id": text}]))
    for batch, text in enumerate(HOSTILE):
        found = query(f"SELECT segment FROM {source(tables)} WHERE message_id = ?", text)
        assert found == [(batch,)], ascii(text[:10])
