"""Report of a period: one self-contained page of HTML."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape

from pipeline.jobs import capacity
from pipeline.jobs.addresses import AddressFigures
from pipeline.jobs.capacity import RouterCapacity
from pipeline.jobs.matrix import TrafficMatrix, crossing
from pipeline.jobs.starvation import StarvedConsumer
from pipeline.jobs.timeline import TimelineEvent
from pipeline.report_parts import bar, duration, heat, lines, number, percent, spark, style, table, tile

_MANY_LINES = 40  # lines of a timeline on the page


@dataclass(frozen=True)
class Findings:
    """Figures that the report shows."""

    start: datetime
    end: datetime
    seconds: float  # length of the part of the period with telemetry
    addresses: Sequence[AddressFigures]
    workers: dict[str, TrafficMatrix]
    routers: TrafficMatrix
    clients: TrafficMatrix
    starved: Sequence[StarvedConsumer]
    capacities: Sequence[RouterCapacity]
    topology: Sequence[TimelineEvent]
    refusals: Sequence[TimelineEvent]
    churn: dict[str, tuple[int, int]]


def page(findings: Findings) -> str:
    """Return the whole page."""
    f = findings
    period = f"{f.start:%Y-%m-%d %H:%M} to {f.end:%Y-%m-%d %H:%M} UTC"
    names = ", ".join(sorted(f.workers) or [each.router for each in f.capacities])
    sections = [
        _tiles(f),
        _load(f),
        _addresses(f),
        _traffic(f),
        _credit(f),
        _happened(f),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Routers, {escape(period)}</title><style>{style()}</style></head><body><main>"
        f'<h1>Routers: report</h1><p class="lead">{escape(period)} · {escape(names)}</p>'
        f"{''.join(sections)}<footer>Made by sluice pipeline report. Times are UTC. Latency is from the first octet "
        "at the router to the settlement, in histograms by powers of two, interpolated.</footer></main></body></html>\n"
    )


def _section(title: str, hint: str, body: str) -> str:
    return f'<section><h2>{escape(title)}</h2><p class="hint">{escape(hint)}</p>{body}</section>'


def _card(body: str, title: str = "") -> str:
    return f'<div class="card">{f"<h3>{escape(title)}</h3>" if title else ""}{body}</div>'


def _tiles(f: Findings) -> str:
    deliveries = sum(each.deliveries for each in f.addresses)
    bad = sum(sum(each.outcomes[name] for name in ("rejected", "released", "modified")) for each in f.addresses)
    across = sum(crossing(each) * each.total for each in f.workers.values())
    whole = sum(each.total for each in f.workers.values())
    busiest = max((each.busiest for each in f.capacities), default=0.0)
    slowest = max((each.settle_us[99] or 0.0 for each in f.addresses), default=0.0)
    refused = sum(each.count for each in f.refusals)
    rate = deliveries / max(f.seconds, 1e-3)
    return '<div class="tiles">' + "".join((
        tile("Deliveries", number(deliveries), f"{number(rate)} a second on average"),
        tile("Refused or given back", percent(bad / deliveries) if deliveries else "–", f"{number(bad)} deliveries",
             "bad" if deliveries and bad / deliveries > 0.05 else "good"),
        tile("Slowest p99", duration(slowest), "of the addresses below"),
        tile("Busiest worker", percent(busiest), "of a core, in its busiest interval",
             "bad" if busiest > 0.9 else "warn" if busiest > capacity.FULL else "good"),
        tile("Across workers", percent(across / whole) if whole else "–", "of deliveries",
             "warn" if whole and across / whole > 0.5 else ""),
        tile("Refused by policy", number(refused), "connections, links, messages", "warn" if refused else "good"),
    )) + "</div>"  # fmt: skip


def _load(f: Findings) -> str:
    rates = [(each.router, [(hour, rate) for hour, rate, _ in each.hourly]) for each in f.capacities]
    shares = [(each.router, [(hour, share) for hour, _, share in each.hourly]) for each in f.capacities]
    charts = _card(lines("Deliveries a second, by hour", rates)) + _card(
        lines("Busiest worker, share of a core, by hour", shares, capacity.FULL)
    )
    rows = [
        [
            escape(each.router),
            f"{each.cpu_us_a_delivery:.1f} µs",
            percent(each.busiest),
            f"{each.full_on:%Y-%m-%d}" if each.full_on else "no date (no growth, or less than two days)",
        ]
        for each in f.capacities
    ]
    heads = ("Router", "CPU a delivery", "Busiest interval", f"Busiest worker at {capacity.FULL:.0%}")
    return _section(
        "Load and head-room",
        f"The dashed line is {capacity.FULL:.0%} of a core, beyond which latency grows.",
        f'<div class="grid2">{charts}</div><div style="height:14px"></div>{_card(table(heads, rows, (1, 2)))}',
    )


def _addresses(f: Findings) -> str:
    most = max((each.deliveries for each in f.addresses), default=1) or 1
    rows = []
    for each in f.addresses:
        bad = sum(each.outcomes[name] for name in ("rejected", "released", "modified"))
        rows.append([
            escape(each.address),
            number(each.deliveries),
            bar(each.deliveries / most),
            spark(each.hourly),
            f"{number(each.rate(50))} / {number(each.rate(99))}",
            *(duration(each.settle_us[share]) for share in (50, 95, 99)),
            percent(bad / each.deliveries) if each.deliveries and bad else "–",
        ])  # fmt: skip
    heads = ("Address", "Deliveries", "", "By hour", "Rate p50 / p99", "Settled p50", "p95", "p99", "Refused")
    return _section(
        "Addresses",
        "What producers sent; rates are deliveries a second by hour, of the time in which routers ran.",
        _card(table(heads, rows, (1, 4, 5, 6, 7, 8))),
    )


def _traffic(f: Findings) -> str:
    cards = [_card(heat(matrix, "from", "to"), matrix.title) for matrix in f.workers.values()]
    if len(f.workers) > 1 or len(f.routers.cells) > 1:
        cards.insert(0, _card(heat(f.routers, "from", "to"), "Routers"))
    clients = _card(heat(f.clients, "from", "to"), "Clients, the busiest pairs")
    return _section(
        "Who sends to whom",
        "Deliveries. Clients have their container ids without numbers; “several” are producers that share an address "
        "and a worker.",
        f'<div class="grid2">{"".join(cards)}</div><div style="height:14px"></div>{clients}',
    )


def _credit(f: Findings) -> str:
    rows = [
        [
            escape(each.client),
            escape(each.address),
            escape(each.router),
            bar(each.share, 1),
            percent(each.share),
            f"{each.without_seconds / 60:,.1f} min",
            number(each.undelivered),
            number(each.stuck),
        ]
        for each in f.starved
    ]
    heads = ("Client", "Address", "Router", "Without credit", "", "In all", "Waited at most", "Stuck")
    body = table(heads, rows, (4, 5, 6, 7)) if rows else '<p class="none">No consumer withheld credit.</p>'
    return _section("Credit", "Consumers that took nothing while they were attached.", _card(body))


def _happened(f: Findings) -> str:
    def listed(found: Sequence[TimelineEvent], heads: Sequence[str], none: str) -> str:
        rows = [
            [f"{each.when:%m-%d %H:%M}", escape(each.router), escape(each.kind), escape(each.text)]
            + ([number(each.count)] if len(heads) > 4 else [])
            for each in found[:_MANY_LINES]
        ]
        more = f'<p class="none">{len(found) - _MANY_LINES} more.</p>' if len(found) > _MANY_LINES else ""
        return table(heads, rows, (4,)) + more if rows else f'<p class="none">{none}</p>'

    network = listed(f.topology, ("When", "Router", "What", "Where"), "No change.")
    policy = listed(f.refusals, ("Hour", "Router", "Reason", "Who", "Times"), "Nobody was refused.")
    churn = ", ".join(f"{escape(router)}: {number(a)} / {number(b)}" for router, (a, b) in sorted(f.churn.items()))
    return _section(
        "What happened",
        f"Connections opened / closed: {churn or 'none'}.",
        f'<div class="grid2">{_card(network, "Network, workers, configuration")}{_card(policy, "Policy")}</div>',
    )
