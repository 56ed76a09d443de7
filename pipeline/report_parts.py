"""Building blocks of the report: text, tables, and charts as inline SVG.

No JavaScript; colours are in the style sheet.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Final

WIDTH: Final = 720  # width of charts in SVG units; they scale to the width of the page
_HEIGHT: Final = 200
_LEFT: Final = 52
_BOTTOM: Final = 26
_TOP: Final = 12
_RIGHT: Final = 10
SERIES: Final = 6  # line colours in the style sheet


def style() -> str:
    """Return the style sheet, which the page includes."""
    return Path(__file__).with_name("report.css").read_text("utf-8")


def number(value: float) -> str:
    """Format a count for people: 950, 12.3 k, 4.56 M."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.3g}"


def duration(us: float | None) -> str:
    """Format microseconds for people."""
    if us is None:
        return "–"
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{us / size:.3g} {unit}"
    return f"{us:.3g} µs"


def percent(share: float) -> str:
    """Format a share as a percentage."""
    return f"{share:.1%}" if 0 < share < 0.1 else f"{share:.0%}"


def tile(label: str, value: str, note: str = "", tone: str = "") -> str:
    """Return a tile with one key figure. tone: good, warn or bad."""
    return (
        f'<div class="tile {tone}"><div class="label">{escape(label)}</div><div class="value">{escape(value)}</div>'
        f'<div class="note">{escape(note)}</div></div>'
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[int] = ()) -> str:
    """Return a table. cells: HTML. numeric: indices of columns of numbers.

    On a narrow page each row becomes a list, and each cell shows its head. The last column may wrap if it is text.
    """

    def kind(at: int) -> str:
        return " class=n" if at in numeric else " class=wrap" if at == len(heads) - 1 else ""

    def line(row: Sequence[str]) -> str:
        names = (f' data-head="{escape(head)}"' if head else "" for head in heads)
        return "".join(
            f"<td{kind(at)}{name}>{each}</td>" for at, (name, each) in enumerate(zip(names, row, strict=True))
        )

    head = "".join(f"<th{kind(at)}>{escape(each)}</th>" for at, each in enumerate(heads))
    body = "".join(f"<tr>{line(row)}</tr>" for row in rows)
    return f'<div class="scroll"><table class="rows"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def bar(share: float, tone: int = 0) -> str:
    """Return a bar for a table cell."""
    width = max(0.0, min(1.0, share)) * 100
    return (
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="8"/>'
        f'<rect class="s{tone % SERIES} fill" width="{width:.1f}" height="8"/></svg>'
    )


def spark(values: Sequence[float]) -> str:
    """Return a line chart without axes for a table cell."""
    if len(values) < 2:
        return "–"
    most = max(values) or 1.0
    step = 100 / (len(values) - 1)
    points = " ".join(f"{at * step:.1f},{19 - 17 * value / most:.1f}" for at, value in enumerate(values))
    return (
        '<svg class="spark" viewBox="0 0 100 20" preserveAspectRatio="none" aria-hidden="true">'
        f'<polyline class="s0 line" points="{points}"/></svg>'
    )


Points = Sequence[tuple[datetime, float]]


def lines(
    title: str,
    series: Sequence[tuple[str, Points]],
    limit: float | None = None,
    show: Callable[[float], str] | None = None,
) -> str:
    """Return a chart over time. limit: a level that should not be exceeded. show: formats values of the axis."""
    points = [point for _, own in series for point in own]
    if not points:
        return '<p class="none">No figures.</p>'
    first, last = min(when for when, _ in points), max(when for when, _ in points)
    span = max((last - first).total_seconds(), 1.0)
    most = _round_up(max([value for _, value in points] + [limit or 0.0]))
    width, height = WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(when: datetime) -> float:
        if first == last:
            return _LEFT + width / 2
        return _LEFT + width * (when - first).total_seconds() / span

    def y(value: float) -> float:
        return _TOP + height * (1 - value / most)

    drawn = []
    for part in range(5):
        value = most * part / 4
        drawn.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        text = show(value) if show else _axis(value, most)
        drawn.append(f'<text class="axis end" x="{_LEFT - 6}" y="{y(value) + 4:.1f}">{text}</text>')
    for part in range(5) if first != last else (2,):
        when = first + (last - first) * part / 4
        anchor = "start" if part == 0 else "end" if part == 4 else "middle"
        text = f"{when:{_time_format(span) if first != last else '%H:%M'}}"
        drawn.append(f'<text class="axis {anchor}" x="{x(when):.1f}" y="{_HEIGHT - 8}">{text}</text>')
    if limit is not None:
        drawn.append(
            f'<line class="limit" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(limit):.1f}" y2="{y(limit):.1f}"/>'
        )
    for color, (_, own) in enumerate(series):
        text = " ".join(f"{x(when):.1f},{y(value):.1f}" for when, value in own)
        if len(own) == 1:
            drawn.append(
                f'<circle class="s{color % SERIES} fill" cx="{x(own[0][0]):.1f}" cy="{y(own[0][1]):.1f}" r="3"/>'
            )
        drawn.append(f'<polyline class="s{color % SERIES} line" points="{text}"/>')
    legend = "".join(
        f'<span><i class="s{at % SERIES} key"></i>{escape(name)}</span>' for at, (name, _) in enumerate(series)
    )
    shown = f'<div class="legend">{legend}</div>' if len(series) > 1 else ""
    return (
        f'<figure><figcaption>{escape(title)}</figcaption>{shown}<svg class="chart" viewBox="0 0 {WIDTH} {_HEIGHT}" '
        f'role="img" aria-label="{escape(title)}">{"".join(drawn)}</svg></figure>'
    )


def _time_format(span: float) -> str:
    """Return the format of five times that divide a span (s), in which they differ."""
    if span < 4 * 60:
        return "%H:%M:%S"
    if span < 86400:
        return "%H:%M"
    return "%b %d %H:%M" if span < 4 * 86400 else "%b %d"


def _round_up(value: float) -> float:
    """Round up to 1, 2, 2.5, 4, 5 or 8 times a power of ten."""
    if value <= 0:
        return 1.0
    size = 1.0
    while size >= value:
        size /= 10
    while size * 10 < value:
        size *= 10
    return next(size * step for step in (1, 2, 2.5, 4, 5, 8, 10) if size * step >= value)


def _axis(value: float, most: float) -> str:
    return percent(value) if most <= 1 else number(value)
