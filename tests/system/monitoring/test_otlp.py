"""Spans, lines of the log and metrics at a collector that speaks OTLP over HTTP."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sluice.router.amqp import codec
from tests.peer import message
from tests.peer.management import Management, ManagementStatusError
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Start
from tests.system.http import WEB, get, scrape
from tests.system.router import RouterProcess, free_port, listener, poll

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra 'otel' is not installed")

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

CONTEXT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Collector:
    """Collector that keeps the spans, log records and metrics it receives."""

    def __init__(self, port: int = 0) -> None:
        self.spans: list[Any] = []
        self.records: list[Any] = []
        self.pages: list[dict[str, Any]] = []  # metrics by name
        self.resources: list[dict[str, str]] = []
        self.status = 200
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                octets = self.rfile.read(int(self.headers["Content-Length"]))
                status = collector.status
                if status == 200:
                    collector.take(self.path, octets)
                self.send_response(status)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - name of the base class
                pass

        self.server = HTTPServer(("127.0.0.1", port), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    @property
    def endpoint(self) -> str:
        return f"{self.base}/v1/traces"

    def take(self, path: str, octets: bytes) -> None:
        if path == "/v1/traces":
            for traced in ExportTraceServiceRequest.FromString(octets).resource_spans:
                self.resources.append(values(traced.resource))
                self.spans += (span for scope in traced.scope_spans for span in scope.spans)
        elif path == "/v1/logs":
            for logged in ExportLogsServiceRequest.FromString(octets).resource_logs:
                self.resources.append(values(logged.resource))
                self.records += (record for scope in logged.scope_logs for record in scope.log_records)
        else:
            assert path == "/v1/metrics"
            for measured in ExportMetricsServiceRequest.FromString(octets).resource_metrics:
                self.resources.append(values(measured.resource))
                metrics = [metric for scope in measured.scope_metrics for metric in scope.metrics]
                self.pages.append({metric.name: metric for metric in metrics})
                assert len(self.pages[-1]) == len(metrics)

    def texts(self) -> list[str]:
        return [record.body.string_value for record in self.records]

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def values(span: Any) -> dict[str, Any]:
    """Return the attributes of a span, a record, a data point or a resource."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def point(metric: Any, **labels: str) -> Any:
    """Return the value of the data point with these labels."""
    points = getattr(metric, metric.WhichOneof("data")).data_points
    (found,) = [each for each in points if values(each).items() >= labels.items()]
    return found


def test_spans_reach_collector_with_context_of_sender(
    start: Start, workers: int, peers: list[AmqpPeer], collector: Collector
) -> None:
    tracing = ("tracing", {"endpoint": collector.endpoint, "ratio": "1", "addresses": "orders"})
    router = start([listener(), tracing], workers=workers)
    receiving, sending = (AmqpPeer.opened(router.port) for _ in range(2))
    peers += [receiving, sending]
    receiver = receiving.receiver("orders", 10)
    other = receiving.receiver("other", 10)
    sender, elsewhere = sending.sender("orders"), sending.sender("other")
    quiet = elsewhere.send(message.message("not traced"))
    other.next().settle()
    elsewhere.outcome(quiet)
    context = codec.encode_map([codec.encode_string("traceparent"), codec.encode_string(CONTEXT)])
    sent = sender.send(b"\x00\x53\x74" + context + message.message("secret"))
    receiver.next().settle()
    sender.outcome(sent)
    # Both connections are at different workers if there are several.
    expected = {"receive orders", "send orders"} | ({"cross orders"} if workers > 1 else set())
    poll(lambda: len(collector.spans) >= len(expected), "all spans at the collector", 30.0)
    assert {span.name for span in collector.spans} == expected
    for crossed in (span for span in collector.spans if span.name == "cross orders"):
        assert crossed.trace_id.hex() == CONTEXT.split("-")[1]
        assert values(crossed)["sluice.from_worker"] != values(crossed)["sluice.worker"]
    spans = {span.name.split()[0]: span for span in collector.spans}
    received, copied = spans["receive"], spans["send"]
    _, trace, parent, _ = CONTEXT.split("-")
    assert received.trace_id.hex() == copied.trace_id.hex() == trace
    assert received.parent_span_id.hex() == parent
    assert copied.parent_span_id == received.span_id
    assert values(received)["sluice.outcome"] == values(copied)["sluice.outcome"] == "accepted"
    assert copied.events[0].name == "sent"
    assert collector.resources[0]["service.name"] == "sluice"
    assert b"secret" not in b"".join(span.SerializeToString() for span in collector.spans)


def test_tracing_section_removed_by_management_stops_sampling(
    start: Start, peers: list[AmqpPeer], collector: Collector
) -> None:
    router = start([listener(), ("tracing", {"endpoint": collector.endpoint, "ratio": "1"})], workers=1)
    peer = AmqpPeer.opened(router.port)
    managing = AmqpPeer.opened(router.port)
    peers += [peer, managing]
    management = Management(managing)
    receiver, sender = peer.receiver("orders", 1000), peer.sender("orders")

    def pass_one() -> bool:
        sent = sender.send(message.message("x"))
        delivery = receiver.next()
        delivery.settle()
        sender.outcome(sent)
        return b"traceparent" in delivery.payload

    assert pass_one()
    management.update("tracing", "tracing/0", ratio="0")
    poll(lambda: not pass_one(), "untraced messages", 10.0)
    management.update("tracing", "tracing/0", ratio="1")
    poll(pass_one, "traced messages", 10.0)
    management.delete("tracing", "tracing")
    poll(lambda: not pass_one(), "untraced messages", 10.0)


def test_lines_of_all_processes_reach_collector_as_records(
    start: Start, workers: int, peers: list[AmqpPeer], collector: Collector
) -> None:
    sections = [
        listener(),
        ("openTelemetry", {"endpoint": collector.base, "metrics": "no"}),
        ("log", {"module": "PROTOCOL", "enable": "trace+"}),
    ]
    router = start(sections, workers=workers)
    peer = AmqpPeer.opened(router.port)
    peers.append(peer)
    peer.receiver("orders", 10)
    poll(lambda: any("@attach" in text for text in collector.texts()), "the line of a worker", 30.0)
    poll(lambda: any("Operational" in text for text in collector.texts()), "the line of the supervisor", 30.0)
    traced = next(each for each in collector.records if "@attach" in each.body.string_value)
    assert (traced.severity_text, traced.severity_number) == ("trace", 1)
    found = values(traced)
    assert found["sluice.module"] == "PROTOCOL"
    assert traced.body.string_value.startswith(f"[C{found['sluice.connection']}]:FRAME: ")
    assert 0 <= found["sluice.worker"] < workers
    assert abs(traced.time_unix_nano / 1e9 - time.time()) < 60
    operational = next(each for each in collector.records if "Operational" in each.body.string_value)
    assert (operational.severity_text, operational.severity_number) == ("notice", 10)
    assert "sluice.worker" not in values(operational)
    assert any("Container Name: " in text for text in collector.texts()), "a line from before the export"
    assert not collector.pages
    resource = collector.resources[0]
    assert (resource["service.name"], resource["service.instance.id"]) == ("sluice", "QDR")
    router.stop()
    assert any("Shut Down" in text for text in collector.texts())


def test_metrics_at_collector_equal_those_of_page(
    start: Start, workers: int, peers: list[AmqpPeer], collector: Collector
) -> None:
    section = ("openTelemetry", {"endpoint": collector.base, "logs": "no", "metricsIntervalSeconds": "1"})
    began = time.time_ns()
    router = start([listener(), WEB, section], workers=workers)
    peer = AmqpPeer.opened(router.port)
    peers.append(peer)
    receiver, sender = peer.receiver("orders", 10), peer.sender("orders")
    sent = sender.send(message.message("x"))
    receiver.next().settle()
    sender.outcome(sent)

    def accepted() -> list[float]:
        metric = collector.pages[-1]["sluice_deliveries_ended_total"]
        points = metric.sum.data_points
        return [each.as_double for each in points if values(each)["outcome"] == "accepted"]

    poll(lambda: bool(collector.pages) and sum(accepted()) == 1, "the delivery in the metrics", 30.0)
    page = collector.pages[-1]
    assert not collector.records
    ended = page["sluice_deliveries_ended_total"].sum
    assert (ended.is_monotonic, ended.aggregation_temporality) == (True, 2)
    assert all(began < each.start_time_unix_nano < each.time_unix_nano for each in ended.data_points)
    assert point(page["sluice_address_consumers"], address="orders").as_double == 1
    assert page["sluice_address_consumers"].WhichOneof("data") == "gauge"
    (latency,) = page["sluice_delivery_seconds"].histogram.data_points
    assert latency.count == sum(latency.bucket_counts) == 1
    assert len(latency.bucket_counts) == len(latency.explicit_bounds) + 1
    assert latency.sum > 0
    text = get(router.ports["web"], "/metrics").body.decode()
    shown = {}
    for family in text_string_to_metric_families(text):
        shown[f"{family.name}_total" if family.type == "counter" else family.name] = family
    assert set(page) == {name for name, family in shown.items() if family.samples}
    for name, family in shown.items():
        if family.type != "histogram" and name in page:
            data = getattr(page[name], page[name].WhichOneof("data"))
            series = {frozenset(values(each).items()) for each in data.data_points}
            assert series == {frozenset(sample.labels.items()) for sample in family.samples}, name


def export_process(router: RouterProcess) -> int:
    """Return the process id of the export process, once it has its name."""
    found: list[int] = poll(
        lambda: [each.pid for each in router.family() if each.name().endswith("-otel")], "the export process", 30.0
    )
    return found[0]


def test_signals_are_switched_by_management_without_restart(
    start: Start, peers: list[AmqpPeer], collector: Collector
) -> None:
    section = {"endpoint": collector.base, "logs": "no", "metrics": "yes", "metricsIntervalSeconds": "1"}
    router = start([listener(), ("openTelemetry", section)], workers=1)
    managing = AmqpPeer.opened(router.port)
    peers.append(managing)
    management = Management(managing)
    poll(lambda: collector.pages, "metrics", 30.0)
    process = export_process(router)
    assert not collector.records
    management.update("openTelemetry", "openTelemetry/0", logs=True, metrics=False)
    peers.append(AmqpPeer.opened(router.port))
    poll(lambda: any("Connection Opened" in text for text in collector.texts()), "lines", 30.0)
    # The page that was being sent has arrived before the first lines.
    pages = len(collector.pages)
    management.update("openTelemetry", "openTelemetry/0", metrics=True)
    management.update("openTelemetry", "openTelemetry/0", logs=False)
    poll(lambda: len(collector.pages) > pages, "metrics again", 30.0)
    assert export_process(router) == process
    records = len(collector.records)
    peers.append(AmqpPeer.opened(router.port))
    later = len(collector.pages)
    poll(lambda: len(collector.pages) > later + 1, "later metrics", 30.0)
    assert len(collector.records) == records
    management.delete("openTelemetry", "openTelemetry")
    poll(lambda: process not in [each.pid for each in router.family()], "the end of the export process")


def test_collector_of_tracing_section_cannot_be_deleted(
    start: Start, peers: list[AmqpPeer], collector: Collector
) -> None:
    sections = [listener(), ("openTelemetry", {"endpoint": collector.base, "logs": "no"}), ("tracing", {"ratio": "1"})]
    router = start(sections, workers=1)
    managing, peer = AmqpPeer.opened(router.port), AmqpPeer.opened(router.port)
    peers += [managing, peer]
    management = Management(managing)
    receiver, sender = peer.receiver("orders", 10), peer.sender("orders")
    sent = sender.send(message.message("x"))
    receiver.next().settle()
    sender.outcome(sent)
    poll(lambda: len(collector.spans) >= 2, "spans at the collector of openTelemetry", 30.0)
    with pytest.raises(ManagementStatusError) as caught:
        management.delete("openTelemetry", "openTelemetry")
    assert "neither an attribute endpoint nor a section openTelemetry" in str(caught.value)
    management.delete("tracing", "tracing")
    management.delete("openTelemetry", "openTelemetry")


class SilentServer:
    """Server that accepts connections and never answers."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.base = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        self._listener.close()


@pytest.mark.parametrize("fault", ["absent", "silent", "refuses"])
def test_failing_collector_delays_neither_deliveries_nor_readiness(
    start: Start, workers: int, peers: list[AmqpPeer], collector: Collector, fault: str
) -> None:
    collector.status = 503
    silent = SilentServer()
    bases = {"absent": f"http://127.0.0.1:{free_port()}", "silent": silent.base, "refuses": collector.base}
    sections = [
        listener(),
        WEB,
        ("openTelemetry", {"endpoint": bases[fault], "metricsIntervalSeconds": "1"}),
        ("tracing", {"ratio": "1"}),
        ("log", {"module": "PROTOCOL", "enable": "trace+"}),
    ]
    router = start(sections, workers=workers)
    receiving, sending = (AmqpPeer.opened(router.port) for _ in range(2))
    peers += [receiving, sending]
    receiver, sender = receiving.receiver("orders", 1000), sending.sender("orders")
    for subject in ("Spans", "Log records", "Metrics"):
        for _ in range(20):
            sent = sender.send(message.message("x"))
            receiver.next().settle()
            sender.outcome(sent)
        router.wait_log(f"SERVER \\(error\\) {subject} cannot be exported to {re.escape(bases[fault])}/v1/", 60.0)
        assert get(router.ports["web"], "/readyz").status == 200
    shown = scrape(router.ports["web"])
    for exported in ("traces", "logs", "metrics"):
        assert shown.sum("sluice_otlp_records_total", signal=exported, result="exported") == 0
        assert shown.sum("sluice_otlp_records_total", signal=exported, result="unexported") > 0
    for subject in ("Spans", "Log records", "Metrics"):
        assert len(re.findall(f"{subject} cannot be exported", router.log)) == 1
    router.stop()
    silent.close()


def test_lines_about_export_of_lines_are_not_exported(
    start: Start, peers: list[AmqpPeer], collector: Collector
) -> None:
    collector.status = 400
    router = start([listener(), ("openTelemetry", {"endpoint": collector.base, "metrics": "no"})], workers=1)
    router.wait_log("Log records cannot be exported to .*: HTTP status 400", 30.0)
    collector.status = 200
    peers.append(AmqpPeer.opened(router.port))
    router.wait_log("Log records are exported to .* again", 30.0)
    peers.append(AmqpPeer.opened(router.port))
    poll(lambda: any("[C2] Connection Opened" in text for text in collector.texts()), "the later line", 30.0)
    assert not any("exported" in text for text in collector.texts())


def test_killed_export_process_is_replaced_and_what_it_held_is_counted(
    start: Start, peers: list[AmqpPeer], collector: Collector
) -> None:
    silent = SilentServer()
    sections = [listener(), WEB, ("openTelemetry", {"endpoint": silent.base, "metrics": "no"})]
    router = start(sections, workers=1)
    process = export_process(router)
    lines = len(router.lines)
    os.kill(process, signal.SIGKILL)
    router.wait_log("The OpenTelemetry process is restarted: it died", 30.0)
    poll(lambda: export_process(router) != process, "another export process", 30.0)
    unexported = scrape(router.ports["web"]).sum("sluice_otlp_records_total", signal="logs", result="unexported")
    assert 0 < unexported <= lines + 1
    peers.append(AmqpPeer.opened(router.port))
    router.stop()
    silent.close()
