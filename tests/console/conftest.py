"""Fixtures of the console's tests: Debian's Chromium, and a network of routers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.network import ConsoleNetwork
from tests.system.router import ROOT

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
BUILT = ROOT / "supervisor" / "web" / "console" / "index.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless browser.

    The scope is the module: while the browser runs, the process has a running event loop, and other tests could not
    run their own.
    """
    if not Path(CHROMIUM).exists():
        pytest.skip("chromium is not installed: apt-get install chromium")
    if not BUILT.exists():
        pytest.skip("the console is not built: make console")
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync.sync_playwright() as playwright:
        # Chromium's sandbox needs user namespaces, which containers seldom provide; the pages are the router's own.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """Page that must raise no error, log no error, and send requests to the router only."""
    page = browser.new_page(viewport={"width": 1360, "height": 850})
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(f"error: {error}"))
    page.on("console", lambda line: faults.append(f"log: {line.text}") if _is_fault(line) else None)
    page.on(
        "request", lambda request: None if "//127.0.0.1:" in request.url else faults.append(f"asked: {request.url}")
    )
    page.set_default_timeout(20_000)
    yield page
    page.close()
    assert faults == []


def _is_fault(line: Any) -> bool:
    # The browser itself reports a WebSocket that cannot be opened, as during a restart of a router.
    return line.type in ("error", "warning") and "WebSocket" not in line.text and "ERR_CONNECTION" not in line.text


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleNetwork]:
    """Network with clients, shared by the tests of a module."""
    network_of_module = ConsoleNetwork(tmp_path_factory.mktemp("network"))
    yield network_of_module
    network_of_module.stop()
