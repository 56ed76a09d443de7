"""Web page of another site, in a browser on the machine of a router whose console needs no login."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.console.conftest import CHROMIUM
from tests.system.router import RouterProcess, listener

EVIL, REBOUND = "evil.example", "rebound.example"
#: Names of a listener on 127.0.0.1. Browsers themselves refuse some of them.
NAMES = [
    "localhost", "127.0.0.1", "127.1", "0.0.0.0", "localhost.", "[::ffff:127.0.0.1]", "[::1]", "[::]", "127.0.0.1.",
    "evil.localhost", REBOUND,
]  # fmt: skip
#: Script that tries to open a WebSocket and returns the result.
TRY_WEBSOCKET = """([url]) => new Promise(done => {
    try {
        const socket = new WebSocket(url, "amqp");
        socket.onopen = () => { socket.close(); done("open"); };
        socket.onerror = () => done("closed");
    } catch (error) { done("refused by the browser"); }
})"""


class _EvilPageHandler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<!DOCTYPE html><title>evil</title>")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    """Port of a web server of another site."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _EvilPageHandler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Browser that resolves all names of other sites to this machine."""
    if not Path(CHROMIUM).exists():
        pytest.skip("chromium is not installed: apt-get install chromium")
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    rules = ", ".join(f"MAP {name} 127.0.0.1" for name in (EVIL, REBOUND))
    with sync.sync_playwright() as playwright:
        arguments = ["--no-sandbox", f"--host-resolver-rules={rules}"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Callable[..., int]]:
    """Function that starts a router with a console listener with the given attributes, and returns the listener's
    port."""
    routers: list[RouterProcess] = []

    def start(**attributes: Any) -> int:
        routers.append(RouterProcess(tmp_path, [listener(), listener("console", http=True, **attributes)]))
        routers[-1].start()
        return routers[-1].ports["console"]

    yield start
    for router in routers:
        router.stop()


def test_page_of_another_site_is_refused(console: Callable[..., int], browser: Any, server: int) -> None:
    port = console()
    own = browser.new_page()
    for name in ("localhost", "127.0.0.1"):
        answer = own.goto(f"http://{name}:{port}/healthz")
        assert answer.status == 200
        assert own.evaluate(TRY_WEBSOCKET, [f"ws://{name}:{port}/"]) == "open"
    evil = browser.new_page()
    evil.goto(f"http://{EVIL}:{server}/")
    found = {name: evil.evaluate(TRY_WEBSOCKET, [f"ws://{name}:{port}/"]) for name in NAMES}
    assert "open" not in found.values(), found
    for name in (REBOUND, "localhost.", "[::ffff:127.0.0.1]"):
        rebound = browser.new_page()
        answer = rebound.goto(f"http://{name}:{port}/")
        assert answer.status == 403
        assert rebound.evaluate(TRY_WEBSOCKET, [f"ws://{name}:{port}/"]) != "open"


def test_page_of_an_allowed_origin_connects(console: Callable[..., int], browser: Any, server: int) -> None:
    origin = f"http://{EVIL}:{server}"
    port = console(allowedOrigins=origin)
    page = browser.new_page()
    page.goto(origin)
    assert page.evaluate(TRY_WEBSOCKET, [f"ws://localhost:{port}/"]) == "open"
