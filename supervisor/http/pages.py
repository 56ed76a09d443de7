"""What is answered to which path: the pages of an HTTP listener, apart from sockets and from the HTTP library."""
import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import orjson
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from router.config.entities import ListenerConfig
from supervisor.http.collect import Collector
from supervisor.http.families import Builder
from supervisor.http.health import Check, Health
from supervisor.http.page import render

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
NO_WEBSOCKET: Final = b"AMQP over WebSocket is not supported yet: connect to a listener without http\n"
METHODS: Final = ("GET", "HEAD")
# A page of metrics is made again when it is this many times as old as the processor time that it took, so that
# scrapers, however many, never cost the supervisor more than a tenth of its time.
AGE_PER_COST: Final = 10.0
MIN_AGE: Final = 0.05  # seconds


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response. `page`: the path that was asked for as metrics name it, never what a client made up."""

    status: int
    body: bytes
    content_type: str = TEXT
    page: str = "other"
    headers: Mapping[str, str] | None = None


class MetricsPage:
    """The page /metrics: made when asked for, once for all who ask at the same time. Owner: the HTTP service."""

    def __init__(self) -> None:
        self.cost = 0.0  # seconds of processor time that the last one took
        self._since = 0.0
        self._spent = 0.0
        self._make: Callable[[], Awaitable[bytes]] | None = None
        self._body = b""
        self._made = 0.0  # when
        self._making: asyncio.Task[bytes] | None = None

    def use(self, collector: Collector, builder: Builder) -> None:
        """What the page is made with; the collector is to pause with `pause`."""

        async def make() -> bytes:
            snapshot = await collector.collect()
            return await render(builder.build(snapshot), self.pause)

        self._make = make

    async def pause(self) -> None:
        """Let other events have their turn; their time is not counted as cost."""
        self._spent += time.thread_time() - self._since
        await asyncio.sleep(0)
        self._since = time.thread_time()

    async def body(self) -> bytes:
        """The page, not older than a moment."""
        age = time.monotonic() - self._made
        if self._made and age < max(MIN_AGE, AGE_PER_COST * self.cost):
            return self._body
        if self._making is None:
            self._making = asyncio.get_running_loop().create_task(self._remake())
        return await asyncio.shield(self._making)  # one client's end does not take the page from the others

    async def _remake(self) -> bytes:
        assert self._make is not None
        self._spent, self._since = 0.0, time.thread_time()
        # A page is thousands of objects without cycles, all gone a moment later. Left to itself the collector would
        # look for garbage meanwhile, among all connections and links, which takes longer than the page.
        collecting = gc.isenabled()
        gc.disable()
        try:
            self._body = await self._make()
            self._made = time.monotonic()
            self.cost = self._spent + time.thread_time() - self._since
        finally:
            if collecting:
                gc.enable()
            self._making = None
        return self._body


class Pages:
    """Decides what a request gets. Owner: the HTTP service."""

    def __init__(self, metrics: MetricsPage, health: Health) -> None:
        self._metrics = metrics
        self._health = health

    async def answer(self, listener: ListenerConfig, method: str, path: str, headers: Mapping[str, str]) -> Answer:
        """The answer to a request on `listener`. headers: names without case."""
        if headers.get("Upgrade", "").lower() == "websocket":
            return Answer(501, NO_WEBSOCKET)
        if method not in METHODS:
            text = f"method {method[:20]} is not allowed\n"
            return Answer(405, text.encode(errors="replace"), headers={"Allow": ", ".join(METHODS)})
        if path == "/metrics" and listener.metrics:
            return Answer(200, await self._metrics.body(), CONTENT_TYPE_PLAIN_0_0_4, path)
        if path == "/healthz" and listener.healthz:
            return Answer(200, b"OK\n", "text/plain", path)
        if path == "/livez" and listener.healthz:
            return _checks(path, self._health.liveness(), headers)
        if path == "/readyz" and listener.healthz:
            return _checks(path, self._health.readiness(), headers)
        return Answer(404, b"not found\n")


def _checks(path: str, checks: list[Check], headers: Mapping[str, str]) -> Answer:
    """The result of checks as text, a line each and the verdict, or as JSON where the client accepts that."""
    passed = all(check.passed for check in checks)
    status = 200 if passed else 503
    if JSON in headers.get("Accept", ""):
        items = [{"name": check.name, "passed": check.passed, "text": check.text} for check in checks]
        return Answer(status, orjson.dumps({"passed": passed, "checks": items}) + b"\n", JSON, path)
    lines = [f"[{'+' if check.passed else '-'}] {check.name}: {check.text}" for check in checks]
    lines.append(f"{path[1:]} check {'passed' if passed else 'failed'}")
    return Answer(status, ("\n".join(lines) + "\n").encode(), TEXT, path)
