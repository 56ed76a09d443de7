"""Encoding of columns into messages, checked against the client's codec and by `decode`."""

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.router.client.message import Message, decode

pa = pytest.importorskip("pyarrow")
from sluice.pipeline import columns  # noqa: E402
from sluice.pipeline.encode import encode, encoded_messages  # noqa: E402

TEXTS = ("to", "subject", "reply_to", "group_id", "reply_to_group_id", "correlation_id")


def messages(count: int, **arrays: Any) -> list[Message]:
    made = encode(arrays, count, "q/1/0", 0)
    assert made.count == made.left == count
    return [decode(made[row]) for row in range(count)]


def maps(kind: Any, *values: Any) -> Any:
    return pa.array(values, pa.map_(pa.string(), kind))


def test_row_with_all_fields_is_encoded():
    (message,) = messages(
        1, body=pa.array([b"octets"]), durable=pa.array([True]), priority=pa.array([7]), ttl_ms=pa.array([5000]),
        message_id=pa.array(["m"]), user_id=pa.array([b"u"]), to=pa.array(["t"]), subject=pa.array(["s"]),
        reply_to=pa.array(["r"]), correlation_id=pa.array(["ul:7"]), content_type=pa.array(["text/plain"]),
        content_encoding=pa.array(["gzip"]), absolute_expiry_time=pa.array([2_000_999]),
        creation_time=pa.array([-1]), group_id=pa.array(["g"]), group_sequence=pa.array([9]),
        reply_to_group_id=pa.array(["rg"]), application_properties=maps(pa.string(), [("a", "x"), ("b", None)]),
        message_annotations=maps(pa.int64(), [("x-opt-a", 1)]),
    )  # fmt: skip
    assert message.annotations.pop("x-opt-a") == 1
    message.annotations.clear()
    assert message == Message(
        b"octets", durable=True, priority=7, ttl=5000, message_id="m", user_id=b"u", to="t", subject="s",
        reply_to="r", correlation_id=7, content_type="text/plain", content_encoding="gzip", absolute_expiry_time=2000,
        creation_time=-1, group_id="g", group_sequence=9, reply_to_group_id="rg", properties={"a": "x", "b": None},
    )  # fmt: skip


def test_bodies_are_encoded():
    assert [each.body for each in messages(3, body=pa.array([b"", None, b"x" * 300]))] == [b"", None, b"x" * 300]
    assert [each.body for each in messages(3, body=pa.array(["grün", None, ""]))] == ["grün", None, ""]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.bool_(), [True, False, None]),
        (pa.float64(), [1.5, None, -0.0]),
        (pa.int64(), [0, -128, -129, 127, 128, 2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), None]),
        (pa.string(), ["", "x" * 255, "x" * 256, None]),
    ],
)
def test_map_values_keep_type(kind: Any, values: list[Any]):
    given_ = {str(number): value for number, value in enumerate(values)}
    (message,) = messages(1, application_properties=maps(kind, list(given_.items())), body=pa.array(["b"]))
    assert message.properties == given_


def test_null_id_becomes_numbered_id():
    made = encode({"message_id": pa.array(["a", None, None]), "body": pa.array(["x"] * 3)}, 3, "q/1/0", 70)
    assert [decode(made[row]).message_id for row in range(3)] == ["a", "q/1/0/71", "q/1/0/72"]


def test_array_slices_respect_offset():
    """A slice shares the buffers of the whole array, so offsets count."""
    texts = [None if number % 3 == 0 else f"t{number}" for number in range(40)]
    pairs = [None if number % 4 == 0 else [("n", number)] for number in range(40)]
    flags = [None if number % 5 == 0 else number % 2 == 0 for number in range(40)]
    arrays = {
        "subject": pa.array(texts)[11:31], "application_properties": maps(pa.int64(), *pairs)[11:31],
        "durable": pa.array(flags)[11:31], "body": pa.array(texts)[11:31],
    }  # fmt: skip
    for number, message in zip(range(11, 31), messages(20, **arrays), strict=True):
        assert message.subject == message.body == texts[number]
        assert message.properties == dict(pairs[number] or [])
        assert message.durable == flags[number]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("priority", 256, "column 'priority': 256 is out of range: 0 to 255"),
        ("ttl_ms", -1, "column 'ttl_ms': -1 is out of range: 0 to 4294967295"),
        ("group_sequence", 2**32, "column 'group_sequence': 4294967296 is out of range"),
        ("content_type", "ä", "column 'content_type': 'ä' is not ASCII"),
        ("message_annotations", [("ä", "x")], "column 'message_annotations': 'ä' is not ASCII"),
    ],
)
def test_values_outside_field_range_are_refused(name: str, value: Any, message: str):
    array = maps(pa.string(), value) if isinstance(value, list) else pa.array([value])
    with pytest.raises(ValueError, match=message):
        encode({name: array, "body": pa.array(["x"])}, 1, "p", 0)


PLACES = {
    "artemis": ("properties", "_AMQ_DUPL_ID", "application_properties"),
    "rabbitmq": ("annotations", "x-deduplication-header", "message_annotations"),
}


def duplicate_ids(broker: str, count: int, first: int = 0, **arrays: Any) -> list[Any]:
    made = encode(arrays, count, "q/1/0", first, duplicate_ids=broker)
    place, key, _ = PLACES[broker]
    return [getattr(decode(made[row]), place).pop(key) for row in range(count)]


@pytest.mark.parametrize("broker", PLACES)
def test_duplicate_id_is_the_message_id_as_text(broker: str):
    names = pa.array(["m", "ul:7"])
    assert duplicate_ids(broker, 2, message_id=names, body=pa.array(["x", "y"])) == ["m", "ul:7"]


@pytest.mark.parametrize("broker", PLACES)
def test_duplicate_id_joins_the_entries_of_the_row(broker: str):
    place, key, column = PLACES[broker]
    arrays = {column: maps(pa.string(), [("x-a", "1")], None, []), "message_id": pa.array(["a", "b", "c"])}
    made = encode({**arrays, "body": pa.array(["x"] * 3)}, 3, "q", 0, duplicate_ids=broker)
    found = [dict(getattr(decode(made[row]), place)) for row in range(3)]
    assert found == [{"x-a": "1", key: "a"}, {key: "b"}, {key: "c"}]


@pytest.mark.parametrize("broker", PLACES)
def test_row_without_message_id_gets_equal_duplicate_ids_again(broker: str):
    arrays = {"message_id": pa.array([None, None], pa.string()), "body": pa.array(["x", "y"])}
    once, again = (duplicate_ids(broker, 2, 70, **arrays) for _ in range(2))
    assert once == again
    assert [each.rpartition("/")[0] for each in once] == ["q/1/0/70", "q/1/0/71"]
    assert duplicate_ids(broker, 2, 70, body=arrays["body"])[0].startswith("q/1/0/70/")


@pytest.mark.parametrize("broker", PLACES)
def test_reordered_rows_get_other_duplicate_ids(broker: str):
    """A shuffle may return the rows of a task in another order: the broker must lose none of them."""
    one, other = (duplicate_ids(broker, 2, 0, body=pa.array(bodies)) for bodies in (["x", "y"], ["y", "x"]))
    assert not set(one) & set(other)


@pytest.mark.parametrize("broker", PLACES)
def test_key_of_the_duplicate_id_in_a_column_makes_a_bad_row(broker: str):
    _, key, column = PLACES[broker]
    bad: list[tuple[int, str]] = []
    arrays = {column: maps(pa.string(), [(key, "own")], [("x-a", "1")]), "body": pa.array(["x", "y"])}
    assert encode(arrays, 2, "q", 0, duplicate_ids=broker, bad=bad).count == 1
    assert bad == [(0, f"column {column!r}: option duplicateIds sets the key {key!r}")]


def test_columns_of_different_length_are_refused():
    with pytest.raises(ValueError, match="column 'body' has 2 values for 1 rows"):
        encode({"body": pa.array(["x", "y"])}, 1, "p", 0)


def test_whole_messages_stay_unchanged():
    octets = [Message("a").encode(), b"", b"no message"]
    made = encoded_messages(pa.array([b"skipped", *octets])[1:], 3, [])
    assert [made[row] for row in range(3)] == octets


ids = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["ul:5", "ul:x", "ul:99999999999999999999", "uuid:0", "bin:00ff", "bin:0", "str:ul:5", "str:"]),
    st.uuids().map(lambda each: f"uuid:{each}"),
)


@given(st.lists(st.tuples(st.none() | st.text(max_size=300), ids, st.none() | st.datetimes(
    datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30))), max_size=20))  # fmt: skip
def test_decode_reverses_encode(rows: list[tuple[Any, Any, Any]]):
    arrays = {
        **{name: pa.array([row[0] for row in rows], pa.string()) for name in TEXTS if name != "correlation_id"},
        "message_id": pa.array([row[1] for row in rows], pa.string()),
        "creation_time": pa.array([row[2] for row in rows], pa.timestamp("us")).cast(pa.int64()),
        "body": pa.array([row[0] for row in rows], pa.string()),
    }
    made = encode(arrays, len(rows), "p", 0)
    found = columns.decoded_columns(pa.array([made[row] for row in range(len(rows))], pa.binary()), [*arrays])
    for name in TEXTS[:-1]:
        assert found[name].to_pylist() == [row[0] for row in rows]
    assert found["body"].to_pylist() == [b"null" if row[0] is None else row[0].encode() for row in rows]
    again = encode({"message_id": found["message_id"], "body": arrays["body"]}, len(rows), "p", 0)
    once = encode({"message_id": arrays["message_id"], "body": arrays["body"]}, len(rows), "p", 0)
    assert [again[row] for row in range(len(rows))] == [once[row] for row in range(len(rows))]
    assert found["creation_time"].cast(pa.int64()).to_pylist() == [
        micros and micros // 1000 * 1000 for micros in arrays["creation_time"].to_pylist()
    ]
