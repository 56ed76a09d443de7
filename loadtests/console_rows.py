"""Rows about the web console: a network too large to run, and a table of 10,000 links.

console/test/simulated.tsx takes the place of a router as the source of data.
"""

from __future__ import annotations

import functools
import http.server
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from loadtests.measuring import Bench
from loadtests.overviews import CONSOLE, bundle
from loadtests.processes import MeasureError
from loadtests.report import Figure, at_most

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
PATIENCE = 100_000  # milliseconds
DRAWING = "document.querySelector('canvas').drawing"
LAID_OUT = f"!{DRAWING}.improving && {DRAWING}.graph.nodes.size === 600"
SWITCH = """() => {
    const began = performance.now();
    window.shown = undefined;
    new MutationObserver((_, observer) => {
        if (document.querySelector('[aria-label=Links] .row:not(.heads)') === null) return;
        window.shown = performance.now() - began;
        observer.disconnect();
    }).observe(document.body, {childList: true, subtree: true});
    location.hash = '#/links';
}"""
SCROLL = """async () => {
    const box = document.querySelector('[role=grid]'), found = [];
    for (let step = 0; step < 60; step += 1) {
        await new Promise(requestAnimationFrame);
        const began = performance.now();
        box.scrollTop += 400;
        await new Promise((done) => setTimeout(done));
        found.push(performance.now() - began);
    }
    return found;
}"""


class SilentRequestHandler(http.server.SimpleHTTPRequestHandler):
    """Request handler that writes no log."""

    def log_message(self, *words: object) -> None:
        return


@contextmanager
def simulated(folder: Path, entry: str = "simulated.tsx") -> Iterator[str]:
    """Build the console with a simulated network in `folder`, serve it and yield its URL. Raises MeasureError.

    entry: the program of console/test with the network.
    """
    bundle(entry, folder)
    for name in ("index.html", "icon.svg"):
        shutil.copy(CONSOLE / "src" / name, folder)
    handler = functools.partial(SilentRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()


def topology_frames(page: Page, address: str) -> list[float]:
    """Return the milliseconds of each frame with 300 routers and 3,000 groups of clients while zooming and moving."""
    page.goto(address + "#/topology")
    page.get_by_text("300 routers, 3,000 clients in 3,000 groups").wait_for(timeout=PATIENCE)
    page.wait_for_function(LAID_OUT, timeout=PATIENCE)
    box = page.locator("canvas").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.evaluate(f"{DRAWING}.frames.length = 0")
    for step in range(8):
        page.mouse.move(x, y)
        page.mouse.wheel(0, -300)
        page.mouse.down()
        page.mouse.move(x + 10 * step, y + 5 * step, steps=5)
        page.mouse.up()
    frames: list[float] = page.evaluate(f"{DRAWING}.frames")
    return frames


def links_shown(page: Page, address: str) -> tuple[float, list[float]]:
    """Return the milliseconds until the first of 10,000 links are shown, and those of each scrolling step."""
    page.goto("about:blank")
    page.goto(address + "#/connections")
    page.locator(".row:not(.heads)").first.wait_for()
    page.evaluate(SWITCH)
    page.get_by_text("10,000").wait_for()
    shown: float = page.evaluate("window.shown")
    steps: list[float] = page.evaluate(SCROLL)
    return shown, steps


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run Debian's Chromium without a screen. Raises MeasureError."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise MeasureError(f"playwright is not installed: {error}") from error
    if not Path(CHROMIUM).exists():
        raise MeasureError("chromium is not installed: apt-get install chromium")
    with (
        sync_playwright() as playwright,
        # The sandbox needs name spaces, which containers seldom grant. The pages are trusted.
        playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]) as browser,
    ):
        yield browser


def console(bench: Bench) -> list[Figure]:
    """Measure the speed of the console's pages with the simulated network."""
    with (
        tempfile.TemporaryDirectory(prefix="sluice-console-") as folder,
        simulated(Path(folder)) as address,
        chromium() as browser,
    ):
        page = browser.new_page(viewport={"width": 1360, "height": 850})
        page.set_default_timeout(PATIENCE)
        frames = topology_frames(page, address)
        tables = [links_shown(page, address) for _ in range(bench.effort.rounds)]
    return [
        Figure("console: 300 routers, 3,000 groups", median(frames), "ms a frame", at_most(50)),
        Figure("console: first of 10,000 links", median(shown for shown, _ in tables), "ms", at_most(500)),
        Figure(
            "console: scrolling through 10,000 links",
            median(median(steps) for _, steps in tables),
            "ms a step",
            at_most(16.7),
        ),
    ]
