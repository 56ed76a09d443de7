"""Frames of `sluice top`, each computed from two samples."""

import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sluice.router.cli.client import ManagementClient, Row
from sluice.router.cli.output import one_line
from sluice.router.cli.stat.addresses import class_of, phase_of, text_of
from sluice.router.cli.table import long_time, memory, short_time
from sluice.router.stats.latency import quantile

# Addresses and links read for each frame; if there are more, the view says so.
MAX_ROWS: Final = 2000
BLOCKED_AFTER: Final = 10  # seconds without credit after which a link counts as blocked

_ADDRESS_COLUMNS: Final = [
    "name", "distribution", "subscriberCount", "inProcess", "deliveriesIngress", "deliveriesEgress",
    "deliveriesToContainer",
]  # fmt: skip
_LINK_COLUMNS: Final = [
    "identity", "connectionId", "linkDir", "owningAddr", "deliveryCount", "unsettledCount", "undeliveredCount",
    "creditAvailable", "zeroCreditSeconds", "settleRate", "linkName",
]  # fmt: skip
_RATES: Final = [
    ("in", "deliveriesIngress"),
    ("out", "deliveriesEgress"),
    ("accepted", "acceptedDeliveries"),
    ("rejected", "rejectedDeliveries"),
    ("released", "releasedDeliveries"),
    ("modified", "modifiedDeliveries"),
    ("presettled", "presettledDeliveries"),
    ("dropped", "droppedPresettledDeliveries"),
]


class RouterSample(Struct, frozen=True):
    """State of a router at one time. `at` is in seconds of the monotonic clock. Rows are by identity."""

    at: float
    router: Row
    workers: dict[int, Row]
    addresses: dict[str, Row]
    links: dict[str, Row]
    vhosts: dict[str, Row]  # vhosts, and groups under `VHOST, GROUP`


def take_sample(client: ManagementClient) -> RouterSample:
    """Take a sample. Its texts are escaped here, before their widths are computed."""

    def rows(short_type: str, columns: list[str] | None = None) -> list[Row]:
        return list(_escaped(client.rows(short_type, columns, MAX_ROWS)))

    return RouterSample(
        time.monotonic(),
        rows("router")[0],
        {worker["worker"]: worker for worker in _escaped(client.node_call("GET-WORKERS"))},
        {row["name"]: row for row in rows("router.address", _ADDRESS_COLUMNS)},
        {row["identity"]: row for row in rows("router.link", _LINK_COLUMNS)},
        dict(_shares(rows("vhostStats"))),
    )


def _escaped(value: Any) -> Any:
    """Return a value of an answer with all texts in it escaped."""
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, dict):
        return {_escaped(name): _escaped(item) for name, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list) else value


def _shares(rows: Iterable[Row]) -> Iterable[tuple[str, Row]]:
    """Yield the vhosts and groups that have connections, with the same column names for both."""
    for row in rows:
        if row["connectionsCurrent"] and row.get("groupState") is not None:
            names = {"connections": "connectionsCurrent", "links": "linksCurrent", "addresses": "addressesCurrent"}
            yield row["hostname"], {**row, **{name: row[shown] for name, shown in names.items()}}
            for group, use in row["groupState"].items():
                if use["connections"]:
                    yield f"{row['hostname']}, {group}", use


def render_frame(now: RouterSample, before: RouterSample, rows: int) -> RenderableType:
    """Return a frame with present values, and rates since the previous sample."""
    seconds = now.at - before.at
    return Group(
        *_head(now, before, seconds),
        _workers(now, before, seconds),
        _addresses(now, before, seconds, rows),
        _links(now, before, seconds, rows),
        *_vhosts(now, before, seconds, rows),
        *_blocked(now, rows),
    )


def rate(now: Row, before: Row | None, column: str, seconds: float) -> float | None:
    """Return the events per second in a column; None without a previous sample."""
    if before is None or seconds <= 0:
        return None
    return max((now[column] or 0) - (before[column] or 0), 0) / seconds


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _head(now: RouterSample, before: RouterSample, seconds: float) -> Iterable[RenderableType]:
    router = now.router
    title = f"{router['id']}  {router['mode']}  version {router['version']}  up {long_time(router['uptimeSeconds'])}"
    yield Text(f"{title}  {time.strftime('%H:%M:%S')}", style="bold")
    yield Text(
        f"connections {router['connectionCount']:,}  links {router['linkCount']:,}  addresses {router['addrCount']:,}  "
        f"blocked links {router['linksBlocked']:,}  stuck deliveries {router['deliveriesStuck']:,}  "
        f"memory {memory(router['memoryUsage'])}"
    )
    rates = (f"{title} {_shown(rate(router, before.router, column, seconds))}" for title, column in _RATES)
    yield Text("per second: " + "  ".join(rates))
    if router["linkCount"] > MAX_ROWS or router["addrCount"] > MAX_ROWS:
        yield Text(f"only the first {MAX_ROWS:,} addresses and links are looked at", style="yellow")


def _table(title: str, heads: Iterable[tuple[str, str]]) -> Table:
    """Return an empty table. A heading with `>` is that of a right-aligned column of numbers."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for head, side in heads:
        # Texts are truncated if there is not enough room.
        table.add_column(head, justify="right" if side == ">" else "left", no_wrap=True, min_width=len(head))
    return table


def _workers(now: RouterSample, before: RouterSample, seconds: float) -> Table:
    heads = [
        ("worker", ">"), ("state", "<"), ("pid", ">"), ("gen", ">"), ("cpu %", ">"), ("memory", ">"), ("conns", ">"),
        ("links", ">"), ("in/s", ">"), ("out/s", ">"), ("wakes/s", ">"), ("buffered", ">"), ("ring %", ">"),
        ("p99 ms", ">"), ("drops", ">"),
    ]  # fmt: skip
    table = _table("Workers", heads)
    for number, worker in sorted(now.workers.items()):
        earlier = before.workers.get(number)
        if earlier is not None and earlier["generation"] != worker["generation"]:
            earlier = None
        cpu = rate(worker, earlier, "cpuSeconds", seconds)
        fill = max((ring["usedOctets"] / ring["sizeOctets"] for ring in worker["rings"]), default=0.0)
        late = _p99(worker, earlier)
        table.add_row(
            str(number),
            worker["state"],
            str(worker["pid"]),
            str(worker["generation"]),
            "-" if cpu is None else f"{cpu * 100:.0f}",
            memory(worker["residentOctets"]),
            str(worker["connections"]),
            str(worker["links"]),
            *(_shown(rate(worker, earlier, column, seconds)) for column in ("deliveriesIngress", "deliveriesEgress")),
            _shown(rate(worker, earlier, "wakes", seconds)),
            memory(worker["bufferedOctets"]),
            f"{fill * 100:.0f}",
            "-" if late is None else f"{late * 1e3:.3g}",
            str(sum(worker["dropped"].values())),
        )
    return table


def _p99(worker: Row, earlier: Row | None) -> float | None:
    """Return the seconds within which 99 % of the deliveries were settled.

    These are the deliveries since the previous sample or, without one, all deliveries.
    """
    counts = worker["latencyHistogram"]
    if earlier is not None:
        counts = [new - old for new, old in zip(counts, earlier["latencyHistogram"], strict=False)]
    return quantile(counts, 0.99)


def _busiest(
    now: dict[str, Row], before: dict[str, Row], columns: tuple[str, ...], seconds: float, rows: int
) -> list[tuple[Row, Row | None]]:
    """Return the rows with the most events since the previous sample, each with its previous row.

    Rows with equal rates are ordered by their total number of events.
    """

    def order(item: tuple[str, Row]) -> tuple[float, int]:
        name, row = item
        recent = sum(rate(row, before.get(name), column, seconds) or 0.0 for column in columns)
        return recent, sum(row[column] or 0 for column in columns)

    busiest = sorted(now.items(), key=order, reverse=True)[:rows]
    return [(row, before.get(name)) for name, row in busiest]


def _addresses(now: RouterSample, before: RouterSample, seconds: float, rows: int) -> Table:
    heads = [
        ("address", "<"), ("class", "<"), ("phs", "<"), ("distrib", "<"), ("consumers", ">"), ("in/s", ">"),
        ("out/s", ">"), ("in", ">"), ("out", ">"),
    ]  # fmt: skip
    table = _table("Busiest addresses", heads)
    columns = ("deliveriesIngress", "deliveriesEgress")
    for row, earlier in _busiest(now.addresses, before.addresses, columns, seconds, rows):
        table.add_row(
            text_of(row["name"]),
            class_of(row["name"]),
            phase_of(row["name"]),
            row["distribution"],
            str((row["subscriberCount"] or 0) + (row["inProcess"] or 0)),
            *(_shown(rate(row, earlier, column, seconds)) for column in columns),
            *(f"{row[column]:,}" for column in columns),
        )
    return table


_LINK_HEADS: Final = [
    ("link", ">"), ("conn", ">"), ("dir", "<"), ("address", "<"), ("per s", ">"), ("deliveries", ">"),
    ("undelivered", ">"), ("unsettled", ">"), ("credit", ">"), ("no credit for", ">"), ("name", "<"),
]  # fmt: skip


def _link_table(title: str, links: list[tuple[Row, Row | None]], speed: Callable[[Row, Row | None], str]) -> Table:
    table = _table(title, _LINK_HEADS)
    for row, earlier in links:
        waits = row["zeroCreditSeconds"]
        table.add_row(
            row["identity"],
            row["connectionId"],
            row["linkDir"],
            text_of(row["owningAddr"]) or "(anonymous)",
            speed(row, earlier),
            f"{row['deliveryCount']:,}",
            f"{row['undeliveredCount']:,}",
            f"{row['unsettledCount']:,}",
            f"{row['creditAvailable']:,}",
            short_time(waits) if waits else "-",
            row["linkName"],
        )
    return table


def _links(now: RouterSample, before: RouterSample, seconds: float, rows: int) -> Table:
    links = _busiest(now.links, before.links, ("deliveryCount",), seconds, rows)
    return _link_table(
        "Busiest links", links, lambda row, earlier: _shown(rate(row, earlier, "deliveryCount", seconds))
    )


def _vhosts(now: RouterSample, before: RouterSample, seconds: float, rows: int) -> Iterable[Table]:
    """Yield a table of vhosts and groups with connections, the busiest first; nothing without policy."""
    if not now.vhosts:
        return
    heads = [
        ("vhost, group", "<"), ("connections", ">"), ("links", ">"), ("addresses", ">"), ("messages/s", ">"),
        ("octets/s", ">"), ("buffered", ">"), ("held back/s", ">"),
    ]  # fmt: skip
    table = _table("Vhosts", heads)
    for row, earlier in _busiest(now.vhosts, before.vhosts, ("messages", "connections"), seconds, rows):
        name = next(name for name, each in now.vhosts.items() if each is row)
        counted = row["messages"] is not None
        table.add_row(
            name,
            *(f"{row[column]:,}" for column in ("connections", "links", "addresses")),
            *(_shown(rate(row, earlier, column, seconds)) if counted else "-" for column in ("messages", "octets")),
            memory(row["bufferedOctets"]) if counted else "-",
            _shown(rate(row, earlier, "creditHeldBack", seconds)) if counted else "-",
        )
    yield table


def _blocked(now: RouterSample, rows: int) -> Iterable[Table]:
    """Yield a table of the links without credit for longest; nothing if no link is blocked."""

    def waits(row: Row) -> Any:
        return row["zeroCreditSeconds"] or 0

    blocked = sorted((row for row in now.links.values() if waits(row) > BLOCKED_AFTER), key=waits, reverse=True)
    if blocked:
        title = f"Blocked links: {len(blocked)}"
        yield _link_table(title, [(row, None) for row in blocked[:rows]], lambda row, _: _shown(row["settleRate"]))
