"""Frames of `sluice top`, each computed from two samples."""

import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec import Struct

from sluice.router.cli.client import ManagementClient, NotImplementedStatus, Row
from sluice.router.cli.output import one_line
from sluice.router.cli.stat.addresses import class_of, phase_of, text_of
from sluice.router.cli.table import long_time, memory, short_time
from sluice.router.cli.top_history import read_history, render_history
from sluice.router.cli.top_line import BOLD, DIM, PLAIN, RED, REVERSE, YELLOW, Block, Frame, Line
from sluice.router.cli.top_state import KEYS, TopState
from sluice.router.cli.top_table import NAME, NUMBER, WORD, FittedTable
from sluice.router.stats.latency import quantile

# Addresses and links read for each frame; if there are more, the view says so.
MAX_ROWS: Final = 2000
BLOCKED_AFTER: Final = 10  # seconds without credit after which a link counts as blocked
FULL_RING: Final = 0.8  # share of a ring in use from which on its worker is coloured
_READY: Final = "ready"

_ADDRESS_COLUMNS: Final = [
    "name", "distribution", "subscriberCount", "inProcess", "deliveriesIngress", "deliveriesEgress",
    "deliveriesToContainer",
]  # fmt: skip
_LINK_COLUMNS: Final = [
    "identity", "connectionId", "linkDir", "owningAddr", "deliveryCount", "unsettledCount", "undeliveredCount",
    "creditAvailable", "zeroCreditSeconds", "settleRate", "linkName",
]  # fmt: skip
#: Columns of a vhost in the answer to GET-USAGE, and the name of the row of all vhosts without a row of their own.
_USAGE: Final = ("deliveriesIn", "deliveriesOut", "octetsIn", "octetsOut")
_OTHER: Final = "other"
OTHER_VHOSTS: Final = "(other vhosts)"
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
    vhosts: dict[str, Row]  # vhosts, groups under `VHOST, GROUP`, and OTHER_VHOSTS
    history: Row | None = None  # answer to GET-HISTORY


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
        dict(_with_usage(_shares(rows("vhostStats")), _escaped(_read_usage(client)))),
        _escaped(read_history(client)),
    )


def sample_as_map(sample: RouterSample) -> dict[str, Any]:
    """Return a sample as plain values, for scripts: counters, from two of which rates follow."""
    return {
        "seconds": sample.at,
        "router": sample.router,
        "workers": list(sample.workers.values()),
        "addresses": list(sample.addresses.values()),
        "links": list(sample.links.values()),
        "vhosts": [{**row, "name": name} for name, row in sample.vhosts.items()],
    }


def _escaped(value: Any) -> Any:
    """Return a value of an answer with all texts in it escaped."""
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, dict):
        return {_escaped(name): _escaped(item) for name, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list) else value


def _read_usage(client: ManagementClient) -> list[Row]:
    """Return the use of the router by vhost; nothing if the router does not count it, as routers of 1.19."""
    try:
        answer: list[Row] = client.node_call("GET-USAGE")
    except NotImplementedStatus:
        return []
    return answer


def _with_usage(shares: Iterable[tuple[str, Row]], usage: list[Row]) -> Iterable[tuple[str, Row]]:
    """Yield vhosts and groups with the deliveries of their clients, and last the vhosts that are counted together.

    Deliveries of a group, or of a vhost that is counted with others, are None unless a limit counts its messages.
    """
    known = {row["vhost"]: row for row in usage}
    for name, row in shares:
        given = known.get(name)
        if given is not None and name != _OTHER:
            yield name, {**row, **{column: given[column] for column in _USAGE}}
        else:
            received = {"deliveriesIn": row.get("messages"), "octetsIn": row.get("octets")}
            yield name, {**row, **dict.fromkeys(_USAGE), **received}
    if _OTHER in known:
        other = known[_OTHER]
        yield OTHER_VHOSTS, {**other, "links": other["linksIn"] + other["linksOut"], "addresses": None,
                             "messages": None}  # fmt: skip


def _shares(rows: Iterable[Row]) -> Iterable[tuple[str, Row]]:
    """Yield the vhosts and groups that have connections, with the same column names for both."""
    for row in rows:
        if row["connectionsCurrent"] and row.get("groupState") is not None:
            names = {"connections": "connectionsCurrent", "links": "linksCurrent", "addresses": "addressesCurrent"}
            yield row["hostname"], {**row, **{name: row[shown] for name, shown in names.items()}}
            for group, use in row["groupState"].items():
                if use["connections"]:
                    yield f"{row['hostname']}, {group}", use


def render_frame(now: RouterSample, before: RouterSample, rows: int, state: TopState | None = None) -> Frame:
    """Return a frame with present values, and rates since the previous sample. `state` sorts, filters and scrolls."""
    seconds = now.at - before.at
    state = state or TopState()
    return [
        *_head(now, before, seconds),
        *render_history(now.history),
        _workers(now, before, seconds),
        _addresses(now, before, seconds, rows, state),
        _links(now, before, seconds, rows, state),
        *_vhosts(now, before, seconds, rows, state),
        *_blocked(now, rows, state),
    ]


def render_help() -> Frame:
    """Return the list of keys."""
    table = FittedTable("Keys", (("key", WORD), ("effect", NAME)))
    for key, effect in KEYS:
        table.add_row(key, effect)
    return [table]


def render_status(state: TopState) -> Line:
    """Return the last line of a frame: sorting, filter, and the keys to begin with."""
    if state.typing is not None:
        return Line(f"filter: {state.typing}_", REVERSE)
    parts = [f"sort: {state.sort}"]
    parts += [f"filter: {state.filter}"] if state.filter else []
    parts += [f"from row {state.offset + 1}"] if state.offset else []
    return Line("  ".join([*parts, "?: help"]), DIM)


def rate(now: Row, before: Row | None, column: str, seconds: float) -> float | None:
    """Return the events per second in a column; None without a previous sample."""
    if before is None or seconds <= 0:
        return None
    return max((now[column] or 0) - (before[column] or 0), 0) / seconds


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _head(now: RouterSample, before: RouterSample, seconds: float) -> Iterable[Block]:
    router = now.router
    title = f"{router['id']}  {router['mode']}  version {router['version']}  up {long_time(router['uptimeSeconds'])}"
    yield Line(f"{title}  {time.strftime('%H:%M:%S')}", BOLD)
    yield Line(
        f"connections {router['connectionCount']:,}  links {router['linkCount']:,}  addresses {router['addrCount']:,}  "
        f"blocked links {router['linksBlocked']:,}  stuck deliveries {router['deliveriesStuck']:,}  "
        f"memory {memory(router['memoryUsage'])}",
        YELLOW if router["linksBlocked"] or router["deliveriesStuck"] else PLAIN,
    )
    rates = (f"{title} {_shown(rate(router, before.router, column, seconds))}" for title, column in _RATES)
    yield Line("per second: " + "  ".join(rates))
    if router["linkCount"] > MAX_ROWS or router["addrCount"] > MAX_ROWS:
        yield Line(f"only the first {MAX_ROWS:,} addresses and links are looked at", YELLOW)


def _workers(now: RouterSample, before: RouterSample, seconds: float) -> FittedTable:
    heads = [
        ("worker", NUMBER), ("state", WORD), ("pid", NUMBER), ("gen", NUMBER), ("cpu %", NUMBER), ("memory", NUMBER),
        ("conns", NUMBER), ("links", NUMBER), ("in/s", NUMBER), ("out/s", NUMBER), ("wakes/s", NUMBER),
        ("buffered", NUMBER), ("ring %", NUMBER), ("p99 ms", NUMBER), ("drops", NUMBER),
    ]  # fmt: skip
    table = FittedTable("Workers", heads)
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
            style=RED if worker["state"] != _READY else YELLOW if fill > FULL_RING else PLAIN,
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
    now: dict[str, Row], before: dict[str, Row], columns: tuple[str, ...], seconds: float, rows: int, state: TopState
) -> list[tuple[Row, Row | None]]:
    """Return the rows with the most events since the previous sample, each with its previous row.

    Rows with equal rates are ordered by their total number of events. `state` may order by total or name instead, and
    leave out the first rows.
    """

    def order(item: tuple[str, Row]) -> tuple[float, int]:
        name, row = item
        recent = sum(rate(row, before.get(name), column, seconds) or 0.0 for column in columns)
        return recent, sum(row[column] or 0 for column in columns)

    if state.sort == "name":
        ordered = sorted(now.items(), key=lambda item: _name_of(*item))
    elif state.sort == "total":
        ordered = sorted(now.items(), key=lambda item: order(item)[1], reverse=True)
    else:
        ordered = sorted(now.items(), key=order, reverse=True)
    offset = min(state.offset, max(len(ordered) - rows, 0))
    return [(row, before.get(name)) for name, row in ordered[offset : offset + rows]]


def _name_of(name: str, row: Row) -> str:
    """Return the text by which a row is sorted: the address of a link, else its own name."""
    return text_of(row["owningAddr"]) if "owningAddr" in row else text_of(name) or name


def _addresses(now: RouterSample, before: RouterSample, seconds: float, rows: int, state: TopState) -> FittedTable:
    heads = [
        ("address", NAME), ("class", WORD), ("phs", WORD), ("distrib", WORD), ("consumers", NUMBER), ("in/s", NUMBER),
        ("out/s", NUMBER), ("in", NUMBER), ("out", NUMBER),
    ]  # fmt: skip
    table = FittedTable("Busiest addresses" if state.sort == "rate" else "Addresses", heads)
    columns = ("deliveriesIngress", "deliveriesEgress")
    found = {name: row for name, row in now.addresses.items() if state.matches(text_of(name))}
    for row, earlier in _busiest(found, before.addresses, columns, seconds, rows, state):
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
    ("link", NUMBER), ("conn", NUMBER), ("dir", WORD), ("address", NAME), ("per s", NUMBER), ("deliveries", NUMBER),
    ("undelivered", NUMBER), ("unsettled", NUMBER), ("credit", NUMBER), ("no credit for", NUMBER), ("name", NAME),
]  # fmt: skip


def _link_table(
    title: str, links: list[tuple[Row, Row | None]], speed: Callable[[Row, Row | None], str]
) -> FittedTable:
    table = FittedTable(title, _LINK_HEADS)
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
            row["linkName"] or "",
            style=YELLOW if (waits or 0) > BLOCKED_AFTER else PLAIN,
        )
    return table


def _links(now: RouterSample, before: RouterSample, seconds: float, rows: int, state: TopState) -> FittedTable:
    links = _busiest(_matching_links(now, state), before.links, ("deliveryCount",), seconds, rows, state)
    title = "Busiest links" if state.sort == "rate" else "Links"
    return _link_table(title, links, lambda row, earlier: _shown(rate(row, earlier, "deliveryCount", seconds)))


def _matching_links(now: RouterSample, state: TopState) -> dict[str, Row]:
    """Return the links whose address or name passes the filter."""
    return {
        name: row for name, row in now.links.items() if state.matches(text_of(row["owningAddr"]), row["linkName"] or "")
    }


def _vhosts(
    now: RouterSample, before: RouterSample, seconds: float, rows: int, state: TopState
) -> Iterable[FittedTable]:
    """Yield a table of vhosts and groups with connections, the busiest first; nothing without policy."""
    if not now.vhosts:
        return
    heads = [
        ("vhost, group", NAME), ("connections", NUMBER), ("links", NUMBER), ("addresses", NUMBER),
        ("in/s", NUMBER), ("out/s", NUMBER), ("octets in/s", NUMBER), ("octets out/s", NUMBER), ("buffered", NUMBER),
        ("held back/s", NUMBER),
    ]  # fmt: skip
    table = FittedTable("Vhosts", heads)
    found = {name: {**row, "name": name} for name, row in now.vhosts.items() if state.matches(name)}
    by_rate = TopState(offset=state.offset)
    busy = ("deliveriesIn", "deliveriesOut", "connections")
    for row, earlier in _busiest(found, before.vhosts, busy, seconds, rows, by_rate):
        counted = row["messages"] is not None
        table.add_row(
            row["name"],
            *("-" if row[column] is None else f"{row[column]:,}" for column in ("connections", "links", "addresses")),
            *(_shown(None if row[column] is None else rate(row, earlier, column, seconds)) for column in _USAGE),
            memory(row["bufferedOctets"]) if counted else "-",
            _shown(rate(row, earlier, "creditHeldBack", seconds)) if counted else "-",
        )
    yield table


def _blocked(now: RouterSample, rows: int, state: TopState) -> Iterable[FittedTable]:
    """Yield a table of the links without credit for longest; nothing if no link is blocked."""

    def waits(row: Row) -> Any:
        return row["zeroCreditSeconds"] or 0

    found = _matching_links(now, state).values()
    blocked = sorted((row for row in found if waits(row) > BLOCKED_AFTER), key=waits, reverse=True)
    if blocked:
        title = f"Blocked links: {len(blocked)}"
        yield _link_table(title, [(row, None) for row in blocked[:rows]], lambda row, _: _shown(row["settleRate"]))
