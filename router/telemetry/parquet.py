"""Encoding of telemetry rows as Parquet.

It needs pyarrow, an optional dependency. Therefore only the telemetry process imports this module.
"""

from typing import Any, Final

import pyarrow  # type: ignore[import-untyped, unused-ignore]
import pyarrow.parquet  # type: ignore[import-untyped, unused-ignore]

from sluice.router.telemetry.schema import HISTOGRAM, INT, LONG, TABLES, TEXT, TEXTS, TIME, Row

_TYPES: Final[dict[str, Any]] = {
    INT: pyarrow.int32(),
    LONG: pyarrow.int64(),
    TEXT: pyarrow.string(),
    TIME: pyarrow.timestamp("us", tz="UTC"),
    HISTOGRAM: pyarrow.map_(pyarrow.int32(), pyarrow.int64()),
    TEXTS: pyarrow.map_(pyarrow.string(), pyarrow.string()),
}


def encode(table: str, rows: list[Row]) -> bytes:
    """Return the octets of a Parquet file with these rows."""
    columns, fields = [], []
    for name, kind in TABLES[table].items():
        values = [row.get(name) for row in rows]
        if kind in (HISTOGRAM, TEXTS):
            values = [None if value is None else list(value.items()) for value in values]
        columns.append(pyarrow.array(values, type=_TYPES[kind]))
        fields.append(pyarrow.field(name, _TYPES[kind]))
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(
        pyarrow.Table.from_arrays(columns, schema=pyarrow.schema(fields)),
        sink,
        compression="zstd",
        write_page_checksum=True,
    )
    octets: bytes = sink.getvalue().to_pybytes()
    return octets
