"""Section *What to do* of the report: each diagnosis with who, since when, what to do, and its evidence."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Final

from sluice.pipeline.jobs.diagnoses import NOBODY, REJECTED, RETURNED, SLOW, STALLS, WINDOW, WITHHELD, Diagnosis
from sluice.pipeline.report_parts import duration, lines, number, percent

_MOST_NAMES: Final = 3  # clients that are named
_TONES: Final[Mapping[str, str]] = {**dict.fromkeys((*STALLS, REJECTED), "bad"), RETURNED: "warn", WINDOW: "warn"}


def section(found: Sequence[Diagnosis], minutes: bool) -> str:
    """Return the section, followed by the charts that it links to. minutes: the charts are by minute, not by hour."""
    if not found:
        return (
            '<div class="card"><p class="none">No producer was held up, and few deliveries were not accepted.</p></div>'
        )
    items = "".join(_item(at, one) for at, one in enumerate(found, 1))
    charts = "".join(_evidence(at, one, minutes) for at, one in enumerate(found, 1))
    return f'<ol class="todo">{items}</ol><h3>Evidence</h3><div class="grid2">{charts}</div>'


def _item(at: int, one: Diagnosis) -> str:
    what, action = _TEXTS[one.kind](one)
    until = "the end of the telemetry" if one.present else f"{one.until:%H:%M}"
    if not one.present and one.until.date() != one.since.date():
        until = f"{one.until:%Y-%m-%d %H:%M}"
    when = f"{one.since:%Y-%m-%d %H:%M} to {until}"
    if one.seconds:
        when += f", {_long(one.seconds)} in all"
    return (
        f'<li class="card {_TONES[one.kind]}"><b>{escape(one.address)}</b>: {what}'
        f'<p class="hint">{when} · affected: {_names(one.senders, "unknown senders")} · '
        f'<a href="#evidence-{at}">evidence</a></p><p class="do">{action}</p></li>'
    )


def _slow(one: Diagnosis) -> tuple[str, str]:
    who = _names(one.clients, "A receiver beyond the routers of this report")
    held = f" and holds up to {number(one.count)} deliveries that it has not settled" if one.count else ""
    return (
        f"{who} is slow: it gives credit{held}, and 1 % of the deliveries waited longer than {duration(one.p99_us)} "
        f"(p99). Senders have {number(one.capacity)} deliveries on their way each, and wait.",
        f"Make {who} faster, or start more receivers. A smaller prefetch lets other receivers take what waits there. "
        "A larger <code>linkCapacity</code> would only let more messages wait.",
    )


def _withheld(one: Diagnosis) -> tuple[str, str]:
    who = _names(one.clients, "The receivers")
    return (
        f"{who} gave no credit, so senders wait.",
        f"Look why {who} takes no messages (<code>sluice explain {escape(one.address)}</code>), make it faster, or "
        "start more receivers. A larger <code>linkCapacity</code> does not help.",
    )


def _nobody(one: Diagnosis) -> tuple[str, str]:
    return (
        "nobody receives, so senders wait.",
        f"Start a receiver of {escape(one.address)}, or stop the senders. A larger <code>linkCapacity</code> does not "
        "help.",
    )


def _window(one: Diagnosis) -> tuple[str, str]:
    who = _names(one.clients, "the receivers")
    return (
        f"senders use all their credit, {number(one.capacity)} deliveries on each link, although deliveries are "
        f"settled within {duration(one.p99_us)} (p99).",
        f"If {who} has idle time (it is far away, or acknowledges in batches), a larger <code>linkCapacity</code> of "
        "the senders' listener lets more messages through. If not, more receivers do.",
    )


def _rejected(one: Diagnosis) -> tuple[str, str]:
    who = _names(one.clients, "")
    share = f"{number(one.count)} of {number(one.deliveries)} deliveries ({percent(one.count / one.deliveries)})"
    if not who:
        return (
            f"{share} were rejected, by no receiver of these routers.",
            "Look in the log of the router for the reason: a message that is too large, or a broker that refuses it.",
        )
    return (
        f"{who} rejected {share}.",
        f"Look in the log of {who} for the reason. Rejected messages are not delivered again.",
    )


def _returned(one: Diagnosis) -> tuple[str, str]:
    who = _names(one.clients, "")
    parts = [f"{number(one.outcomes[name])} {name}" for name in ("released", "modified") if one.outcomes[name]]
    share = f"{' and '.join(parts)} of {number(one.deliveries)} deliveries ({percent(one.count / one.deliveries)})"
    if not who:
        return (
            f"{share}, by the router: no receiver took them.",
            f"Keep a receiver of {escape(one.address)} attached; senders send these messages again or lose them.",
        )
    return (
        f"{who} gave back {share}.",
        f"Look why {who} does not keep them: it may close with messages in its prefetch, or lack room. Senders send "
        "these messages again or lose them.",
    )


_TEXTS: Final[Mapping[str, Callable[[Diagnosis], tuple[str, str]]]] = {
    SLOW: _slow,
    WITHHELD: _withheld,
    NOBODY: _nobody,
    WINDOW: _window,
    REJECTED: _rejected,
    RETURNED: _returned,
}


def _evidence(at: int, one: Diagnosis, minutes: bool) -> str:
    by = "minute" if minutes else "hour"
    charts = []
    if one.kind in (*STALLS, WINDOW):
        charts.append(lines(f"Share of each {by} in which a sender waited", [("", one.held)], show=percent))
    if one.kind != NOBODY:
        charts.append(lines(f"Settled within (p99, by {by})", [("", one.p99)], show=lambda s: duration(s * 1e6)))
    counts = "".join(f"<li>{escape(name)}: {number(count)}</li>" for name, count in one.outcomes.items() if count)
    listed = f'<ul class="hint">{counts}</ul>' if counts else ""
    return f'<div class="card" id="evidence-{at}"><b>{at}. {escape(one.address)}</b>{"".join(charts)}{listed}</div>'


def _names(clients: Sequence[str], other: str) -> str:
    """Return the first clients as HTML."""
    if not clients:
        return other
    more = f" and {len(clients) - _MOST_NAMES} more" if len(clients) > _MOST_NAMES else ""
    return ", ".join(f"<b>{escape(each)}</b>" for each in clients[:_MOST_NAMES]) + more


def _long(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
