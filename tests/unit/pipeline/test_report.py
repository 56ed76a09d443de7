"""Page of the report, made from given figures."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest

from sluice.pipeline.jobs.addresses import AddressFigures
from sluice.pipeline.jobs.capacity import RouterCapacity
from sluice.pipeline.jobs.diagnoses import NOBODY, REJECTED, RETURNED, SLOW, WINDOW, WITHHELD, Diagnosis
from sluice.pipeline.jobs.links import LinkFigures
from sluice.pipeline.report import Findings, page
from sluice.pipeline.telemetry.names import OUTCOMES

START = datetime(2026, 3, 1, tzinfo=UTC)
NASTY = "<script>alert('x')</script>&\""
VOID = {"meta", "br"}


class ElementBalance(HTMLParser):
    """Parser that checks that each element is closed in order."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def findings(empty=False):
    outcomes = dict.fromkeys(OUTCOMES, 0) | {"rejected": 10}
    hours = [START + timedelta(hours=n) for n in range(24)]
    return Findings(
        start=START,
        end=START + timedelta(days=1),
        seconds=0.0 if empty else 500.0,
        capacities=[] if empty else [RouterCapacity("R", 12.5, [(hour, 5.0, 0.5) for hour in hours], 0.95, None)],
        addresses=[] if empty else [AddressFigures(NASTY, 1000, outcomes, {50: 12.0, 95: 1e4, 99: 3e6}, [1.0, 2.0])],
        busiest=[] if empty else [LinkFigures("R", NASTY, NASTY, "in", 12_345, 4_560_000, 0.0, 0.0, 0, 0)],
        stalled=[] if empty else [LinkFigures("R", NASTY, "a", "out", 5, 500, 90.0, 0.5, 7, 1)],
    )


def test_page_is_complete_and_self_contained():
    for empty in (False, True):
        text = page(findings(empty))
        balance = ElementBalance()
        balance.feed(text)
        assert balance.open == []
        assert not re.search(r"https?://|<script|<link|url\(|@import", text)
        assert "prefers-color-scheme: dark" in text


def test_page_shows_the_findings():
    text = page(findings())
    assert "1.0%" in text
    assert "1.5 min" in text
    assert "12.3 k" in text
    assert "No link was without credit" not in text
    assert 'class="tile bad"' in text  # A worker uses 95% of a core


def tile_tone(text: str, label: str) -> str:
    match = re.search(rf'<div class="tile (\w*)"><div class="label">{label}</div>', text)
    assert match is not None
    return match[1]


def test_page_without_figures_says_so():
    text = page(findings(empty=True))
    assert "2026-03-01 00:00 to 2026-03-02 00:00 UTC" in text
    assert "No deliveries." in text
    assert "No link was without credit." in text
    assert tile_tone(text, "Refused or given back") == "good"


def test_names_of_routers_are_escaped():
    nasty = findings()
    text = page(replace(nasty, capacities=[replace(nasty.capacities[0], router=NASTY)]))
    assert "<script" not in text


@pytest.mark.parametrize(("bad", "tone"), [(50, "good"), (51, "bad")])
def test_refused_share_counts_rejected_released_and_modified(bad, tone):
    counts = {"rejected": bad - 2, "released": 1, "modified": 1}
    one = replace(findings().addresses[0], outcomes=dict.fromkeys(OUTCOMES, 0) | counts)
    text = page(replace(findings(), addresses=[one]))
    assert f"{bad} deliveries" in text
    assert tile_tone(text, "Refused or given back") == tone
    assert "to the addresses below, 2 a second" in text


@pytest.mark.parametrize(("share", "tone"), [(0.5, "good"), (0.8, "warn"), (0.95, "bad")])
def test_busiest_worker_is_coloured_by_load(share, tone):
    router = replace(findings().capacities[0], busiest=share)
    assert tile_tone(page(replace(findings(), capacities=[router])), "Busiest worker") == tone


def test_forecast_is_a_date_or_its_absence():
    router = replace(findings().capacities[0], full_on=datetime(2026, 4, 5, tzinfo=UTC))
    assert "2026-04-05" in page(replace(findings(), capacities=[router]))
    assert "no date (no growth, or less than two days)" in page(findings())


def test_stalled_link_shows_its_direction():
    consumer = findings().stalled[0]
    text = page(replace(findings(), busiest=[], stalled=[consumer]))
    assert "receives from" in text
    assert "sends to" not in text
    assert "sends to" in page(replace(findings(), busiest=[], stalled=[replace(consumer, direction="in")]))


def diagnosis(kind: str = SLOW, clients: tuple[str, ...] = (NASTY,)) -> Diagnosis:
    outcomes = {"rejected": 5, "released": 7, "modified": 0}
    series = [(START, 0.5), (START + timedelta(minutes=1), 1.0)]
    until = START + timedelta(hours=2)
    return Diagnosis(
        kind, NASTY, clients, [NASTY], START, until, False, 400.0, 12, 100, outcomes, 8e6, 250, series, series
    )


@pytest.mark.parametrize("kind", [SLOW, WITHHELD, NOBODY, WINDOW, REJECTED, RETURNED])
@pytest.mark.parametrize("clients", [(NASTY,), ()])
def test_entry_has_time_action_and_evidence_that_exists(kind, clients):
    text = page(replace(findings(), diagnoses=[diagnosis(kind, clients)]))
    balance = ElementBalance()
    balance.feed(text)
    assert balance.open == []
    assert "<script" not in text
    assert "2026-03-01 00:00 to 02:00" in text
    assert re.search(r'<p class="do">[A-Z].+\.</p>', text)
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(re.findall(r' id="([^"]+)"', text))


@pytest.mark.parametrize("kind", [SLOW, WITHHELD, NOBODY])
def test_larger_capacity_is_not_advised_for_slow_or_missing_receivers(kind):
    text = page(replace(findings(), diagnoses=[diagnosis(kind)]))
    assert re.search(r"larger <code>linkCapacity</code> (does not help|would only let more messages wait)", text)


def test_released_deliveries_are_not_called_rejected():
    listed = page(replace(findings(), diagnoses=[diagnosis(RETURNED)])).partition("<ol")[2].partition("</ol>")[0]
    assert "7 released" in listed
    assert "rejected" not in listed


def test_charts_of_short_period_are_by_minute():
    text = page(replace(findings(), minutes=True))
    assert "Deliveries a second, by minute" in text
    assert "by hour" not in text


def test_page_says_how_much_telemetry_there_is():
    assert "telemetry of 8 min between 03-01 00:00 and 03-02 00:00" in page(findings())
