"""Table of `sluice top`: its numbers stay whole, and long names are cut in the middle."""

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

NUMBER, WORD, NAME = ">", "<", "~"  # kinds of columns; only names are cut
_GAP: Final = 2  # characters between columns
_LEAST: Final = 8  # characters of a name

Cell = str | Text


class FittedTable:
    """Table with a title that takes the width it is given. Columns are pairs of heading and kind."""

    def __init__(self, title: str, columns: Sequence[tuple[str, str]]) -> None:
        self._title = title
        self._columns = columns
        self._rows: list[tuple[Sequence[Cell], str]] = []

    def add_row(self, *cells: Cell, style: str = "") -> None:
        """Add a row."""
        self._rows.append((cells, style))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = self._widths(options.max_width)
        table = Table(
            title=self._title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim"
        )
        for (head, kind), width in zip(self._columns, widths, strict=True):
            justify = "right" if kind == NUMBER else "left"
            table.add_column(head, justify=justify, no_wrap=True, min_width=width, max_width=width)  # type: ignore[arg-type]
        for cells, style in self._rows:
            shown = (
                cut(str(cell), width) if kind == NAME else cell
                for cell, width, (_, kind) in zip(cells, widths, self._columns, strict=True)
            )
            table.add_row(*shown, style=style or None)
        yield table

    def _widths(self, most: int) -> list[int]:
        """Return the width of each column. The widest names give way first."""
        widths = [
            max(cell_len(head), *(cell_len(str(cells[at])) for cells, _ in self._rows), 0)
            for at, (head, _) in enumerate(self._columns)
        ]
        names = [at for at, (_, kind) in enumerate(self._columns) if kind == NAME]
        excess = sum(widths) + _GAP * (len(widths) - 1) - most
        while excess > 0 and names:
            widest = max(names, key=widths.__getitem__)
            if widths[widest] <= max(_LEAST, cell_len(self._columns[widest][0])):
                break
            widths[widest] -= 1
            excess -= 1
        return widths


def cut(text: str, width: int) -> str:
    """Return a text of at most `width` cells. Both ends of a longer one stay: either may be what distinguishes it."""
    if cell_len(text) <= width:
        return text
    head, tail = text, text
    while head and cell_len(head) > width // 2:
        head = head[:-1]
    while tail and cell_len(tail) > width - 1 - cell_len(head):
        tail = tail[1:]
    return f"{head}…{tail}"
