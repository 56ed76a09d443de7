"""Types with columns: their AMQP types, pages and refused operations (management.md 5.5 to 5.10)."""

import pytest

from sluice.router.config.schema import SCHEMA
from tests.peer.management import PREFIX
from tests.peer.types import Int, Long, Map, UInt, ULong

CORE = [each for each in SCHEMA.types.values() if each.core_columns]


AMQP_TYPES = {
    "string": str, "ulong": ULong, "uint": UInt, "int": Int, "long": Long, "boolean": bool, "map": Map,
    "list of ulong": list, "list of string": list, "list of long": list,
}  # fmt: skip


@pytest.mark.parametrize("kind", CORE, ids=lambda each: each.name)
def test_columns_and_types_follow_schema(router, kind):
    connection = router.connection()
    router.link(connection, "in", None)
    router.link(connection, "out", "a")
    answer = router.ask("QUERY", {}, entityType=kind.long_name)
    assert answer.body["attributeNames"] == [column.name for column in kind.core_columns]
    for row in answer.body["results"]:
        for column, value in zip(kind.core_columns, row, strict=True):
            if value is None:
                assert column.nullable, column.name
            else:
                assert isinstance(value, AMQP_TYPES[column.amqp_type]), column.name


def test_requested_columns_keep_order(router):
    """Order and repetitions are as requested. A schema attribute without a column is null and shifts nothing."""
    names = ["id", "saslConfigDir", "mode", "id", 5, None]
    answer = router.ask("QUERY", {"attributeNames": names}, entityType=PREFIX + "router")
    assert answer.body["attributeNames"] == ["id", "saslConfigDir", "mode", "id"]
    assert answer.body["results"] == [["QDR", None, "standalone", "QDR"]]


@pytest.mark.parametrize("names", [[], None, "id", {"a": 1}, ["id"] * 64, 7])
def test_query_without_names_returns_all_columns(router, names):
    answer = router.ask("QUERY", {"attributeNames": names}, entityType=PREFIX + "router")
    assert len(answer.body["attributeNames"]) == 33


PAGES = [
    ({}, list(range(10))),
    ({"offset": 0, "count": 3}, [0, 1, 2]),
    ({"offset": ULong(8), "count": ULong(500)}, [8, 9]),
    ({"offset": "7", "count": "2"}, [7, 8]),
    ({"offset": 10}, []),
    ({"offset": 2**40}, []),
    ({"offset": ULong(2**64 - 1), "count": ULong(2**64 - 1)}, []),
    ({"offset": -1}, []),
    ({"count": 0}, list(range(10))),
    ({"count": -4}, list(range(10))),
]


@pytest.mark.parametrize(("page", "expected"), PAGES)
def test_query_pages_are_cut(router, page, expected):
    connection = router.connection()
    identities = [router.link(connection) for _ in range(10)]
    rows = router.query("router.link", "identity", **page)
    assert [row["identity"] for row in rows] == [str(identities[index]) for index in expected]


@pytest.mark.parametrize("key", ["offset", "count"])
@pytest.mark.parametrize("kind", ["router.link", "log"])
def test_non_numeric_page_is_refused(router, key, kind):
    answer = router.ask("QUERY", {}, entityType=PREFIX + kind, **{key: "many"})
    assert answer.outcome == (400, f"'{key}' is not a number: 'many'")


REFUSED: list[tuple[str, str, int, object]] = [
    ("router", "READ", 403, {}), ("router", "CREATE", 403, None), ("router", "UPDATE", 501, {}),
    ("router", "DELETE", 403, {}), ("router.link", "CREATE", 501, None), ("router.link", "DELETE", 501, {}),
    ("router.address", "CREATE", 501, None), ("router.address", "UPDATE", 501, {}),
    ("router.address", "DELETE", 501, {}), ("connection", "CREATE", 501, None), ("connection", "DELETE", 403, {}),
    ("router.config.address", "UPDATE", 501, {}), ("router.config.exchange", "UPDATE", 501, {}),
    ("router.config.binding", "UPDATE", 501, {}), ("router.connection.linkRoute", "UPDATE", 501, {}),
    ("console", "READ", 403, {}), ("console", "CREATE", 403, None), ("console", "UPDATE", 403, None),
    ("console", "DELETE", 403, {}), ("console", "QUERY", 403, {"attributeNames": [], "results": []}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "operation", "status", "body"), REFUSED)
def test_unsupported_operations_are_answered(router, kind, operation, status, body):
    answer = router.ask(operation, {}, type=PREFIX + kind, identity="1")
    assert (answer.status, answer.body) == (status, body)
