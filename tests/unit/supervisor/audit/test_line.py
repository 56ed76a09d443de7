"""Audit events as lines: escapes, bounds, and the format of times."""

import json
import uuid
from typing import Any

import pytest

from sluice.supervisor.audit.line import MAX_LINE_OCTETS, encode, timestamp, with_sequence_number


def event(**detail: Any) -> dict[str, Any]:
    return {"time": timestamp(0), "event": "login", "user": None, "detail": detail}


def decoded(line: bytes) -> Any:
    assert line.isascii()
    assert b"\n" not in line
    return json.loads(line)


def test_timestamp_is_rfc_3339_in_utc_with_microseconds() -> None:
    assert timestamp(0) == "1970-01-01T00:00:00.000000Z"
    assert timestamp(1_700_000_000_000_001_999) == "2023-11-14T22:13:20.000001Z"


def test_members_without_value_are_left_out() -> None:
    assert decoded(encode(event(reason=None, mechanism="PLAIN"))) == {
        "time": "1970-01-01T00:00:00.000000Z", "event": "login", "detail": {"mechanism": "PLAIN"},
    }  # fmt: skip


def test_numbered_line_begins_with_its_sequence() -> None:
    line = with_sequence_number(encode(event()), 17)
    assert line.startswith(b'{"sequence":17,"time":')
    assert line.endswith(b"}\n")
    assert json.loads(line)["sequence"] == 17


@pytest.mark.parametrize(
    "text",
    [
        'x"},{"event":"router.stop"}', "a\nb\r\n{}", "\x1b[2J\x07\x00", "\u202eevil\u2028\u2029", "\U0001f600",
        '"cut":true',
    ],
)  # fmt: skip
def test_peer_text_stays_value_of_one_line(text: str) -> None:
    assert decoded(encode(event(address=text)))["detail"] == {"address": text}


def test_text_and_numbers_that_json_cannot_hold_do_not_lose_the_event() -> None:
    found = decoded(encode(event(address="\ud800 alone", port=10**40)))
    assert found["detail"] == {"address": "\\ud800 alone", "port": 10**40}


def test_long_text_is_cut_and_marked() -> None:
    found = decoded(encode(event(address="a" * 5000)))
    assert found["cut"] is True
    assert found["detail"]["address"] == "a" * 1024 + "..."
    assert "cut" not in decoded(encode(event(address="a" * 1024)))


@pytest.mark.parametrize(
    "value",
    [
        {f"name{number}": "\U0001f600" * 2000 for number in range(500)},
        ["x" * 2000] * 5000,
        {"\U0001f600" * 2000: {"y" * 2000: ["z" * 2000] * 100}},
    ],
)
def test_line_length_is_bounded_for_any_value(value: Any) -> None:
    given = {**event(asked=value, reason="\U0001f600" * 9000), "user": "\U0001f600" * 9000, "vhost": "\x00" * 9000}
    line = encode(given)
    assert len(line) <= MAX_LINE_OCTETS
    assert decoded(line)["cut"] is True


def test_nested_values_are_cut_at_a_depth() -> None:
    deep: Any = "end"
    for _ in range(100):
        deep = [deep]
    found = decoded(encode(event(asked=deep)))
    assert found["cut"] is True
    assert "end" not in json.dumps(found)


def test_values_without_json_type_become_text() -> None:
    name = uuid.UUID(int=5)
    found = decoded(encode(event(a=float("nan"), b=float("inf"), c=b"\x00\xff", d=name, e=(1, 2), f=1.5, g=True)))
    assert found["detail"] == {"a": "nan", "b": "inf", "c": "00ff", "d": str(name), "e": [1, 2], "f": 1.5, "g": True}
