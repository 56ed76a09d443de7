"""`qdstat -l`: show links."""

from sluice.router.cli.client import Row
from sluice.router.cli.stat.addresses import class_of, phase_of, text_of
from sluice.router.cli.stat.context import StatContext
from sluice.router.cli.table import Cells, short_time
from sluice.router.stalls.reason import StallWord

# Headings of columns with their attributes; all other columns are computed.
_PLAIN = [
    ("cap", "capacity"),
    ("pri", "priority"),
    ("undel", "undeliveredCount"),
    ("unsett", "unsettledCount"),
    ("deliv", "deliveryCount"),
    ("presett", "presettledCount"),
    ("psdrop", "droppedPresettledCount"),
    ("acc", "acceptedCount"),
    ("rej", "rejectedCount"),
    ("rel", "releasedCount"),
    ("mod", "modifiedCount"),
]
_VERBOSE = [("admin", "adminStatus"), ("oper", "operStatus"), ("name", "linkName")]
_STALL = ["stall", "stallSeconds"]  # columns unknown to Dispatch, which answers with values of other columns
_STALL_HEADS = ["stall", "stalled for"]
_WORDS = frozenset(StallWord)
_FIRST = ["linkType", "linkDir", "connectionId", "identity", "peer"]
_OTHERS = [
    "owningAddr", "deliveriesDelayed1Sec", "deliveriesDelayed10Sec", "settleRate", "deliveriesStuck",
    "creditAvailable", "zeroCreditSeconds",
]  # fmt: skip
_HEADS = [
    "type", "dir", "conn id", "id", "peer", "class", "addr", "phs", *(head for head, _ in _PLAIN), "delay", "rate",
    "stuck", "cred", "blkd",
]  # fmt: skip


def show(context: StatContext) -> None:
    """Show all links."""
    more = _VERBOSE if context.verbose else []
    columns = [*_FIRST, *(column for _, column in (*_PLAIN, *_VERBOSE)), *_OTHERS, *(_STALL if more else ())]
    rows: list[Cells] = [
        [*_cells(link), *(link[column] for _, column in more), *(_stall_cells(link) if more else ())]
        for link in context.rows("router.link", columns, limited=True)
    ]
    context.table("Router Links", [*_HEADS, *(head for head, _ in more), *(_STALL_HEADS if more else ())], rows)


def _stall_cells(link: Row) -> list[object]:
    if link["stall"] not in _WORDS:
        return ["-", "-"]
    return [link["stall"], short_time(link["stallSeconds"])]


def _cells(link: Row) -> list[object]:
    key = link["owningAddr"]
    blocked = link["zeroCreditSeconds"]
    return [
        *(link[column] for column in _FIRST),
        class_of(key),
        text_of(key),
        phase_of(key),
        *(link[column] for _, column in _PLAIN),
        (link["deliveriesDelayed1Sec"] or 0) + (link["deliveriesDelayed10Sec"] or 0),
        link["settleRate"],
        link["deliveriesStuck"],
        link["creditAvailable"],
        short_time(blocked) if blocked else "-",
    ]
