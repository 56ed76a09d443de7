"""Pages of an HTTP listener: paths, methods, access, and rendering of metrics (brokers-and-edge.md H-2, H-3)."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.router.config.load import load_text
from sluice.router.log import ProcessLog
from sluice.supervisor.web import pages
from sluice.supervisor.web.files import Files
from sluice.supervisor.web.pages import HttpAnswer, MetricsPage, Pages
from sluice.supervisor.web.tokens import MetricsTokens
from tests.unit.supervisor.telemetry.metrics_router import MetricsRouter


@pytest.fixture
def router() -> Iterator[MetricsRouter]:
    made = MetricsRouter()
    yield made
    made.close()


class RouterPages:
    """Pages of a router, for a listener with these attributes."""

    def __init__(self, router: MetricsRouter, log: ProcessLog, attributes: str = "") -> None:
        text = f"listener {{\nport: 0\nhttp: yes\n{attributes}\n}}\n"
        self.listener = load_text("x.conf", text).listeners[0]
        self.metrics = MetricsPage()
        self.metrics.use(router.collector, router.builder)
        self._router = router
        self._log = log

    def get(self, path: str, method: str = "GET", certified: bool = False, **headers: str) -> HttpAnswer:
        async def scenario() -> HttpAnswer:
            loop = asyncio.get_running_loop()
            tokens = MetricsTokens(loop, self._log)
            made = Pages(self.metrics, self._router.health, Files(loop), tokens, self._log)
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return await made.answer(self.listener, method, path, named, certified)

        return asyncio.run(scenario())


def test_metrics_page_shows_router(router: MetricsRouter, log: ProcessLog) -> None:
    answer = RouterPages(router, log).get("/metrics")
    assert (answer.status, answer.page) == (200, "/metrics")
    assert b"sluice_" in answer.body


@pytest.mark.parametrize("accepted", ["gzip", "br, GZIP;q=0.5", "gzip;q=1.0, identity"])
def test_metrics_page_is_compressed_for_clients_that_accept_gzip(
    router: MetricsRouter, log: ProcessLog, accepted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "COMPRESSED_SLICE", 1000)  # many slices
    found = RouterPages(router, log)
    answer = found.get("/metrics", Accept_Encoding=accepted)
    assert (answer.headers or {})["Content-Encoding"] == "gzip"
    assert gzip.decompress(answer.body) == found.get("/metrics").body


@pytest.mark.parametrize("accepted", ["", "identity", "br", "gzip;q=0", "gzip ; q=0.000", "gzipped"])
def test_metrics_page_is_text_for_other_clients(router: MetricsRouter, log: ProcessLog, accepted: str) -> None:
    answer = RouterPages(router, log).get("/metrics", Accept_Encoding=accepted)
    assert answer.headers == {"Vary": "Accept-Encoding"}
    assert answer.body.startswith(b"# HELP")


@pytest.mark.parametrize(
    ("path", "method", "status", "allowed"),
    [
        ("/metrics", "POST", 200, None),
        ("/healthz", "OPTIONS", 200, None),
        ("/healthz/", "HEAD", 200, None),
        ("/metrics", "PUT", 405, "GET, HEAD, POST, OPTIONS"),
        ("/livez", "POST", 405, "GET, HEAD"),
        ("/nothing", "DELETE", 405, "GET, HEAD"),
    ],
)
def test_methods_depend_on_page(
    router: MetricsRouter, log: ProcessLog, path: str, method: str, status: int, allowed: str | None
) -> None:
    answer = RouterPages(router, log).get(path, method)
    assert (answer.status, (answer.headers or {}).get("Allow")) == (status, allowed)


@pytest.mark.parametrize(("attribute", "paths"), [("metrics", ["/metrics"]), ("healthz", ["/healthz", "/livez"])])
def test_disabled_pages_are_not_found(router: MetricsRouter, log: ProcessLog, attribute: str, paths: list[str]) -> None:
    switched_off = RouterPages(router, log, f"{attribute}: no\nwebsockets: no")
    for path in paths:
        assert (switched_off.get(path).status, switched_off.get(path).page) == (404, "other")
        assert switched_off.get(path, "POST").status == 405, "a disabled page is as any other path"


def test_unready_router_fails_readiness_with_reasons(router: MetricsRouter, log: ProcessLog) -> None:
    found = RouterPages(router, log)
    assert found.get("/readyz").status == 200
    router.draining = True
    answer = found.get("/readyz")
    assert answer.status == 503
    assert answer.body.splitlines()[-1] == b"readyz check failed"
    assert b"[-] running" in answer.body
    as_json = json.loads(found.get("/readyz", Accept="application/json").body)
    assert as_json["passed"] is False
    assert {check["name"] for check in as_json["checks"] if not check["passed"]} == {"running"}
    assert found.get("/livez").status == 200


def test_unknown_client_sees_only_verdict(router: MetricsRouter, log: ProcessLog) -> None:
    found = RouterPages(router, log, "authenticatePeer: yes")
    answer = found.get("/metrics")
    assert (answer.status, answer.headers) == (401, {"WWW-Authenticate": "Bearer"})
    assert found.get("/readyz").body == b"readyz check passed\n"
    assert json.loads(found.get("/readyz", Accept="application/json").body) == {"passed": True}
    assert len(found.get("/readyz", certified=True).body.splitlines()) > 1


def test_file_is_not_sent_again_if_unchanged(router: MetricsRouter, log: ProcessLog, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("content")
    found = RouterPages(router, log, f"httpRootDir: {tmp_path}")
    first = found.get("/a.txt")
    etag = (first.headers or {})["ETag"]
    assert (first.status, first.body, first.page) == (200, b"content", "file")
    for known in (etag, f'"other", W/{etag}', "*"):
        again = found.get("/a.txt", If_None_Match=known)
        assert (again.status, again.body) == (304, b"")
    assert found.get("/a.txt", If_None_Match='"other"').status == 200
    assert found.get("/none.txt").status == 404


def test_unreadable_file_is_unavailable_and_logged(router: MetricsRouter, log: ProcessLog, tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as large:
        large.truncate(17 << 20)
    assert RouterPages(router, log, f"httpRootDir: {tmp_path}").get("/large").status == 503
    assert "cannot be served" in log.recent()[-1].text


def test_console_serves_compressed_copies_on_request_only(
    router: MetricsRouter, log: ProcessLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "CONSOLE", str(tmp_path))
    (tmp_path / "index.html").write_text("plain")
    (tmp_path / "index.html.gz").write_bytes(b"packed")
    found = RouterPages(router, log)
    assert found.get("/").body == b"plain"
    answer = found.get("/", Accept_Encoding="br, gzip")
    assert (answer.body, (answer.headers or {})["Content-Encoding"]) == (b"packed", "gzip")
    assert found.get("/index.html.gz").status == 404


def test_missing_console_is_explained(
    router: MetricsRouter, log: ProcessLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "CONSOLE", str(tmp_path))
    found = RouterPages(router, log)
    assert b"make console" in found.get("/").body
    assert b"make console" not in found.get("/app.js").body


def test_simultaneous_requests_share_one_rendering(router: MetricsRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MIN_AGE", 60.0)
    page = MetricsPage()
    page.use(router.collector, router.builder)

    async def scenario() -> tuple[list[bytes], bytes]:
        bodies = await asyncio.gather(*(page.body() for _ in range(3)))
        return bodies, await page.body()

    bodies, fresh = asyncio.run(scenario())
    assert all(body is bodies[0] for body in bodies)
    assert fresh is bodies[0], "a page is not rendered again at once"


def test_disconnecting_client_does_not_cancel_rendering_for_others(router: MetricsRouter) -> None:
    page = MetricsPage()
    page.use(router.collector, router.builder)

    async def scenario() -> bytes:
        leaving = asyncio.create_task(page.body())
        staying = asyncio.create_task(page.body())
        await asyncio.sleep(0)
        leaving.cancel()
        return await staying

    assert b"sluice_" in asyncio.run(scenario())


def test_failed_rendering_is_repeated_for_next_request(router: MetricsRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    page = MetricsPage()
    page.use(router.collector, router.builder)
    monkeypatch.setattr(router.collector, "collect", _fail)
    with pytest.raises(RuntimeError):
        asyncio.run(page.body())
    assert gc.isenabled()
    monkeypatch.undo()
    assert b"sluice_" in asyncio.run(page.body())


async def _fail() -> None:
    raise RuntimeError("the counters cannot be read")
