"""Simulated networks too large for a machine, and tables of 10,000 rows. `make bench ARGS=console` measures their
speed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtests.console_rows import DRAWING, links_shown, simulated, topology_frames
from loadtests.overviews import CONSOLE, Overviews, need_websocket
from loadtests.processes import MeasureError
from tests.console.network import WEB, web
from tests.system.router import RouterProcess, listener, poll

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("console-large")]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the console with the simulated network."""
    if shutil.which("node") is None or not (CONSOLE / "node_modules").is_dir():
        pytest.skip("the console cannot be built here: make console")
    with simulated(tmp_path_factory.mktemp("simulated")) as served:
        yield served


def test_topology_of_300_routers_is_drawn(page: Any, address: str) -> None:
    topology_frames(page, address)
    # A busy machine draws several steps of the mouse in one frame.
    page.wait_for_function(f"{DRAWING}.frames.length > 0")
    page.get_by_label("Find").fill("router-217")
    page.keyboard.press("Enter")
    page.get_by_role("complementary", name="router-217").wait_for()


def test_table_of_10000_links_has_visible_rows_only(page: Any, address: str) -> None:
    """Rows outside the visible area have no elements."""
    links_shown(page, address)
    assert 10 < page.locator(".row").count() < 100


def test_overviews_without_browser_get_answers(tmp_path: Path) -> None:
    """The clients that the benchmark runs fifty of connect, know the network, and get replies repeatedly."""
    try:
        need_websocket()
    except MeasureError as error:
        pytest.skip(str(error))
    router = RouterProcess(tmp_path, [listener(), web()])
    router.start()
    answers: list[int] = []

    def enough_answers() -> bool:
        answers.append(both.report()["answers"])
        return sum(answers) > 30

    with Overviews(router.ports[WEB], 2) as both:
        poll(enough_answers, "both have asked for all that the overview shows more than once", 60)
    router.stop()
