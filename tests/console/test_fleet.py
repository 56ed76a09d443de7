"""Appearance of the console with 21 routers, hostile names and troubles: console/test/fleet.tsx, without a router."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from loadtests.console_rows import simulated
from loadtests.overviews import CONSOLE
from tests.console.shots import PAGES
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
    colour = "element => getComputedStyle(element).color"
    grey = page.locator(".about").first.evaluate(colour)
    assert {page.locator(each).first.evaluate(colour) for each in (".badge.bad", ".tile.bad b")} == {grey}
    other = page.get_by_role("link", name="dublin-1", exact=True)
    assert re.fullmatch(r"http://10\.0\.0\.\d+:8672/#/overview", other.get_attribute("href"))


def test_silent_router_is_reported_with_its_last_findings(page: Any, fleet: str) -> None:
    page.goto(fleet)
    page.get_by_role("link", name="A certificate of oregon-1 expires in 5 days").wait_for()
    page.evaluate("fleet.silence('oregon-1')")
    row(page, "Routers", "oregon-1").get_by_text("silent").wait_for()
    page.locator(".tile", has_text="Connections").get_by_text("20 of 21 routers").wait_for()
    assert rows(page, "Routers").count() > 10


def test_log_page_filters_levels_pauses_and_downloads(page: Any, fleet: str) -> None:
    page.goto(f"{fleet}#/log")
    times = rows(page, "Log").locator("time")
    times.first.wait_for()
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}", each) for each in times.all_inner_texts())
    page.get_by_role("combobox", name="Level").select_option("warning")
    rows(page, "Log").first.filter(has_text=re.compile("error|warning")).wait_for()
    assert rows(page, "Log").filter(has_text=re.compile("^(?!.*(error|warning))")).count() == 0
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("Paused: new lines come when you go on").wait_for()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert download.value.suggested_filename == "frankfurt-1.log"
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} [A-Z_]+ \((error|warning)\) ", each) for each in lines)


def test_table_columns_are_chosen_resized_and_kept(page: Any, fleet: str) -> None:
    page.goto(f"{fleet}#/links")
    rows(page, "Links").first.wait_for()
    heads = page.get_by_role("columnheader")
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("Connection", exact=True).uncheck()
    heads.filter(has_text="Connection").wait_for(state="detached")
    address = heads.filter(has_text="Address")
    before = address.bounding_box()["width"]
    for _ in range(4):
        address.get_by_role("button").press("Shift+ArrowRight")
    assert abs(address.bounding_box()["width"] - before - 64) < 4
    page.reload()
    rows(page, "Links").first.wait_for()
    assert heads.filter(has_text="Connection").count() == 0
    assert abs(address.bounding_box()["width"] - before - 64) < 4


@pytest.mark.parametrize(
    "width", [pytest.param(390, marks=pytest.mark.long), 1280, pytest.param(1920, marks=pytest.mark.long)]
)
def test_heads_of_tables_are_never_cut(page: Any, fleet: str, width: int) -> None:
    """No text of a head is wider than its column, and long names keep both ends."""
    page.set_viewport_size({"width": width, "height": 800})
    for place in (
        "overview",
        "addresses?router=*",
        "links?router=*",
        "connections",
        "vhosts?router=dublin-1",
        "autolinks",
        "workers",
        "log",
    ):
        page.goto(f"{fleet}#/{place}")
        page.locator(".row:not(.heads)").first.wait_for()
        cut = page.evaluate(
            "[...document.querySelectorAll('.heads button')]"
            ".filter(b => b.scrollWidth > b.clientWidth + 1).map(b => b.textContent)"
        )
        assert cut == [], place
        assert page.evaluate("document.documentElement.scrollWidth") <= width, place
    page.goto(f"{fleet}#/addresses")
    assert page.locator(".cut", has_text="sensors/plant").first.locator("span").last.inner_text() == "st-minute"


AXE = CONSOLE / "node_modules" / "axe-core" / "axe.min.js"
RUN_AXE = """async () => (await axe.run()).violations.map((each) =>
    `${each.id}: ${each.help}: ${each.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`)"""


FEW_PAGES = ("overview", "topology-open", "links", "log")
AXE_RUNS = [
    (1280, "light", FEW_PAGES),
    *(
        pytest.param(width, theme, tuple(PAGES), marks=pytest.mark.long)
        for width, theme in ((390, "light"), (390, "dark"), (1280, "light"), (1280, "dark"), (1920, "light"))
    ),
]


@pytest.mark.parametrize(("width", "theme", "names"), AXE_RUNS)
def test_pages_have_no_violations_of_accessibility(
    page: Any, fleet: str, width: int, theme: Literal["light", "dark"], names: tuple[str, ...]
) -> None:
    """Rules of axe-core: WCAG 2.2 A and AA, and best practices, on each page and on the page of a lost connection."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make console")
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=theme)
    page.goto(fleet)
    page.add_script_tag(path=AXE)
    page.evaluate("document.body.append(document.createElement('button'))")
    assert [each.split(":")[0] for each in page.evaluate(RUN_AXE)] == ["button-name"], "axe-core finds a fault"
    page.evaluate("document.body.lastElementChild.remove()")
    found: list[str] = []
    for name in names:
        place, selector = PAGES[name]
        page.evaluate("place => { location.hash = place; }", f"#/{place}")
        page.locator(selector).first.wait_for()
        found += [f"{name}: {each}" for each in page.evaluate(RUN_AXE)]
    page.evaluate("location.hash = '#/overview'")
    page.evaluate("fleet.lose()")
    page.get_by_text("What you see is old").wait_for()
    found += [f"lost: {each}" for each in page.evaluate(RUN_AXE)]
    assert found == []


def test_finding_offers_to_close_the_connection_that_holds_messages(page: Any, fleet: str) -> None:
    page.goto(fleet)
    page.get_by_role("button", name="Close connection 8 of sydney-1 …").click()
    dialog = page.get_by_role("dialog", name="Close this connection?")
    dialog.get_by_role("button", name="Close the connection").click()
    dialog.wait_for(state="detached")
    assert page.evaluate("fleet.closed") == ["sydney-1/8"]


def test_name_that_turns_the_direction_of_writing_moves_nothing_beside_it(page: Any, fleet: str) -> None:
    """A badge behind such a name stays behind it."""
    page.goto(f"{fleet}#/reload")
    heading = page.get_by_role("heading", name="document.title")
    name, badge = heading.locator("bdi").bounding_box(), heading.locator(".badge").bounding_box()
    assert badge["x"] >= name["x"] + name["width"] - 1
    assert page.title() == "Reload · Sluice"
