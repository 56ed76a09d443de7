"""Measured figures and their bars, as a terminal table and as the table in docs/performance.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PERFORMANCE_PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
HEADINGS = ("what", "measured", "relay", "ratio", "bar", "result")


@dataclass(frozen=True)
class Bar:
    """Limit of a value, or of its ratio to the relay's if `ratio`: at least or at most `limit`."""

    limit: float
    at_least: bool
    ratio: bool = False

    def holds(self, measured: float) -> bool:
        """Return True if `measured`, a value or a ratio according to the bar, is within the limit."""
        return measured >= self.limit if self.at_least else measured <= self.limit


def at_least(limit: float) -> Bar:
    """Return a bar: the value must be `limit` or more."""
    return Bar(limit, at_least=True)


def at_most(limit: float) -> Bar:
    """Return a bar: the value must be `limit` or less."""
    return Bar(limit, at_least=False)


def ratio_at_least(limit: float) -> Bar:
    """Return a bar: the ratio to the relay's value must be `limit` or more."""
    return Bar(limit, at_least=True, ratio=True)


def ratio_at_most(limit: float) -> Bar:
    """Return a bar: the ratio to the relay's value must be `limit` or less."""
    return Bar(limit, at_least=False, ratio=True)


@dataclass(frozen=True)
class Figure:
    """Measured number.

    `relay` is the reference in the same unit (None: no reference): the relay's value, or that of the reference named
    by `than`. A figure without a bar is shown for comparison.
    """

    what: str
    value: float
    unit: str
    bar: Bar | None
    relay: float | None = None
    than: str = "relay"

    @property
    def ratio(self) -> float | None:
        """Value divided by the relay's. None without a relay, or if the relay's value is zero."""
        return self.value / self.relay if self.relay else None

    @property
    def passed(self) -> bool:
        """True if the bar holds. A ratio that cannot be formed does not hold."""
        if self.bar is None:
            return True
        measured = self.ratio if self.bar.ratio else self.value
        return measured is not None and self.bar.holds(measured)


@dataclass(frozen=True)
class FailedRow:
    """Row that could not be measured, with the reason. Counts as a miss."""

    what: str
    reason: str

    @property
    def passed(self) -> bool:
        """False: a failure never passes."""
        return False


Result = Figure | FailedRow


def number(value: float) -> str:
    """Format three significant digits below 1000, whole numbers with thousands separators above."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def cells(result: Result) -> tuple[str, ...]:
    """Return one row of the table, in the order of HEADINGS."""
    if isinstance(result, FailedRow):
        return (result.what, "not measured: " + " ".join(result.reason.split()), "", "", "", "miss")
    unit = f" {result.unit}" if result.unit else ""
    relay = "" if result.relay is None else number(result.relay) + unit
    ratio = "" if result.ratio is None else f"{result.ratio:.2f}"
    if result.bar is None:
        return (result.what, number(result.value) + unit, relay, ratio, "", "reference")
    sign = "≥" if result.bar.at_least else "≤"
    bar = (
        f"{sign} {result.bar.limit:g} of {result.than}"
        if result.bar.ratio
        else f"{sign} {number(result.bar.limit)}{unit}"
    )
    return (result.what, number(result.value) + unit, relay, ratio, bar, "pass" if result.passed else "miss")


def text_table(results: Sequence[Result]) -> str:
    """Return the table for a terminal, with aligned columns."""
    rows = [HEADINGS, *(cells(result) for result in results)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def markdown_table(results: Sequence[Result]) -> str:
    """Return the table in Markdown."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + " --- |" * len(HEADINGS)]
    lines += ["| " + " | ".join(text.replace("|", "\\|") for text in cells(result)) + " |" for result in results]
    return "\n".join(lines)


def around_table(name: str, page: Path | None = None) -> tuple[str, str]:
    """Return the text of a page before and after the markers of a table, with the markers. page: None: the performance
    page. Raises ValueError unless each marker occurs once.
    """
    page = page or PERFORMANCE_PAGE
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    text = page.read_text()
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"{page}: one line {begin} and, after it, one line {end} are wanted")
    before, rest = text.split(begin)
    return before + begin, end + rest.split(end)[1]


def write_docs(name: str, table: str, page: Path | None = None) -> None:
    """Replace the text between the markers of a table. Raises ValueError as `around_table`."""
    before, after = around_table(name, page)
    (page or PERFORMANCE_PAGE).write_text(f"{before}\n{table}\n{after}")
