"""Tables of the tools, in columns or as CSV, exactly as scripts for 1.19 expect them (management.md 8.5)."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, TextIO

from sluice.router.cli.output import one_line, to_json

_INDENT: Final = "  "
_GAP: Final = "  "
_UNITS: Final = ("", " KiB", " MiB", " GiB", " TiB", " PiB")
_UNIT: Final = 1024

Cells = Sequence[Any]


class Display:
    """Printer of titles and tables to `out`."""

    def __init__(self, out: TextIO, *, csv: bool = False) -> None:
        self._out = out
        self._csv = csv

    def line(self, text: str = "") -> None:
        """Print a line, with line ends and unprintable characters in it escaped."""
        print(one_line(text), file=self._out)

    def table(self, title: str, heads: Sequence[str], rows: Iterable[Cells]) -> None:
        """Print a title and, if there are rows, a table. None is an empty cell."""
        texts = [["" if cell is None else one_line(str(cell)) for cell in row] for row in rows]
        self.line(title)
        if texts:
            for line in _csv(heads, texts) if self._csv else _classic(heads, texts):
                self.line(line)


class JsonDisplay(Display):
    """Collector of titles and tables, printed as one JSON list by `finish`. `router` is the router of what follows."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out)
        self.router = ""
        self._parts: list[dict[str, Any]] = []

    def line(self, text: str = "") -> None:
        """Add a line that belongs to no table; empty lines are left out."""
        if not text:
            return
        if not self._parts or "lines" not in self._parts[-1] or self._parts[-1]["router"] != self.router:
            self._parts.append({"router": self.router, "lines": []})
        self._parts[-1]["lines"].append(text)

    def table(self, title: str, heads: Sequence[str], rows: Iterable[Cells]) -> None:
        """Add a table; its rows are maps by heading."""
        made = [{head: _plain(cell) for head, cell in zip(heads, row, strict=False)} for row in rows]
        self._parts.append({"router": self.router, "title": title, "rows": made})

    def finish(self) -> None:
        """Print the list."""
        print(to_json(self._parts, 2), file=self._out)


def _plain(cell: Any) -> Any:
    """Return a cell as a value of JSON."""
    if cell is None or isinstance(cell, bool | str | float):
        return cell
    return int(cell) if isinstance(cell, int) else str(cell)


def _classic(heads: Sequence[str], rows: list[list[str]]) -> Iterable[str]:
    widths = [max(len(head), *(len(row[at]) for row in rows)) for at, head in enumerate(heads)]
    yield _INDENT + _joined(heads, widths)
    yield _INDENT + "=" * sum(width + len(_GAP) for width in widths)
    for row in rows:
        yield _INDENT + _joined(row, widths)


def _joined(cells: Sequence[str], widths: list[int]) -> str:
    """Join cells with gaps. The last cell is not padded."""
    padded = [cell.ljust(width) for cell, width in zip(cells[:-1], widths, strict=False)]
    return _GAP.join([*padded, cells[-1]])


def _csv(heads: Sequence[str], rows: list[list[str]]) -> Iterable[str]:
    for cells in (heads, *rows):
        yield ",".join('"' + cell.replace('"', '""') + '"' if cell else "" for cell in cells)


class GroupedNumber(int):
    """Number that is shown with thousands separators."""

    def __str__(self) -> str:
        return f"{int(self):,}"


def commas(number: Any) -> GroupedNumber | str:
    """Return a number that is shown with thousands separators; None is empty."""
    return "" if number is None else GroupedNumber(number)


def long_time(seconds: Any) -> str:
    """Format seconds as `DDD:HH:MM:SS`."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"{day:03}:{hour:02}:{minute:02}:{second:02}"


def short_time(seconds: Any) -> str:
    """Format seconds as `HH:MM:SS`, with more digits from 100 hours on."""
    minutes, second = divmod(int(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02}:{minute:02}:{second:02}"


def memory(octets: Any) -> str:
    """Format octets in the largest unit that gives at least 1, with three digits: `318 MiB`, `1.68 MiB`."""
    if octets is None:
        return ""
    value, unit = float(octets), 0
    while value >= _UNIT and unit < len(_UNITS) - 1:
        value /= _UNIT
        unit += 1
    if not unit:
        return str(octets)
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f}{_UNITS[unit]}"
