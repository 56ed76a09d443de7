"""Pages of an HTTP listener by path, independent of sockets and of the HTTP library (brokers-and-edge.md H-2, H-3)."""

import asyncio
import re
import time
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from msgspec import Struct
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from sluice.router import json_codec
from sluice.router.config.entities import ListenerConfig
from sluice.router.log import WARNING, ProcessLog
from sluice.supervisor.telemetry.collect import MetricsCollector
from sluice.supervisor.telemetry.families import MetricsBuilder
from sluice.supervisor.telemetry.health import Health
from sluice.supervisor.telemetry.health_check import HealthCheckResult
from sluice.supervisor.telemetry.page import render
from sluice.supervisor.telemetry.sliced_work import AGE_PER_COST, SlicedWork
from sluice.supervisor.web.files import COMPRESSED, CONSOLE, CONSOLE_HEADERS, HEADERS, Files
from sluice.supervisor.web.tokens import MetricsTokens

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
METHODS: Final = ("GET", "HEAD")
# Methods of /metrics and /healthz, as in 1.19. No method changes anything.
PROBE_METHODS: Final = (*METHODS, "POST", "OPTIONS")
_PROBES: Final = {"/metrics": "/metrics", "/healthz": "/healthz", "/healthz/": "/healthz"}
MIN_AGE: Final = 0.05  # seconds
COMPRESSION: Final = 1  # level of zlib; higher levels take twice the time and save a tenth
COMPRESSED_SLICE: Final = 1 << 17  # octets compressed without a pause, which takes about a millisecond
GZIP: Final = 16 + zlib.MAX_WBITS  # format of zlib.compressobj


class HttpAnswer(Struct, frozen=True):
    """HTTP response. `page`: path as a label for metrics, never text from a client."""

    status: int
    body: bytes
    content_type: str = TEXT
    page: str = "other"
    headers: Mapping[str, str] | None = None


_NOT_FOUND: Final = HttpAnswer(
    404, b"<!DOCTYPE html><html><body><h1>404</h1></body></html>\n", "text/html; charset=utf-8", headers=HEADERS
)


_NO_CONSOLE: Final = HttpAnswer(
    404,
    b"<!DOCTYPE html><html lang=en><title>Sluice</title><h1>404</h1><p>This router was installed without its console."
    b"<p>In a checkout, with Node.js and npm: <code>make console</code>, then reload this page.</html>\n",
    "text/html; charset=utf-8",
    headers=CONSOLE_HEADERS,
)


_UNKNOWN: Final = HttpAnswer(
    401,
    b"authentication required: the listener has authenticatePeer or metricsToken\n",
    page="/metrics",
    headers={"WWW-Authenticate": "Bearer"},
)


class MetricsPage:
    """Page /metrics, rendered on demand and once for simultaneous requests. Owner: the HTTP service."""

    def __init__(self) -> None:
        self.work: Final = SlicedWork()  # rendering
        self._make: Callable[[], Awaitable[bytes]] | None = None
        self._body = b""
        self._compressed = b""  # page for clients that accept gzip
        self._made = 0.0  # time of the last rendering
        self._making: asyncio.Task[None] | None = None

    def use(self, collector: MetricsCollector, builder: MetricsBuilder) -> None:
        """Set the sources of the page. The collector pauses with the page's `work`."""

        async def make() -> bytes:
            snapshot = await collector.collect()
            return await render(builder.build(snapshot), self.work.pause)

        self._make = make

    async def body(self, *, compressed: bool = False) -> bytes:
        """Return the page as text or compressed by gzip, rendered again if it is too old."""
        age = time.monotonic() - self._made
        if not self._made or age >= max(MIN_AGE, AGE_PER_COST * self.work.cost):
            if self._making is None:
                self._making = asyncio.get_running_loop().create_task(self._remake())
            await asyncio.shield(self._making)  # a disconnecting client does not cancel the rendering for others
        return self._compressed if compressed else self._body

    async def _remake(self) -> None:
        try:
            await self.work.run(self._render)
        finally:
            self._making = None

    async def _render(self) -> None:
        assert self._make is not None
        body = await self._make()
        self._body, self._compressed = body, await self._compress(body)
        self._made = time.monotonic()

    async def _compress(self, body: bytes) -> bytes:
        packer = zlib.compressobj(COMPRESSION, wbits=GZIP)
        packed = []
        for start in range(0, len(body), COMPRESSED_SLICE):
            packed.append(packer.compress(body[start : start + COMPRESSED_SLICE]))
            await self.work.pause()
        return b"".join([*packed, packer.flush()])


class Pages:
    """Answers to HTTP requests. Owner: the HTTP service."""

    def __init__(
        self, metrics: MetricsPage, health: Health, files: Files, tokens: MetricsTokens, log: ProcessLog
    ) -> None:
        self._metrics = metrics
        self._health = health
        self._files = files
        self._tokens = tokens
        self._log = log

    async def answer(
        self, listener: ListenerConfig, method: str, path: str, headers: Mapping[str, str], certified: bool = False
    ) -> HttpAnswer:
        """Return the answer to a request on `listener`.

        headers: mapping with case-insensitive names. certified: TLS has verified a certificate of the client.
        """
        probe = _PROBES.get(path)
        if (probe == "/metrics" and not listener.metrics) or (probe == "/healthz" and not listener.healthz):
            probe = None
        methods = METHODS if probe is None else PROBE_METHODS
        if method not in methods:
            text = f"method {method[:20]} is not allowed\n"
            return HttpAnswer(405, text.encode(errors="replace"), headers={"Allow": ", ".join(methods)})
        if probe == "/metrics":
            if not await self._tokens.known(listener, headers, certified):
                return _UNKNOWN
            compressed = _accepts_gzip(headers)
            more = {"Vary": "Accept-Encoding", **({"Content-Encoding": "gzip"} if compressed else {})}
            body = await self._metrics.body(compressed=compressed)
            return HttpAnswer(200, body, CONTENT_TYPE_PLAIN_0_0_4, probe, more)
        if probe is not None:
            return HttpAnswer(200, b"OK\n", "text/plain", probe)
        if path == "/livez" and listener.healthz:
            known = await self._tokens.known(listener, headers, certified)
            return _checks(path, self._health.liveness(), headers, known)
        if path == "/readyz" and listener.healthz:
            known = await self._tokens.known(listener, headers, certified)
            return _checks(path, self._health.readiness(), headers, known)
        if listener.http_root is not None:
            return await self._file(listener.http_root, path, headers, HEADERS)
        if listener.websockets:
            return await self._console_file(path, headers)
        return _NOT_FOUND

    async def _console_file(self, path: str, headers: Mapping[str, str]) -> HttpAnswer:
        """Return a file of the console, which speaks AMQP to the same listener."""
        if path == "/":
            path = "/index.html"
        if path.endswith(COMPRESSED):
            return _NOT_FOUND
        if _accepts_gzip(headers):
            answer = await self._file(CONSOLE, path, headers, CONSOLE_HEADERS, COMPRESSED)
        else:
            answer = await self._file(CONSOLE, path, headers, CONSOLE_HEADERS)
        return _NO_CONSOLE if answer is _NOT_FOUND and path == "/index.html" else answer

    async def _file(
        self, root: str, path: str, headers: Mapping[str, str], own: Mapping[str, str], compressed: str = ""
    ) -> HttpAnswer:
        """Return a file of a directory, with additional headers `own`. compressed: suffix of the compressed copy to
        send.
        """
        try:
            found = await self._files.find(root, path, compressed)
        except OSError as error:
            self._log.repeated(WARNING, "HTTP", "file", f"A file of {root} cannot be served: {error}")
            return HttpAnswer(503, b"the file cannot be read\n")
        if found is None:
            return _NOT_FOUND
        more = {**own, "ETag": found.etag, **({"Content-Encoding": "gzip"} if compressed else {})}
        known = [each.strip().removeprefix("W/") for each in headers.get("If-None-Match", "").split(",")]
        if found.etag in known or "*" in known:
            return HttpAnswer(304, b"", found.content_type, "file", more)
        return HttpAnswer(200, found.body, found.content_type, "file", more)


def _accepts_gzip(headers: Mapping[str, str]) -> bool:
    """Return whether the client names gzip as an encoding that it accepts (RFC 9110, 12.5.3)."""
    for accepted in headers.get("Accept-Encoding", "").split(","):
        coding, _, weight = accepted.partition(";")
        if coding.strip().lower() == "gzip":
            return re.fullmatch(r"\s*q=0(\.0*)?\s*", weight) is None
    return False


def _checks(path: str, checks: list[HealthCheckResult], headers: Mapping[str, str], known: bool) -> HttpAnswer:
    """Return the result of health checks: as JSON if the client accepts it, else as text, with the verdict last.

    known: the client may see more than the verdict.
    """
    passed = all(check.passed or not check.counts for check in checks)
    status = 200 if passed else 503
    if JSON in headers.get("Accept", ""):
        items = [
            {"name": check.name, "passed": check.passed, "text": check.text, "counts": check.counts} for check in checks
        ]
        shown = {"passed": passed, "checks": items} if known else {"passed": passed}
        return HttpAnswer(status, json_codec.encode(shown) + b"\n", JSON, path)
    lines = [f"[{_mark(check)}] {check.name}: {check.text}" for check in checks if known]
    lines.append(f"{path[1:]} check {'passed' if passed else 'failed'}")
    return HttpAnswer(status, ("\n".join(lines) + "\n").encode(), TEXT, path)


def _mark(check: HealthCheckResult) -> str:
    """Return `+` if a check has passed, `-` if it has not, `!` if it has not and that does not count."""
    if check.passed:
        return "+"
    return "-" if check.counts else "!"
