"""Measured figures against their bars: the terminal table, and the one in docs/performance.md."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BEGIN = "<!-- bench:begin -->"
END = "<!-- bench:end -->"
HEADINGS = ("what", "measured", "relay", "ratio", "bar", "result")


@dataclass(frozen=True)
class Bar:
    """A limit: `value` itself, or the ratio to the relay when `ratio`, is at least or at most `limit`."""

    limit: float
    at_least: bool
    ratio: bool = False

    def holds(self, measured: float) -> bool:
        """Whether `measured` (a value or a ratio, whichever the bar is about) is on the right side."""
        return measured >= self.limit if self.at_least else measured <= self.limit


def at_least(limit: float) -> Bar:
    """The value must be `limit` or more."""
    return Bar(limit, at_least=True)


def at_most(limit: float) -> Bar:
    """The value must be `limit` or less."""
    return Bar(limit, at_least=False)


def ratio_at_least(limit: float) -> Bar:
    """Value / relay's value must be `limit` or more."""
    return Bar(limit, at_least=True, ratio=True)


def ratio_at_most(limit: float) -> Bar:
    """Value / relay's value must be `limit` or less."""
    return Bar(limit, at_least=False, ratio=True)


@dataclass(frozen=True)
class Figure:
    """One measured number. `relay` is what it is compared with (None: nothing): the relay's, or that of what `than`
    names; same unit. Without a bar it is shown beside others, to judge them by."""

    what: str
    value: float
    unit: str
    bar: Bar | None
    relay: float | None = None
    than: str = "relay"

    @property
    def ratio(self) -> float | None:
        """Value over the relay's; None without a relay (or when it measured zero)."""
        return self.value / self.relay if self.relay else None

    @property
    def passed(self) -> bool:
        """Whether the bar holds; a ratio that cannot be formed does not hold."""
        if self.bar is None:
            return True
        measured = self.ratio if self.bar.ratio else self.value
        return measured is not None and self.bar.holds(measured)


@dataclass(frozen=True)
class Failure:
    """A row that could not be measured, and why: always a miss."""

    what: str
    reason: str

    @property
    def passed(self) -> bool:
        """Never."""
        return False


Result = Figure | Failure


def number(value: float) -> str:
    """Three significant digits below 1000, whole numbers with thousands separators above."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def cells(result: Result) -> tuple[str, ...]:
    """One row of the table, in the order of HEADINGS."""
    if isinstance(result, Failure):
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
    """The table for a terminal, columns aligned."""
    rows = [HEADINGS, *(cells(result) for result in results)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def markdown_table(results: Sequence[Result]) -> str:
    """The same table in Markdown."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + " --- |" * len(HEADINGS)]
    lines += ["| " + " | ".join(text.replace("|", "\\|") for text in cells(result)) + " |" for result in results]
    return "\n".join(lines)


def around_table(page: Path) -> tuple[str, str]:
    """What stands before and after the markers in `page`. Raises ValueError when they are not there once each."""
    text = page.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"{page}: one line {BEGIN} and, after it, one line {END} are wanted")
    before, rest = text.split(BEGIN)
    return before, rest.split(END)[1]


def write_docs(page: Path, results: Sequence[Result], machine: str, command: str, day: datetime.date) -> None:
    """Replace what lies between the markers in `page`. Raises ValueError when they are not there once each."""
    before, after = around_table(page)
    words = f"Measured on {day.isoformat()} ({machine}) by `{command}`."
    page.write_text(f"{before}{BEGIN}\n{words}\n\n{markdown_table(results)}\n{END}{after}")
