"""Start of the console: served, connected, and showing the router. All other tests of the console are long ones."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.conftest import BUILT
from tests.console.network import url, web
from tests.system.http import get
from tests.system.networks import ports
from tests.system.router import RouterProcess, listener
from tests.system.tools import run

pytestmark = pytest.mark.xdist_group("console-smoke")  # the tests share a router


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RouterProcess]:
    """Router with three HTTP listeners: with the console, without WebSocket, and with a directory of its own."""
    folder = tmp_path_factory.mktemp("smoke")
    (folder / "own").mkdir()
    (folder / "own" / "index.html").write_text("mine")
    sections = [
        listener(),
        ("listener", {**web()[1], "port": ports(1)[0]}),
        listener("bare", http=True, websockets=False),
        listener("own", httpRootDir=folder / "own"),
    ]
    made = RouterProcess(folder, sections)
    made.start()
    yield made
    made.stop()


def test_console_shows_its_router(page: Any, router: RouterProcess) -> None:
    page.goto(url(router))
    page.locator(".row", has_text="QDR").wait_for()
    page.get_by_text("Nothing. All routers answer").wait_for()


def test_console_files_are_served(router: RouterProcess) -> None:
    if not BUILT.exists():
        reply = get(router.ports["web"], "/")
        assert (reply.status, b"make console" in reply.body) == (404, True)
        return
    for path in ("/", "/console.js", "/console.css", "/icon.svg"):
        plain = get(router.ports["web"], path)
        compressed = get(router.ports["web"], path, **{"Accept-Encoding": "gzip, br"})
        assert (plain.status, compressed.status) == (200, 200)
        assert compressed.headers["Content-Encoding"] == "gzip"
        assert compressed.headers["Content-Type"] == plain.headers["Content-Type"]
        assert compressed.headers["ETag"] != plain.headers["ETag"]
        assert gzip.decompress(compressed.body) == plain.body
        policy = plain.headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
    for path in ("/console.js.gz", "/nothing.js", "/../server.py", "/%2e%2e/server.py"):
        assert get(router.ports["web"], path).status == 404


def test_listeners_without_console_serve_no_files(router: RouterProcess) -> None:
    assert get(router.ports["bare"], "/").status == 404
    assert get(router.ports["own"], "/").body == b"mine"
    assert get(router.ports["own"], "/console.js").status == 404


def test_console_address_is_in_the_log_and_the_command(router: RouterProcess) -> None:
    there = f"http://127.0.0.1:{router.ports['web']}/"
    assert re.search(rf"Listening on \S+ \(web\), console at {there}$", router.log, re.MULTILINE)
    assert len(re.findall("console at", router.log)) == 1
    done = run("console", router.port, "--print")
    assert (done.code, done.out) == (0, there + "\n")


def test_console_files_are_small() -> None:
    if not BUILT.exists():
        pytest.skip("the console is not built: make console")
    folder = Path(BUILT).parent
    assert sum(path.stat().st_size for path in folder.glob("*.gz")) <= 400_000
