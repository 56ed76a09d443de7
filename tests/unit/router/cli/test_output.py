"""Text written by the tools: no character of it controls the terminal."""

import io
import json
import sys
import unicodedata

import pytest

from sluice.router.cli.output import EscapingStream, escape_output, one_line, printable, raw_output, to_json

EVERYTHING = "".join(map(chr, range(sys.maxunicode + 1)))  # lone surrogates included
DANGEROUS = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # control, format (including bidi), surrogates, line separators


def test_dangerous_characters_are_escaped() -> None:
    for text in (one_line(EVERYTHING), printable(EVERYTHING)):
        left = {each for each in text if unicodedata.category(each) in DANGEROUS}
        assert left == (set() if text == one_line(EVERYTHING) else {"\n", "\t"})


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("\x1b]0;t\x07", r"\x1b]0;t\x07"),
        ("\x7f\x9b", r"\x7f\x9b"),
        ("a\u202eb\u2066\u2069", r"a\u202eb\u2066\u2069"),
        ("\ud800\U000e0001", r"\ud800\U000e0001"),
        ("a\r\nb\tc", r"a\r\nb\tc"),
        ("Grüße, ключ, 名前 \\x1b", "Grüße, ключ, 名前 \\x1b"),
    ],
)
def test_control_characters_are_shown_as_escapes(text: str, escaped: str) -> None:
    assert one_line(text) == escaped


def test_json_keeps_text_unescaped() -> None:
    value = {EVERYTHING[:0x3000]: [EVERYTHING[:0x3000], None, 1.5]}
    text = to_json(value, 2)
    assert json.loads(text) == value
    assert text.replace("\n", "").isprintable()


def test_streams_escape_all_printed_text() -> None:
    before = sys.stdout
    stream = io.StringIO()
    sys.stdout = stream
    try:
        with escape_output():
            with escape_output():  # escaped only once
                print("a\x1b[2J", end="\r\n")
            sys.stdout.writelines(iter(["\x07", "\n"]))
            assert raw_output() is stream
        assert sys.stdout is stream
    finally:
        sys.stdout = before
    assert stream.getvalue() == "a\\x1b[2J\\r\n\\x07\n"


def test_characters_missing_in_encoding_are_escaped() -> None:
    octets = io.BytesIO()
    with io.TextIOWrapper(octets, "ascii") as file:
        stream = EscapingStream(file)
        assert stream.write("ключ\n") == 5
        stream.flush()
        assert octets.getvalue() == b"\\u043a\\u043b\\u044e\\u0447\n"


def test_closed_streams_stay_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with escape_output():
        print("nobody reads it")
        assert sys.stdout is None
