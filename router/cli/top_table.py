"""Table of `sluice top`: its numbers stay whole, and long names are cut in the middle."""

from collections.abc import Iterator, Sequence
from typing import Final

from sluice.router.cli.output import one_line
from sluice.router.cli.top_line import BOLD, DIM, PLAIN, Line, cell_len, crop

#: Kinds of columns. Names are cut in the middle and series at their beginning; the others stay whole.
NUMBER, WORD, NAME, SERIES = ">", "<", "~", "-"
_GAP: Final = 2  # cells between columns
_LEAST: Final = 8  # cells of a column that is cut


class FittedTable:
    """Table with a title that takes the width it is given. Columns are pairs of heading and kind."""

    def __init__(self, title: str, columns: Sequence[tuple[str, str]]) -> None:
        self._title = title
        self._columns = columns
        self._rows: list[tuple[list[str], str]] = []

    def add_row(self, *cells: str, style: str = PLAIN) -> None:
        """Add a row, with a cell for each column."""
        self._rows.append(([one_line(cell) for cell in cells], style))

    def lines(self, width: int) -> Iterator[Line]:
        """Yield title, headings and rows, of at most `width` cells."""
        widths = self._widths(width)
        yield Line(crop(self._title, width), BOLD)
        for cells, style in ([head for head, _ in self._columns], DIM), *self._rows:
            fitted = map(_fit, cells, widths, (kind for _, kind in self._columns))
            yield Line(crop((" " * _GAP).join(fitted).rstrip(), width), style)

    def _widths(self, most: int) -> list[int]:
        """Return the width of each column. The widest names give way first."""
        widths = [
            max(cell_len(head), *(cell_len(cells[at]) for cells, _ in self._rows), 0)
            for at, (head, _) in enumerate(self._columns)
        ]
        names = [at for at, (_, kind) in enumerate(self._columns) if kind in (NAME, SERIES)]
        excess = sum(widths) + _GAP * (len(widths) - 1) - most
        while excess > 0 and names:
            widest = max(names, key=widths.__getitem__)
            if widths[widest] <= max(_LEAST, cell_len(self._columns[widest][0])):
                break
            widths[widest] -= 1
            excess -= 1
        return widths


def _fit(cell: str, width: int, kind: str) -> str:
    """Return a cell with the width of its column."""
    if kind == SERIES:
        cell = _tail(cell, width)
    elif kind == NAME:
        cell = cut(cell, width)
    blanks = " " * (width - cell_len(cell))
    return blanks + cell if kind == NUMBER else cell + blanks


def _tail(text: str, width: int) -> str:
    """Return the longest end of a text that has at most `width` cells."""
    while cell_len(text) > width:
        text = text[1:]
    return text


def cut(text: str, width: int) -> str:
    """Return a text of at most `width` cells. Both ends of a longer one stay: either may be what distinguishes it."""
    if cell_len(text) <= width:
        return text
    head = crop(text, width // 2)
    return f"{head}…{_tail(text, width - 1 - cell_len(head))}"
