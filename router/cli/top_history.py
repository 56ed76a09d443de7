"""Last hour in a frame of `sluice top`: a line of bars for each of some figures, and the latest events."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from sluice.router.cli.client import ManagementClient, NotImplementedStatus, Row
from sluice.router.cli.top_line import DIM, Block, Line
from sluice.router.cli.top_table import NUMBER, SERIES, WORD, FittedTable

STEP: Final = 60  # seconds of a bar
HOUR: Final = 3600
MOST_EVENTS: Final = 3
_BARS: Final = "▁▂▃▄▅▆▇█"
_GAP: Final = " "

Write = Callable[[float], str]


def _count(value: float) -> str:
    return f"{value:,.0f}"


_FIGURES: Final[Sequence[tuple[str, str, Write]]] = (
    ("deliveriesIngress", "in/s", _count),
    ("deliveriesEgress", "out/s", _count),
    ("latencyP99Seconds", "p99 ms", lambda value: f"{value * 1e3:.3g}"),
    ("cpuSeconds", "worker cpu %", lambda value: f"{value * 100:.0f}"),
    ("connectionCount", "connections", _count),
)


def read_history(client: ManagementClient) -> Row | None:
    """Return the last hour; None if the router keeps no history, as routers of 1.19."""
    names = ",".join(name for name, _, _ in _FIGURES)
    since = int(time.time()) - HOUR
    try:
        answer: Row = client.node_call("GET-HISTORY", {"step": STEP, "since": since, "names": names})
    except NotImplementedStatus:
        return None
    return answer


def render_history(history: Row | None) -> Iterable[Block]:
    """Yield a table of figures, and a line for each event; nothing without a history."""
    if history is None:
        return
    if any(history["figures"].values()):
        heads = [("figure", WORD), ("", SERIES), ("least", NUMBER), ("most", NUMBER)]
        table = FittedTable("Last hour, by minute", heads)
        for name, title, write in _FIGURES:
            values = history["figures"].get(name, [])
            known = [value for value in values if value is not None]
            if known:
                table.add_row(title, bars(values), write(min(known)), write(max(known)))
        yield table
    for event in history["events"][-MOST_EVENTS:]:
        count = f" ({event['count']} times)" if event["count"] > 1 else ""
        yield Line(f"{time.strftime('%H:%M:%S', time.localtime(event['time']))}  {event['text']}{count}", DIM)


def bars(values: Sequence[Any]) -> str:
    """Return a bar for each value, the highest for the greatest one; a blank for None."""
    most = max((value for value in values if value is not None), default=0)
    return "".join(_GAP if value is None else _bar(value, most) for value in values)


def _bar(value: float, most: float) -> str:
    return _BARS[min(int(value / most * len(_BARS)), len(_BARS) - 1)] if most > 0 else _BARS[0]
