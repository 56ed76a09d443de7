"""Escapes of texts that come from peers."""

import pytest

from sluice.router.escapes import CONTINUED, escape_unprintable


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a\tb ü", "a\tb ü"),
        ("a\nb\r", "a\\nb\\r"),
        ("\x1b[2J\x00", "\\x1b[2J\\x00"),
        ("\u202eabc\u2028", "\\u202eabc\\u2028"),
        ("\U000e0001", "\\U000e0001"),
    ],
)
def test_characters_that_control_terminals_are_escaped(text: str, escaped: str) -> None:
    assert escape_unprintable(text) == escaped


def test_lines_of_traceback_are_marked_and_escaped() -> None:
    assert escape_unprintable("one\ntwo\x1b", lines=True) == f"one{CONTINUED}two\\x1b"
