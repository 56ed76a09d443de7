"""Page of the report in a browser."""

import os
from contextlib import contextmanager

import pytest

from sluice.pipeline.report import page
from tests.console.conftest import CHROMIUM
from tests.unit.pipeline.test_report import findings


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
