"""Content of an answer to QUERY whose rows exceed what Proton decodes (management.md 5.6)."""

from typing import Any

import pytest
from proton import Message

from sluice.router.amqp import codec
from sluice.supervisor.management import values
from sluice.supervisor.management.query_rows import MOST_VALUES, QueryRows, count
from sluice.supervisor.management.response import StatusError
from tests.peer.management import PREFIX
from tests.unit.supervisor.management.managed_router import ManagedRouter

PAGE = 500  # rows per request of the tools of 1.19
LINKS = 2 * PAGE
ONE = values.uint(1)
LIST = values.value([1] * 9)


def decoded(body: bytes) -> Any:
    """Return the body as Proton reads it. Values beyond its limit are missing."""
    message = Message()
    message.decode(b"\x00\x53\x77" + body)
    return message.body


def query_answer(rows: list[list[bytes]], *, paged: bool = False, listed: bool = False, offset: int = 0):
    names = [f"name{number}" for number in range(len(rows[0]))]
    sheet = QueryRows(names, paged=paged, listed=listed)
    for row in rows:
        if not sheet.add(row):
            break
    response = sheet.response(offset)
    body = decoded(response.body)
    assert body["attributeNames"] == names
    assert count(body) <= MOST_VALUES
    return response.description, body["results"]


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("listed", [False, True])
def test_answer_within_limit_is_complete(paged, listed):
    text, results = query_answer([[ONE, LIST, values.NULL]] * 5000, paged=paged, listed=listed)
    assert text is None
    assert results == [[1, [1] * 9, None]] * 5000


def test_trailing_nulls_are_omitted_first():
    text, results = query_answer([[ONE, LIST, *[values.NULL] * 40]] * 2000, paged=True)
    assert text is None
    assert results == [[1, [1] * 9]] * 2000


def test_lists_and_maps_are_omitted_next():
    text, results = query_answer([[ONE, LIST, ONE, values.mapping({"a": 1}), ONE]] * 8000, paged=True)
    assert text == "OK, without name1, name3: an answer has at most 65535 values"
    assert results == [[1, None, 1, None, 1]] * 8000


def test_excess_rows_are_omitted_last():
    text, results = query_answer([[ONE] * 9] * 10_000, offset=7)
    assert len(results) == 6551
    assert results == [[1] * 9] * 6551
    assert text == "OK, without rows from 6558 on: an answer has at most 65535 values"


@pytest.mark.parametrize("rows", [[[ONE] * 9] * 10_000, [[LIST]] * 10_000])
def test_page_beyond_limit_is_refused(rows):
    """Tools take a page with fewer rows than requested as the last one."""
    with pytest.raises(StatusError) as error:
        query_answer(rows, paged=True, listed=True)
    assert error.value.status == 400
    assert "at a time" in error.value.description


def test_requested_columns_are_not_omitted():
    text, results = query_answer([[ONE, LIST, values.NULL]] * 10_000, listed=True)
    assert results == [[1, [1] * 9, None]] * 5039
    assert text == "OK, without rows from 5039 on: an answer has at most 65535 values"


@pytest.mark.parametrize(
    "value",
    [None, 1, "text", [], [1, [2, 3]], {}, {"a": [1, 2], "b": {"c": 1}}],
)
def test_value_count_matches_decoded_value(value):
    encoded = values.value(value)
    assert count(codec.decode_one(encoded)) == count(value)


def test_oversized_explain_answer_is_refused():
    router = ManagedRouter(links=6001)
    connection = router.connection()
    for _ in range(6000):
        router.link(connection, "out", "a")
    assert router.ask("EXPLAIN", address="a", limit=100).status == 200
    answer = router.ask("EXPLAIN", address="a", limit=10_000)
    assert answer.status == 400
    assert answer.description.endswith("values, more than the 65535 that clients decode: ask for less")


def test_pages_contain_all_links():
    """A consumer's link has a list of 128 numbers, so 500 rows exceed what Proton decodes."""
    router = ManagedRouter(links=LINKS + 1)
    connection = router.connection()
    wanted = [str(router.link(connection, "out", f"a{number % 20}")) for number in range(LINKS)]
    found = []
    for offset in (0, PAGE, 2 * PAGE):
        query: dict[str, Any] = {"entityType": PREFIX + "router.link", "offset": offset, "count": PAGE}
        answer = router.ask("QUERY", {}, **query)
        message = Message()
        message.decode(answer.payload)
        body: Any = message.body
        identity = body["attributeNames"].index("identity")
        found += [row[identity] for row in body["results"]]
        assert all(len(row) == len(body["attributeNames"]) for row in body["results"])
        if body["results"]:
            assert answer.description == "OK, without ingressHistogram: an answer has at most 65535 values"
    assert found == wanted


def test_pages_contain_all_entities():
    """A query without a type has the columns of all types."""
    router = ManagedRouter()
    wanted = {str(router.ask("CREATE", {"num1": 1}, type="dummy").body["identity"]) for _ in range(PAGE + 20)}
    found = set()
    sizes = []
    for offset in (0, PAGE, 2 * PAGE):
        answer = router.ask("QUERY", {}, offset=offset, count=PAGE)
        assert answer.outcome == (200, "OK")
        message = Message()
        message.decode(answer.payload)
        body: Any = message.body
        names, rows = body["attributeNames"], body["results"]
        sizes.append(len(rows))
        found |= {dict(zip(names, row, strict=False))["identity"] for row in rows}
    assert sizes == [PAGE, len(found) - PAGE, 0], "each entity once"
    assert found >= wanted


def test_decimal_of_client_is_encoded_in_its_own_type() -> None:
    octets = b"\x84" + bytes(range(8))
    assert values.value({"x": [codec.decode_one(octets)]}) == codec.encode_map(
        [codec.encode_string("x"), codec.encode_list([octets])]
    )
