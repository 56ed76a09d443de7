"""Report of a period: one self-contained page of HTML."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape

from sluice.pipeline import report_advice
from sluice.pipeline.jobs import capacity
from sluice.pipeline.jobs.addresses import AddressFigures
from sluice.pipeline.jobs.capacity import RouterCapacity
from sluice.pipeline.jobs.diagnoses import Diagnosis
from sluice.pipeline.jobs.links import LinkFigures
from sluice.pipeline.report_parts import bar, duration, lines, number, percent, spark, style, table, tile

_DIRECTIONS = {"in": "sends to", "out": "receives from"}
_LINK_HEADS = ("Client", "", "Address", "Router")


@dataclass(frozen=True)
class Findings:
    """Figures that the report shows."""

    start: datetime
    end: datetime
    seconds: float  # length of the part of the period with telemetry
    capacities: Sequence[RouterCapacity]
    addresses: Sequence[AddressFigures]
    busiest: Sequence[LinkFigures]
    stalled: Sequence[LinkFigures]
    diagnoses: Sequence[Diagnosis] = ()
    minutes: bool = False  # True: figures over time are by minute, not by hour


def page(findings: Findings) -> str:
    """Return the whole page."""
    f = findings
    period = f"{f.start:%Y-%m-%d %H:%M} to {f.end:%Y-%m-%d %H:%M} UTC"
    names = ", ".join(each.router for each in f.capacities)
    sections = [_tiles(f), _advice(f), _load(f), _addresses(f), _busiest(f), _stalled(f)]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Routers, {escape(period)}</title><style>{style()}</style></head><body><main>"
        f'<h1>Routers: report</h1><p class="lead">{escape(period)}{escape(_covered(f))} · {escape(names)}</p>'
        f"{''.join(sections)}<footer>Made by sluice pipeline report. Times are UTC. Latency is from the first octet "
        "at the router to the settlement, in histograms by powers of two, interpolated.</footer></main></body></html>\n"
    )


def _covered(f: Findings) -> str:
    """Return the times of the first and the last telemetry, if the period has less than it could."""
    times = [hour for each in f.capacities for hour, _, _ in each.hourly]
    if not times or f.seconds >= 0.99 * (f.end - f.start).total_seconds():
        return ""
    step = timedelta(minutes=1) if f.minutes else timedelta(hours=1)
    between = f"{min(times):%m-%d %H:%M} and {max(times) + step:%m-%d %H:%M}"
    return f" · telemetry of {f.seconds / 60:,.0f} min between {between}"


def _by(f: Findings) -> str:
    return "minute" if f.minutes else "hour"


def _advice(f: Findings) -> str:
    hint = "The most urgent first: what still goes on, then senders that wait, then deliveries that were not accepted."
    return _section("What to do", hint, report_advice.section(f.diagnoses, f.minutes))


def _section(title: str, hint: str, body: str) -> str:
    return f'<section><h2>{escape(title)}</h2><p class="hint">{escape(hint)}</p>{body}</section>'


def _card(body: str) -> str:
    return f'<div class="card">{body}</div>'


def _tiles(f: Findings) -> str:
    deliveries = sum(each.deliveries for each in f.addresses)
    bad = sum(sum(each.outcomes[name] for name in ("rejected", "released", "modified")) for each in f.addresses)
    busiest = max((each.busiest for each in f.capacities), default=0.0)
    slowest = max((each.settle_us[99] or 0.0 for each in f.addresses), default=0.0)
    rate = deliveries / max(f.seconds, 1e-3)
    return '<div class="tiles">' + "".join((
        tile("Deliveries", number(deliveries), f"to the addresses below, {number(rate)} a second"),
        tile("Refused or given back", percent(bad / deliveries) if deliveries else "–", f"{number(bad)} deliveries",
             "bad" if deliveries and bad / deliveries > 0.05 else "good"),
        tile("Slowest p99", duration(slowest), "of the addresses below"),
        tile("Busiest worker", percent(busiest), "of a core, in its busiest interval",
             "bad" if busiest > 0.9 else "warn" if busiest > capacity.FULL else "good"),
    )) + "</div>"  # fmt: skip


def _load(f: Findings) -> str:
    rates = [(each.router, [(hour, rate) for hour, rate, _ in each.hourly]) for each in f.capacities]
    shares = [(each.router, [(hour, share) for hour, _, share in each.hourly]) for each in f.capacities]
    charts = _card(lines(f"Deliveries a second, by {_by(f)}", rates)) + _card(
        lines(f"Busiest worker, share of a core, by {_by(f)}", shares, capacity.FULL)
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
        "Load and growth",
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
    heads = ("Address", "Deliveries", "", f"By {_by(f)}", "Rate p50 / p99", "Settled p50", "p95", "p99", "Refused")
    return _section(
        "Addresses",
        f"What producers sent; rates are deliveries a second by {_by(f)}, of the time in which routers ran.",
        _card(table(heads, rows, (1, 4, 5, 6, 7, 8))),
    )


def _busiest(f: Findings) -> str:
    most = max((each.deliveries for each in f.busiest), default=1)
    rows = [
        [*_link(each), bar(each.deliveries / most), number(each.deliveries), number(each.octets)] for each in f.busiest
    ]
    body = table((*_LINK_HEADS, "", "Deliveries", "Octets"), rows, (5, 6)) if rows else _none("No deliveries.")
    hint = "Clients are shown by container id without numbers. “?”: anonymous senders and links between routers."
    return _section("Busiest links", hint, _card(body))


def _stalled(f: Findings) -> str:
    rows = [
        [
            *_link(each),
            bar(each.share, 1),
            percent(each.share),
            f"{each.without_seconds / 60:,.1f} min",
            number(each.undelivered),
            number(each.stuck),
        ]
        for each in f.stalled
    ]
    heads = (*_LINK_HEADS, "Without credit", "", "In all", "Waited at most", "Stuck")
    body = table(heads, rows, (5, 6, 7, 8)) if rows else _none("No link was without credit.")
    hint = "Consumers that took nothing while they were attached, then producers that the router let wait."
    return _section("Stalls", hint, _card(body))


def _link(each: LinkFigures) -> tuple[str, ...]:
    return escape(each.client), _DIRECTIONS[each.direction], escape(each.address), escape(each.router)


def _none(text: str) -> str:
    return f'<p class="none">{text}</p>'
