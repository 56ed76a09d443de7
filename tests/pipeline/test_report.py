"""Page of the report, made from given figures."""

import os
import re
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser

import pytest

from sluice.pipeline.jobs.addresses import AddressFigures
from sluice.pipeline.jobs.capacity import RouterCapacity
from sluice.pipeline.jobs.links import LinkFigures
from sluice.pipeline.report import Findings, page
from sluice.pipeline.report_parts import duration, lines, number
from sluice.pipeline.telemetry.names import OUTCOMES
from tests.console.conftest import CHROMIUM

START = datetime(2026, 3, 1, tzinfo=timezone.utc)  # noqa: UP017
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


def test_page_on_narrow_screen_cuts_nothing(tmp_path):
    """Table rows become lists."""
    path = tmp_path / "report.html"
    path.write_text(page(findings()))
    with chromium() as browser:
        shown = browser.new_page(viewport={"width": 400, "height": 900})
        shown.goto(path.as_uri())

        def overflow(selector):
            """Return the largest overflow in pixels of the selected boxes."""
            script = (
                f"Math.max(...[...document.querySelectorAll('{selector}')].map(e => e.scrollWidth - e.clientWidth))"
            )
            return shown.evaluate(script)

        assert overflow("html") == 0
        assert overflow(".scroll") == 0
        assert shown.locator(".rows td:visible").count() > 20


@contextmanager
def chromium():
    if not os.access(CHROMIUM, os.X_OK):
        pytest.skip("chromium is not installed: apt-get install chromium")
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def test_numbers_and_durations_are_readable():
    assert [number(value) for value in (0, 950, 12_345, 4_560_000, 0.25)] == ["0", "950", "12.3 k", "4.56 M", "0.25"]
    assert [duration(value) for value in (None, 0.5, 378, 1940, 2.5e6)] == ["–", "0.5 µs", "378 µs", "1.94 ms", "2.5 s"]


def test_chart_of_one_point_or_none_is_drawn():
    assert "<circle" in lines("t", [("a", [(START, 0.0)])])
    assert "No figures" in lines("t", [("a", [])])
