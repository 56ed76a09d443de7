"""Lines and the screen of `sluice top`."""

import io

import pytest

from sluice.router.cli.top_line import RED, Frame, Line, cell_len, frame_lines, wrap
from sluice.router.cli.top_screen import PLAIN_WIDTH, Screen
from sluice.router.cli.top_table import NUMBER, SERIES, FittedTable


class TextTerminal(io.StringIO):
    """Output that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> TextTerminal:
    """Terminal of 30 columns and 3 rows."""
    for name, value in (("TERM", "xterm"), ("COLUMNS", "30"), ("LINES", "3")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    return TextTerminal()


@pytest.mark.parametrize(
    ("text", "width", "parts"),
    [
        ("", 5, [""]),
        ("short", 5, ["short"]),
        ("two words", 8, ["two", "words"]),
        ("two  words", 5, ["two", "words"]),
        ("unbroken", 5, ["unbro", "ken"]),
        ("地址地址", 5, ["地址", "地址"]),
        ("e\u0301e\u0301", 2, ["e\u0301e\u0301"]),
    ],
)
def test_wrap_breaks_between_words(text: str, width: int, parts: list[str]) -> None:
    assert list(wrap(text, width)) == parts
    assert all(cell_len(part) <= width for part in parts)


def test_series_keeps_its_end_and_the_numbers_beside_it() -> None:
    table = FittedTable("T", [("", SERIES), ("most", NUMBER)])
    table.add_row("▁" * 50 + "█", "1,234")
    assert [line.text for line in table.lines(21)][2] == "▁" * 13 + "█  1,234"


def test_frame_in_file_has_no_control_sequences() -> None:
    output = io.StringIO()
    screen = Screen(output)
    with screen.shown():
        screen.show([Line("a " * PLAIN_WIDTH, RED)])
    lines = output.getvalue().splitlines()
    assert max(map(len, lines)) <= PLAIN_WIDTH
    assert "".join(lines).replace(" ", "") == "a" * PLAIN_WIDTH


def test_screen_shows_rows_that_fit_and_restores_terminal(terminal: TextTerminal) -> None:
    screen = Screen(terminal)
    with screen.shown():
        screen.show([Line(f"line {number}", RED) for number in range(9)])
    shown = terminal.getvalue()
    assert shown.startswith("\x1b[?1049h\x1b[?25l\x1b[H\x1b[31mline 0\x1b[m\x1b[K\n")
    assert "line 2" in shown
    assert "line 3" not in shown
    assert shown.endswith("\x1b[?25h\x1b[?1049l")


def test_screen_restores_terminal_after_error(terminal: TextTerminal) -> None:
    with pytest.raises(RuntimeError), Screen(terminal).shown():
        raise RuntimeError
    assert terminal.getvalue().endswith("\x1b[?1049l")


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_terminal_without_colours_gets_none(
    name: str, value: str, terminal: TextTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    Screen(terminal).print([Line("text", RED)])
    assert terminal.getvalue() == "text\n"


def test_control_characters_of_texts_are_escaped_before_widths_are_computed(terminal: TextTerminal) -> None:
    table = FittedTable("T", [("name", NUMBER)])
    table.add_row("\x1b[2Jx\n")
    frame: Frame = [Line("\x1b]0;title\x07\nnext"), table]
    Screen(terminal).print(frame)
    shown = terminal.getvalue()
    assert not any(sequence in shown for sequence in ("\x1b[2J", "\x1b]", "\x07"))
    assert all(line.text.isprintable() and cell_len(line.text) <= 30 for line in frame_lines(frame, 30))
