"""Read the router's telemetry files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.system.router import poll

Row = dict[str, Any]


def rows(path: Path, table: str) -> list[Row]:
    """Return all rows of a table, from Parquet and JSON files."""
    return list(_rows(path / "v1" / table))


def _rows(folder: Path) -> Iterator[Row]:
    for file in sorted(folder.glob("router=*/date=*/hour=*/*")):
        if file.suffix == ".jsonl":
            yield from (json.loads(line) for line in file.read_text().splitlines())
        elif file.suffix == ".parquet":
            import pyarrow.parquet

            yield from pyarrow.parquet.ParquetFile(file).read().to_pylist()


def total(found: list[Row], column: str, **wanted: Any) -> int:
    """Return the sum of a column over the rows that have these values."""
    return sum(row[column] for row in found if all(row[name] == value for name, value in wanted.items()))


def wait_total(path: Path, table: str, column: str, count: int, timeout: float = 15.0, **wanted: Any) -> list[Row]:
    """Return the rows of a table once the sum of a column is at least `count`."""
    found: list[Row] = []

    def come() -> bool:
        found[:] = rows(path, table)
        return total(found, column, **wanted) >= count

    poll(come, f"{count} {column} in {table}", timeout)
    return found
