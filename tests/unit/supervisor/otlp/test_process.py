"""Export process in a thread, with collectors that fail in each way."""

from __future__ import annotations

import itertools
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra 'otel' is not installed")

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from sluice.router.log.entry import LogEntry
from sluice.router.tracing.spans import DeliverySpan
from sluice.supervisor.children.framing import MessageSplitter, pack
from sluice.supervisor.children.json_messages import Message, decode, encode
from sluice.supervisor.otlp import collector_session, exporter
from sluice.supervisor.otlp.export_messages import LOGS, MAX_REPORT, METRICS, SIGNALS, TRACES
from sluice.supervisor.otlp.log_exporter import ExportedEntry, LogExporter
from sluice.supervisor.otlp.process import ExportLoop
from sluice.supervisor.otlp.span_exporter import SpanExporter
from tests.peer.pki import Issued, Pki
from tests.unit.supervisor.harness import PATIENCE

SPAN = DeliverySpan("ab" * 16, "cd" * 8, None, "receive", 0, None, 1, None, 2, 3, 4, 5, "a", "accepted", False)
BEGAN = 1_000  # start of the router, ns
LINE = LogEntry("SERVER", "warning", "text", None, None, 7, 5)
PROTOBUF = b"Content-Type: application/x-protobuf\r\n"
SHORT = 2.0  # seconds that a request may take where the collector does not answer; enough for one that does


def answer(status: bytes, content: bytes = b"", fields: bytes = b"") -> bytes:
    length = b"Content-Length: %d\r\nConnection: close\r\n" % len(content)
    return b"HTTP/1.1 " + status + b"\r\n" + length + fields + b"\r\n" + content


OK = answer(b"200 OK")


class ScriptedCollector:
    """Server that reads each request to its end, and gives the answer that is set at that time."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.answer: bytes | None = OK  # None: no answer until the client closes
        self.requests: list[bytes] = []  # contents
        self.dripped = b""  # after the answer: octets that are repeated one by one until the client closes
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            client, _ = self._listener.accept()
            with client:
                client.settimeout(PATIENCE)
                try:
                    if self._serve(client):
                        return
                except OSError:
                    pass  # a client that does not trust the certificate closes

    def _serve(self, client: socket.socket) -> bool:
        """Answer one request. Returns True for the connection of `close`."""
        plain = client if self._context is None else self._context.wrap_socket(client, server_side=True)
        head = b""
        while b"\r\n\r\n" not in head:
            octets = plain.recv(4096)
            if not octets:
                return not head
            head += octets
        head, _, content = head.partition(b"\r\n\r\n")
        (size,) = [int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        while len(content) < size:
            content += plain.recv(4096)
        self.requests.append(content)
        if self.answer is None:
            plain.recv(1)
        else:
            plain.sendall(self.answer)
            self._drip(plain)
        if plain is not client:
            plain.close()
        return False

    def _drip(self, client: socket.socket) -> None:
        """Send the dripped octets one by one, each long before the client's time-out."""
        octets = itertools.cycle(self.dripped)
        while self.dripped and not select.select([client], [], [], SHORT / 100)[0]:
            client.sendall(bytes([next(octets)]))

    def close(self) -> None:
        self._context = None
        socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join()
        self._listener.close()


class ExportThread:
    """Export process in a thread, with the supervisor's end of its socket."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(PATIENCE)
        self._splitter = MessageSplitter(MAX_REPORT)
        self._received: list[Message] = []
        self.logs: list[Message] = []
        self._loop = ExportLoop(theirs)
        self._thread = threading.Thread(target=self._loop.run)
        self._thread.start()

    def send(self, **message: Any) -> None:
        self._socket.sendall(pack(encode(message)))

    def setup(
        self,
        endpoint: str,
        ca: Path | None = None,
        signals: tuple[str, ...] = SIGNALS,
        shown: Issued | tuple[None, None] = (None, None),
    ) -> None:
        """ca: authorities of the collector. shown: certificate of the router, and its key."""
        files = [None if file is None else str(file) for file in (ca, *shown)]
        targets = dict.fromkeys(signals, (endpoint, files))
        self.send(setup={"targets": targets, "router": "R", "began": BEGAN})

    def put(self, signal: str, number: int = 1) -> None:
        """Send spans, lines, or a page with as many points."""
        if signal == TRACES:
            self.send(spans=[list(SPAN)] * number)
        elif signal == LOGS:
            self.send(lines=[(None, *LINE)] * number)
        else:
            self.page(("m_total", "counter", "About.", [("m_total", {"n": str(each)}, 1) for each in range(number)]))

    def page(self, *families: Any, time: int = 2_000) -> None:
        self.send(page=None)
        for family in families:
            self.send(family=family)
        self.send(page=time)

    def export(self, signal: str, number: int = 1) -> Message:
        """Export spans, records or data points. Return the numbers of exported and dropped ones."""
        self.put(signal, number)
        return self.counts(signal)

    def counts(self, signal: str) -> Message:
        """Return the next counts, which are of this signal."""
        while True:
            while not self._received:
                octets = self._socket.recv(65536)
                assert octets, "the export process has ended"
                self._received += map(decode, self._splitter.feed(octets))
            message = self._received.pop(0)
            assert message.pop("signal") == signal
            if "log" not in message:
                return message
            self.logs.append(message)

    def close(self) -> None:
        self._socket.close()
        self._thread.join()


@pytest.fixture(params=SIGNALS)
def signal(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def collectors() -> Iterator[Callable[..., ScriptedCollector]]:
    made: list[ScriptedCollector] = []

    def make(context: ssl.SSLContext | None = None) -> ScriptedCollector:
        made.append(ScriptedCollector(context))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def exporting() -> Iterator[ExportThread]:
    made = ExportThread()
    yield made
    made.close()


def fails_and_recovers(exporting: ExportThread, collector: ScriptedCollector, signal: str, reason: str) -> None:
    """Check that failures are counted and logged once, and that the export goes on."""
    assert exporting.export(signal, 2) == {"exported": 0, "dropped": 2}
    assert exporting.export(signal) == {"exported": 0, "dropped": 3}
    collector.answer = OK
    assert exporting.export(signal) == {"exported": 1, "dropped": 3}
    assert exporting.export(signal) == {"exported": 2, "dropped": 3}
    failure, recovery = exporting.logs
    assert failure["log"] == "error"
    assert reason in failure["text"]
    assert (recovery["log"], recovery["text"].split()[-1]) == ("info", "again")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (answer(b"400 Bad Request", b"no"), "HTTP status 400"),
        (answer(b"404 Not Found"), "HTTP status 404"),
        (answer(b"500 Internal Server Error"), "HTTP status 500"),
        (answer(b"503 Service Unavailable", fields=b"Retry-After: 3600\r\n"), "HTTP status 503"),
        (answer(b"302 Found", fields=b"Location: http://127.0.0.1:1/\r\n"), "HTTP status 302"),
        (answer(b"200 OK", b"<html></html>", b"Content-Type: text/html\r\n"), "not of the type"),
        (answer(b"200 OK", b"<html></html>", PROTOBUF), "cannot be decoded"),
        (answer(b"200 OK", b"x" * (collector_session.MOST_ANSWER + 1), PROTOBUF), "octets"),
        (answer(b"200 OK", b"octets, not gzip", PROTOBUF + b"Content-Encoding: gzip\r\n"), "ContentDecodingError"),
    ],
)  # fmt: skip
def test_answer_of_failure_is_counted_and_logged_once(
    exporting: ExportThread, signal: str, collectors: Callable[..., ScriptedCollector], given: bytes, reason: str
) -> None:
    collector = collectors()
    collector.answer = given
    exporting.setup(f"http://127.0.0.1:{collector.port}/")
    fails_and_recovers(exporting, collector, signal, reason)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, "in time"),
        (b"", "closed without an answer"),
        (b"SSH-2.0-x\r\n", "closed without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n\x0a", "ChunkedEncodingError"),
    ],
)
def test_missing_answer_is_counted_and_logged_once(
    exporting: ExportThread,
    collectors: Callable[..., ScriptedCollector],
    monkeypatch: pytest.MonkeyPatch,
    given: bytes | None,
    reason: str,
) -> None:
    monkeypatch.setattr(exporter, "TIMEOUT_SECONDS", SHORT)
    collector = collectors()
    collector.answer = given
    exporting.setup(f"http://127.0.0.1:{collector.port}/")
    fails_and_recovers(exporting, collector, TRACES, reason)


@pytest.mark.parametrize(
    ("given", "dripped"),
    [
        (b"HTTP/1.1 200 OK\r\nX-Long: ", b"x"),
        (b"HTTP/1.1 200 OK\r\n", b"X: x\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ],
)
def test_dripped_answer_ends_at_deadline_and_is_counted_and_logged_once(
    exporting: ExportThread,
    collectors: Callable[..., ScriptedCollector],
    monkeypatch: pytest.MonkeyPatch,
    given: bytes,
    dripped: bytes,
) -> None:
    monkeypatch.setattr(exporter, "TIMEOUT_SECONDS", SHORT)
    collector = collectors()
    collector.answer, collector.dripped = given, dripped
    exporting.setup(f"http://127.0.0.1:{collector.port}/")
    assert exporting.export(TRACES, 2) == {"exported": 0, "dropped": 2}
    collector.answer, collector.dripped = OK, b""
    assert exporting.export(TRACES) == {"exported": 1, "dropped": 2}
    failure, _ = exporting.logs
    assert "in time" in failure["text"]


@pytest.mark.starts
def test_dripped_answer_over_tls_ends_at_deadline(
    exporting: ExportThread,
    collectors: Callable[..., ScriptedCollector],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exporter, "TIMEOUT_SECONDS", SHORT)
    pki = Pki(tmp_path)
    collector = collectors(pki.server_context(pki.issue("localhost", "/CN=localhost", names="DNS:localhost")))
    collector.answer, collector.dripped = b"HTTP/1.1 200 OK\r\nX-Long: ", b"x"
    exporting.setup(f"https://localhost:{collector.port}/", pki.trusted)
    assert exporting.export(TRACES) == {"exported": 0, "dropped": 1}
    collector.answer, collector.dripped = OK, b""
    assert exporting.export(TRACES) == {"exported": 1, "dropped": 1}
    assert "in time" in exporting.logs[0]["text"]


def test_refused_connection_is_counted_and_logged_once(
    exporting: ExportThread, signal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "TIMEOUT_SECONDS", SHORT)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    exporting.setup(f"http://127.0.0.1:{port}/")
    assert exporting.export(signal) == {"exported": 0, "dropped": 1}
    assert exporting.export(signal) == {"exported": 0, "dropped": 2}
    assert ["no connection" in each["text"] for each in exporting.logs] == [True]


@pytest.mark.starts
def test_untrusted_certificate_is_counted_and_logged_once(
    exporting: ExportThread,
    collectors: Callable[..., ScriptedCollector],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exporter, "TIMEOUT_SECONDS", SHORT)
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
    own, other = Pki(tmp_path / "own"), Pki(tmp_path / "other")
    collector = collectors(own.server_context(own.issue("localhost", "/CN=localhost")))
    exporting.setup(f"https://localhost:{collector.port}/", other.trusted)
    assert exporting.export(TRACES) == {"exported": 0, "dropped": 1}
    assert exporting.export(TRACES) == {"exported": 0, "dropped": 2}
    assert ["certificate is not trusted" in each["text"] for each in exporting.logs] == [True]


@pytest.mark.starts
def test_collector_that_requires_certificate_gets_it(
    exporting: ExportThread,
    collectors: Callable[..., ScriptedCollector],
    signal: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exporter, "TIMEOUT_SECONDS", SHORT)
    pki = Pki(tmp_path)
    collector = collectors(pki.server_context(pki.server, wants_client=True))
    exporting.setup(f"https://localhost:{collector.port}/", pki.trusted)
    assert exporting.export(signal) == {"exported": 0, "dropped": 1}
    assert not collector.requests
    exporting.setup(f"https://localhost:{collector.port}/", pki.trusted, shown=pki.client)
    assert exporting.export(signal) == {"exported": 1, "dropped": 1}
    wrong = Issued(pki.client.certificate, pki.server.key)
    exporting.setup(f"https://localhost:{collector.port}/", pki.trusted, shown=wrong)
    assert exporting.export(signal) == {"exported": 1, "dropped": 2}
    missing, mismatch = (each["text"].partition("/: ")[2] for each in exporting.logs)
    # The collector's alert follows its end of the handshake, and its close may overtake what the router has read.
    assert missing in ("TLS fails: tlsv13 alert certificate required", "TLS fails: the collector ended the connection")
    assert mismatch == "TLS fails: key values mismatch"


def test_missing_ca_file_is_counted_and_logged_once(exporting: ExportThread, signal: str, tmp_path: Path) -> None:
    exporting.setup("https://localhost:1/", tmp_path / "absent.pem")
    assert exporting.export(signal) == {"exported": 0, "dropped": 1}
    assert exporting.export(signal) == {"exported": 0, "dropped": 2}
    assert ["absent.pem" in each["text"] for each in exporting.logs] == [True]


PARTIAL: dict[str, Any] = {
    TRACES: ExportTraceServiceResponse(partial_success=ExportTracePartialSuccess(rejected_spans=2)),
    LOGS: ExportLogsServiceResponse(partial_success=ExportLogsPartialSuccess(rejected_log_records=2)),
    METRICS: ExportMetricsServiceResponse(partial_success=ExportMetricsPartialSuccess(rejected_data_points=2)),
}


def test_items_rejected_by_collector_are_counted_as_dropped(
    exporting: ExportThread, signal: str, collectors: Callable[..., ScriptedCollector]
) -> None:
    collector = collectors()
    collector.answer = answer(b"200 OK", PARTIAL[signal].SerializeToString(), PROTOBUF)
    exporting.setup(f"http://127.0.0.1:{collector.port}/")
    assert exporting.export(signal, 3) == {"exported": 1, "dropped": 2}
    assert ["rejects" in each["text"] for each in exporting.logs] == [True]


def test_span_that_sdk_cannot_convert_does_not_end_export(
    exporting: ExportThread, collectors: Callable[..., ScriptedCollector]
) -> None:
    exporting.setup(f"http://127.0.0.1:{collectors().port}/")
    exporting.send(spans=[list(SPAN._replace(trace_id="no number"))])
    assert exporting.counts(TRACES) == {"exported": 0, "dropped": 1}
    assert exporting.export(TRACES) == {"exported": 1, "dropped": 1}


@pytest.mark.parametrize(
    ("signal", "number"),
    [
        (TRACES, SpanExporter.MOST_WAITING + 2 * SpanExporter.BATCH),
        (LOGS, LogExporter.MOST_WAITING // LogExporter.weight(ExportedEntry(LINE, None)) + 2 * LogExporter.BATCH),
    ],
)
def test_full_queue_is_reported_while_collector_does_not_answer(
    exporting: ExportThread,
    signal: str,
    number: int,
    collectors: Callable[..., ScriptedCollector],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exporter, "TIMEOUT_SECONDS", SHORT)
    collector = collectors()
    collector.answer = None
    exporting.setup(f"http://127.0.0.1:{collector.port}/")
    for _ in range(0, number, 1000):
        exporting.put(signal, 1000)
    counts = exporting.counts(signal)
    assert counts["exported"] == 0
    assert counts["dropped"] > 0


def test_waiting_page_is_replaced_by_later_one(
    exporting: ExportThread, collectors: Callable[..., ScriptedCollector], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "TIMEOUT_SECONDS", SHORT)
    collector = collectors()
    collector.answer = None
    exporting.setup(f"http://127.0.0.1:{collector.port}/")
    for number in (1, 2, 4, 8):
        exporting.put(METRICS, number)
    # The first page is being exported, unless a later one has replaced it before its export began.
    dropped = exporting.counts(METRICS)["dropped"]
    while dropped < 7:
        dropped = exporting.counts(METRICS)["dropped"]
    assert dropped == 7


def test_signal_without_target_is_dropped_and_others_are_exported(
    exporting: ExportThread, signal: str, collectors: Callable[..., ScriptedCollector]
) -> None:
    others = tuple(each for each in SIGNALS if each != signal)
    exporting.setup(f"http://127.0.0.1:{collectors().port}/", signals=others)
    assert exporting.export(signal, 2) == {"exported": 0, "dropped": 2}
    for other in others:
        assert exporting.export(other) == {"exported": 1, "dropped": 0}


def test_changed_target_is_used_and_counts_continue(
    exporting: ExportThread, signal: str, collectors: Callable[..., ScriptedCollector]
) -> None:
    first, second = collectors(), collectors()
    exporting.setup(f"http://127.0.0.1:{first.port}/")
    assert exporting.export(signal) == {"exported": 1, "dropped": 0}
    exporting.setup(f"http://127.0.0.1:{second.port}/")
    assert exporting.export(signal) == {"exported": 2, "dropped": 0}
    assert (len(first.requests), len(second.requests)) == (1, 1)


def test_collector_that_does_not_answer_for_one_signal_delays_no_other(
    exporting: ExportThread, collectors: Callable[..., ScriptedCollector]
) -> None:
    silent, other = collectors(), collectors()
    silent.answer = None
    targets = dict.fromkeys(SIGNALS, (f"http://127.0.0.1:{other.port}/", [None] * 3))
    targets[LOGS] = (f"http://127.0.0.1:{silent.port}/", [None] * 3)
    exporting.send(setup={"targets": targets, "router": "R", "began": BEGAN})
    exporting.put(LOGS)
    assert exporting.export(TRACES) == {"exported": 1, "dropped": 0}
    assert exporting.export(METRICS) == {"exported": 1, "dropped": 0}


def test_log_record_has_time_severity_and_whole_text(
    exporting: ExportThread, collectors: Callable[..., ScriptedCollector]
) -> None:
    collector = collectors()
    exporting.setup(f"http://127.0.0.1:{collector.port}/")
    entry = LogEntry("SERVER", "critical", "[C7][L3] Fault\n    | Traceback\n    |   x", "/a.py", 9, 7, 5)
    exporting.send(lines=[(2, *entry)])
    assert exporting.counts(LOGS) == {"exported": 1, "dropped": 0}
    (of_resource,) = ExportLogsServiceRequest.FromString(collector.requests[0]).resource_logs
    (of_scope,) = of_resource.scope_logs
    (record,) = of_scope.log_records
    assert record.time_unix_nano == 7_000_000_005
    assert (record.severity_text, record.severity_number) == ("critical", 18)
    assert record.body.string_value == "[C7][L3] Fault\nTraceback\n  x"
    assert {each.key: each.value.string_value or each.value.int_value for each in record.attributes} == {
        "sluice.module": "SERVER", "sluice.worker": 2, "sluice.connection": 7, "sluice.link": 3,
        "code.file.path": "/a.py", "code.line.number": 9,
    }  # fmt: skip


def points(request: bytes) -> list[Any]:
    """Return the data points of the only metric of a request."""
    (of_resource,) = ExportMetricsServiceRequest.FromString(request).resource_metrics
    (of_scope,) = of_resource.scope_metrics
    (metric,) = of_scope.metrics
    return list(getattr(metric, metric.WhichOneof("data")).data_points)


def test_counter_that_falls_gets_start_time_of_page_before(
    exporting: ExportThread, collectors: Callable[..., ScriptedCollector]
) -> None:
    collector = collectors()
    exporting.setup(f"http://127.0.0.1:{collector.port}/")
    for time, value in ((2_000, 5), (3_000, 6), (4_000, 1), (5_000, 2)):
        exporting.page(("m_total", "counter", "About.", [("m_total", {}, value)]), time=time)
        exporting.counts(METRICS)
    found = [points(request)[0] for request in collector.requests]
    assert [each.start_time_unix_nano for each in found] == [BEGAN, BEGAN, 3_000, 3_000]
    assert [each.time_unix_nano for each in found] == [2_000, 3_000, 4_000, 5_000]


def test_samples_of_histogram_become_one_data_point(
    exporting: ExportThread, collectors: Callable[..., ScriptedCollector]
) -> None:
    collector = collectors()
    exporting.setup(f"http://127.0.0.1:{collector.port}/")
    buckets = [("m_bucket", {"le": bound}, below) for bound, below in (("0.5", 1), ("2.0", 4), ("+Inf", 6))]
    exporting.page(("m", "histogram", "About.", [*buckets, ("m_count", {}, 6), ("m_sum", {}, 9.5)]))
    assert exporting.counts(METRICS) == {"exported": 1, "dropped": 0}
    (found,) = points(collector.requests[0])
    assert (list(found.explicit_bounds), list(found.bucket_counts)) == ([0.5, 2.0], [1, 3, 2])
    assert (found.count, found.sum, found.HasField("min")) == (6, 9.5, False)


def test_metric_in_pieces_is_exported_once(
    exporting: ExportThread, collectors: Callable[..., ScriptedCollector]
) -> None:
    collector = collectors()
    exporting.setup(f"http://127.0.0.1:{collector.port}/")
    pieces = [("m", "gauge", "About.", [("m", {"n": name}, 1)]) for name in ("a", "b")]
    exporting.page(*pieces)
    assert exporting.counts(METRICS) == {"exported": 2, "dropped": 0}
    assert len(points(collector.requests[0])) == 2


def test_page_without_begin_is_ignored(exporting: ExportThread, collectors: Callable[..., ScriptedCollector]) -> None:
    exporting.setup(f"http://127.0.0.1:{collectors().port}/")
    exporting.send(family=("m", "gauge", "About.", [("m", {}, 1)]))
    exporting.send(page=2_000)
    assert exporting.export(METRICS, 3) == {"exported": 3, "dropped": 0}
