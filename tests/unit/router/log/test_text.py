"""Texts of log lines that come from peers: truncation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.router.log.text import MAX_TEXT, place, truncate_text


@given(st.text(st.characters(), max_size=50).map(lambda text: text * 60))
def test_truncated_text_is_beginning_within_limit(text: str) -> None:
    found = truncate_text(text)
    assert len(found.encode("utf-8", "backslashreplace")) <= MAX_TEXT
    assert text.encode("utf-8", "backslashreplace").startswith(found.encode("utf-8", "backslashreplace"))


@pytest.mark.parametrize(("character", "kept"), [("a", MAX_TEXT), ("ü", MAX_TEXT // 2), ("€", MAX_TEXT // 3)])
def test_text_is_cut_at_end_of_character(character: str, kept: int) -> None:
    assert truncate_text(character * MAX_TEXT) == character * kept
    assert truncate_text(character * kept) == character * kept


def test_place_is_that_of_innermost_frame() -> None:
    def fail() -> None:
        raise KeyError("text of the peer")

    with pytest.raises(KeyError) as caught:
        fail()
    line = fail.__code__.co_firstlineno + 1
    assert place(caught.value) == f"KeyError {__file__}:{line}"
    assert place(ValueError("never raised")) == "ValueError "
