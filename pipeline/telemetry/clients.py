"""Clients: the attributes that a connection keeps when its client reconnects. Computed with Arrow, as in hourly.py."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sluice.pipeline.telemetry.hourly import schema
from sluice.router.telemetry.schema import LONG, TEXT

TABLE: Final = "dim_connection"
READS: Final = ("boot_id", "connection_id", "container", "user", "peer", "listener")
CONNECTION: Final = ("router", "boot_id", "connection_id")
#: Attributes of a client, by its connection.
KNOWN: Final = ("client", "host", "listener")
COLUMNS: Final[Mapping[str, str]] = {
    "router": TEXT, "boot_id": TEXT, "connection_id": LONG, **dict.fromkeys(KNOWN, TEXT)
}  # fmt: skip
_ANONYMOUS: Final = "anonymous"
# Digits and hexadecimal numbers in a container id differ with each start of a client. A hexadecimal number of 8 to 11
# digits counts only as a word of its own that has a decimal digit.
_VOLATILE: Final = re.compile(
    r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{12,}"
    r"|(?<![0-9a-zA-Z])(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,11}(?![0-9a-zA-Z])|[0-9]+"
)


def pattern(container: str | None) -> str:
    """Return a container id with `*` for the parts that differ with each start of its client."""
    return _VOLATILE.sub("*", container or "")


def to_client_rows(rows: pa.Table) -> pa.Table:
    """Convert rows read from the table (`READS` and the router) to COLUMNS."""
    containers = _texts(rows, "container")
    one_row_per_connection = containers.unique()
    patterns = pa.array(map(pattern, one_row_per_connection.to_pylist()), pa.string()).take(
        pc.index_in(containers, one_row_per_connection)
    )
    user = _texts(rows, "user")
    # The client's name includes the user only after a login; a null user counts as none.
    login = pc.fill_null(pc.not_equal(user, _ANONYMOUS), False)
    found = {name: _texts(rows, name) for name in ("router", "boot_id", "listener")}
    found["connection_id"] = rows.column("connection_id").combine_chunks()
    found["client"] = pc.if_else(login, pc.binary_join_element_wise(user, patterns, "@"), patterns)
    found["host"] = pc.replace_substring_regex(_texts(rows, "peer"), ":[0-9]+$", "")
    return pa.table([found[name] for name in COLUMNS], schema=schema(COLUMNS))


def client_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Convert rows that Spark has read to COLUMNS."""
    for batch in batches:
        yield from to_client_rows(pa.Table.from_batches([batch])).to_batches()


def one_row_per_connection(rows: pa.Table) -> pa.Table:
    """Return one row for each connection."""
    found = rows.group_by(list(CONNECTION), use_threads=False).aggregate([(name, "first") for name in KNOWN])
    return found.rename_columns([*CONNECTION, *KNOWN]) if rows.num_rows else rows


def with_clients(rows: pa.Table, clients: pa.Table, column: str, suffix: str) -> pa.Table:
    """Add the client of the connection in `column`: KNOWN, each with the suffix; null if unknown."""
    renamed = clients.rename_columns(["router", "boot_id", column, *(name + suffix for name in KNOWN)])
    return rows.join(renamed, ["router", "boot_id", column], join_type="left outer", use_threads=False)


def _texts(rows: pa.Table, name: str) -> pa.Array:
    return rows.column(name).cast(pa.string()).combine_chunks()
