"""Lines of a frame of `sluice top`, and their width on a terminal."""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from msgspec import Struct

from sluice.router.cli.output import one_line

PLAIN, BOLD, DIM, REVERSE, RED, YELLOW = "", "bold", "dim", "reverse", "red", "yellow"
_WIDE: Final = ("W", "F")  # East Asian widths of characters that take two cells


class Line(Struct, frozen=True):
    """Text in one style."""

    text: str
    style: str = PLAIN

    def lines(self, width: int) -> Iterator["Line"]:
        """Yield lines of at most `width` cells, broken between words if possible."""
        for part in wrap(one_line(self.text), width):
            yield Line(part, self.style)


class Block(Protocol):
    """Part of a frame that adapts to the width of the terminal."""

    def lines(self, width: int) -> Iterable[Line]:
        """Return its lines, for a terminal of `width` cells."""


Frame = Sequence[Block]


def frame_lines(frame: Frame, width: int) -> Iterator[Line]:
    """Yield the lines of a frame, none wider than `width` cells."""
    for block in frame:
        yield from block.lines(width)


def cell_len(text: str) -> int:
    """Return the number of cells that a terminal needs for printable text."""
    return len(text) if text.isascii() else sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in _WIDE else 1


def crop(text: str, width: int) -> str:
    """Return the longest beginning of a text that has at most `width` cells."""
    if cell_len(text) <= width:
        return text
    used = 0
    for at, character in enumerate(text):
        used += _cells(character)
        if used > width:
            return text[:at]
    return text


def wrap(text: str, width: int) -> Iterator[str]:
    """Yield parts of a text of at most `width` cells, broken at blanks if possible. width: at least 2."""
    while cell_len(text) > width:
        part = crop(text, width)
        blank = part.rfind(" ") if text[len(part)] != " " else len(part)
        end = blank if blank > 0 else len(part)
        yield text[:end].rstrip()
        text = text[end:].lstrip()
    yield text
