"""Client names derived from container ids, and joins of clients with sums."""

import pytest

pytest.importorskip("pyarrow")
import pyarrow as pa

from sluice.pipeline.telemetry import clients
from sluice.pipeline.telemetry.hourly import schema


@pytest.mark.parametrize(
    ("container", "pattern"),
    [
        ("vm-25001-6e8a1b2c", "vm-*-*"),
        ("vm-25001-e1a2b3c4", "vm-*-*"),
        ("vm-7-12345678", "vm-*-*"),
        ("01234567-89ab-cdef-0123-456789abcdef", "*"),
        ("sensor-0123456789abcdef", "sensor-*"),
        ("sensor-defaced", "sensor-defaced"),
        ("backend3", "backend*"),
        ("deadbeefs", "deadbeefs"),
    ],
)
def test_container_pattern_replaces_numbers(container: str, pattern: str):
    assert clients.pattern(container) == pattern


def connections(*rows):
    """Return the distinct clients of `rows`: router, boot_id, connection_id, container, user, peer, listener."""
    names = ["router", *clients.READS]
    columns = zip(*rows, strict=True)
    table = pa.table([pa.array(each) for each in columns], names=names)
    texts = [name for name in names if name != "connection_id"]
    for name in texts:  # as in Parquet files
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table.column(name).cast(pa.string()).dictionary_encode())
    return clients.one_row_per_connection(clients.to_client_rows(table))


def test_client_names_combine_user_and_container():
    found = connections(
        ("R", "b", 1, "sensor-17", "alice", "10.0.0.1:40001", "amqp"),
        ("R", "b", 1, "sensor-17", "alice", "10.0.0.1:40001", "amqp"),  # a repeated row
        ("R", "b", 2, "store-3", "anonymous", "[::1]:5", None),
        ("R", "b", 3, None, None, None, None),
        ("R", "b", 4, None, "bob", "local", ""),
    ).sort_by("connection_id")
    assert found["connection_id"].to_pylist() == [1, 2, 3, 4]
    assert found["client"].to_pylist() == ["alice@sensor-*", "store-*", "", "bob@"]
    assert found["host"].to_pylist() == ["10.0.0.1", "[::1]", None, "local"]


def test_client_join_keeps_unknown_connections():
    """The join is by router, boot id and connection id. Null and unknown connections stay, without a client."""
    known = connections(
        ("R", "b", 1, "a", None, "h:1", "amqp"), ("S", "b", 1, "s", None, "h:1", "amqp"),
        ("R", "c", 1, "later", None, "h:1", "amqp"),
    )  # fmt: skip
    sums = pa.table({
        "router": ["R", "R", "R", "S"], "boot_id": ["b"] * 4, "connection_in": [1, None, 9, 1], "n": [1, 2, 3, 4]
    })  # fmt: skip
    found = clients.with_clients(sums, known, "connection_in", "_in").sort_by("n")
    assert found["n"].to_pylist() == [1, 2, 3, 4]
    assert found["client_in"].to_pylist() == ["a", None, None, "s"]
    none = clients.with_clients(sums, known.slice(0, 0), "connection_in", "_in")
    assert none["client_in"].to_pylist() == [None] * 4


def test_clients_without_connections_are_empty():
    nothing = clients.one_row_per_connection(schema(clients.COLUMNS).empty_table())
    assert nothing.schema.names == list(clients.COLUMNS)
