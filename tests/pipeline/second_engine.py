"""DuckDB as a second reader of tables, with its own readers of Parquet, Delta Lake and Iceberg.

They share no code with delta-rs, pyiceberg and pyarrow, apart from delta-kernel, which delta-rs uses as well. The
extensions come from wheels, because DuckDB would download them when they are loaded.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

EXTENSIONS = ("avro", "delta", "iceberg")  # iceberg's manifests are Avro


def query(sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a query in DuckDB. Skips the test without DuckDB or one of its extensions."""
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    try:
        for name in EXTENSIONS:
            spec = find_spec(f"duckdb_extension_{name}")
            if spec is None or spec.origin is None:
                pytest.skip(f"duckdb-extension-{name} is not installed")
            found = next(Path(spec.origin).parent.glob(f"extensions/v{duckdb.__version__}/*.duckdb_extension"))
            connection.execute(f"LOAD '{found}'")
        rows: list[tuple[Any, ...]] = connection.execute(sql, values).fetchall()
        return rows
    finally:
        connection.close()


def delta(folder: Path) -> str:
    """Return the table in a folder, for the FROM clause."""
    return f"delta_scan('{folder}')"


def iceberg(catalog: dict[str, str], table: str) -> str:
    """Return a table of a catalog of pyiceberg, for the FROM clause: its present metadata file."""
    from pyiceberg.catalog import load_catalog

    return f"iceberg_scan('{load_catalog('test', **catalog).load_table(table).metadata_location}')"
