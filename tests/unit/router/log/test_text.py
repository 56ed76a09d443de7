"""Texts of log lines that come from peers: truncation and escapes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.router.log.text import CONTINUED, MAX_TEXT, escape_unprintable, place, truncate_text


@given(st.text(st.characters(), max_size=50).map(lambda text: text * 60))
def test_truncated_text_is_beginning_within_limit(text: str) -> None:
    found = truncate_text(text)
    assert len(found.encode("utf-8", "backslashreplace")) <= MAX_TEXT
    assert text.encode("utf-8", "backslashreplace").startswith(found.encode("utf-8", "backslashreplace"))


@pytest.mark.parametrize(("character", "kept"), [("a", MAX_TEXT), ("ü", MAX_TEXT // 2), ("€", MAX_TEXT // 3)])
def test_text_is_cut_at_end_of_character(character: str, kept: int) -> None:
    assert truncate_text(character * MAX_TEXT) == character * kept
    assert truncate_text(character * kept) == character * kept


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


def test_place_is_that_of_innermost_frame() -> None:
    def fail() -> None:
        raise KeyError("text of the peer")

    with pytest.raises(KeyError) as caught:
        fail()
    line = fail.__code__.co_firstlineno + 1
    assert place(caught.value) == f"KeyError {__file__}:{line}"
    assert place(ValueError("never raised")) == "ValueError "
