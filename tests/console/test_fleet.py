"""Appearance of the console with 21 routers, long and hostile names, and troubles: console/test/fleet.tsx, no router."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtests.console_rows import simulated
from loadtests.overviews import CONSOLE
from tests.console.test_pages import row, rows

pytestmark = pytest.mark.xdist_group("console-fleet")  # the tests share a build of the console


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the console with the network of 21 routers."""
    if shutil.which("node") is None or not (CONSOLE / "node_modules").is_dir():
        pytest.skip("the console cannot be built here: make console")
    with simulated(Path(tmp_path_factory.mktemp("fleet")), "fleet.tsx") as served:
        yield served


def test_lost_connection_makes_the_overview_grey(page: Any, fleet: str) -> None:
    """The last findings stay, no health is green, and another router's console is offered."""
    page.goto(fleet)
    finding = page.get_by_role("link", name="frankfurt-1 is not connected to broker-a.eu.example.com:5671")
    finding.wait_for()
    row(page, "Routers", "sao-paulo-1").locator(".badge.good").wait_for()
    page.goto(f"{fleet}#/topology")
    page.locator("canvas").wait_for()
    page.evaluate("fleet.lose()")
    page.get_by_text(re.compile(r"What you see is old, from \d\d:\d\d:\d\d")).wait_for()
    page.goto(f"{fleet}#/overview")
    finding.wait_for()
    row(page, "Routers", "sao-paulo-1").get_by_text("good before").wait_for()
    row(page, "Routers", "frankfurt-1").get_by_text("trouble before").wait_for()
    assert page.locator(".badge.good").count() == 0
    other = page.get_by_role("link", name="dublin-1", exact=True)
    assert re.fullmatch(r"http://10\.0\.0\.\d+:8672/#/overview", other.get_attribute("href"))


def test_silent_router_is_reported_with_its_last_findings(page: Any, fleet: str) -> None:
    page.goto(fleet)
    page.get_by_role("link", name="A certificate of oregon-1 expires in 5 days").wait_for()
    page.evaluate("fleet.silence('oregon-1')")
    row(page, "Routers", "oregon-1").get_by_text("silent").wait_for()
    page.locator(".tile", has_text="Connections").get_by_text("20 of 21 routers").wait_for()
    assert rows(page, "Routers").count() > 10
