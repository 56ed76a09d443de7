"""Log, metrics and traces of routers in a real OpenTelemetry Collector: OTLP over HTTP and HTTPS."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sluice.router.version import VERSION
from tests.interop.brokers.process import TOOLS
from tests.interop.conftest import require_tool
from tests.interop.otel_collector import PATIENCE, CollectorProcess, Received, attributes
from tests.peer import message
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.pki import pki
from tests.system.http import WEB, get
from tests.system.networks import CONVERGENCE, RouterView, interior, ports
from tests.system.router import RouterProcess, Section, listener, poll

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra 'otel' is not installed")
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

#: Kinds of spans in OTLP.
INTERNAL, PRODUCER, CONSUMER = 1, 4, 5
CUMULATIVE = 2


@pytest.fixture
def program() -> Path:
    return require_tool(TOOLS / "collector", "collector")


@pytest.fixture
def collector(program: Path, tmp_path: Path) -> Iterator[CollectorProcess]:
    """Collector that has not been started."""
    made = CollectorProcess(program, tmp_path / "collector")
    yield made
    made.stop()


@contextmanager
def running(directory: Path, sections: list[Section], workers: int = 1) -> Iterator[RouterProcess]:
    directory.mkdir()
    router = RouterProcess(directory, sections, workers)
    router.start()
    try:
        yield router
    finally:
        router.stop()


def export(collector: CollectorProcess, **attributes: Any) -> Section:
    return "openTelemetry", {"endpoint": collector.endpoint, "metricsIntervalSeconds": 1, **attributes}


def pass_one(into: AmqpPeer, out: AmqpPeer, address: str) -> None:
    receiver, sender = out.receiver(address, 10), into.sender(address)
    sent = sender.send(message.message("x"))
    receiver.next().settle()
    assert sender.outcome(sent).name == "accepted"


@pytest.mark.parametrize("workers", [1, 3])
def test_spans_of_message_over_two_routers_are_one_trace(
    collector: CollectorProcess, tmp_path: Path, workers: int
) -> None:
    collector.start()
    port, *_ = ports(1)
    tracing = "tracing", {"ratio": "1", "addresses": "orders"}
    both = [export(collector, logs="no", metrics="no"), tracing]
    with ExitStack() as stack:
        a = stack.enter_context(running(tmp_path / "A", [*interior("A", port), *both], workers))
        b = stack.enter_context(running(tmp_path / "B", [*interior("B", to=[port]), *both], workers))
        RouterView(a).wait_nodes(B=1)
        into, out = AmqpPeer.opened(a.port), AmqpPeer.opened(b.port)
        stack.callback(into.drop)
        stack.callback(out.drop)
        receiver = out.receiver("orders", 10)
        RouterView(a).wait_remote("M0orders", "B")
        sender = into.sender("orders")
        sent = sender.send(message.message("x"))
        receiver.next().settle()
        sender.outcome(sent)

        def arrived() -> bool:
            kinds = [(each.router, each.item["name"].split()[0]) for each in collector.traces()]
            return kinds.count(("A", "send")) == kinds.count(("B", "send")) == 1

        poll(arrived, "spans of both routers", PATIENCE + CONVERGENCE)
    spans = collector.traces()
    assert len({each.item["traceId"] for each in spans}) == 1
    named = {(each.router, each.item["name"].split()[0]): each for each in spans}
    assert {each.item["name"].split()[1] for each in spans} == {"orders"}
    assert "parentSpanId" not in named["A", "receive"].item or not named["A", "receive"].item["parentSpanId"]
    for child, parent in (
        (("A", "send"), ("A", "receive")),
        (("B", "receive"), ("A", "receive")),  # all copies of a message have one context (decision 0085)
        (("B", "send"), ("B", "receive")),
    ):
        assert named[child].item["parentSpanId"] == named[parent].item["spanId"], (child, parent)
    kinds = {"receive": CONSUMER, "send": PRODUCER, "cross": INTERNAL}
    for (_, what), each in named.items():
        assert each.item["kind"] == kinds[what]
        assert int(each.item["startTimeUnixNano"]) <= int(each.item["endTimeUnixNano"])
        assert each.resource["service.name"] == each.scope == "sluice"
        assert each.resource["service.version"] == VERSION
        assert each.attributes["messaging.system"] == "amqp"
        assert each.attributes["messaging.destination.name"] == "orders"
        assert each.attributes["sluice.outcome"] == ("crossed" if what == "cross" else "accepted")
        assert each.item.get("status", {}).get("code", 0) == 0


def metric(collector: CollectorProcess, name: str) -> dict[str, Any]:
    """Return the newest state of a metric."""
    return [each.item for each in collector.metrics() if each.item["name"] == name][-1]


def lines(collector: CollectorProcess, text: str) -> list[Received]:
    """Return the log records with this text."""
    return [each for each in collector.logs() if text in each.item["body"]["stringValue"]]


def test_log_and_metrics_arrive_with_names_types_and_times(collector: CollectorProcess, tmp_path: Path) -> None:
    began = time.time_ns()
    collector.start()
    with running(tmp_path / "R", [listener(), WEB, export(collector)]) as router:
        peer = AmqpPeer.opened(next(iter(router.ports.values())))
        pass_one(peer, peer, "orders")

        def counted() -> bool:
            found = [each.item for each in collector.metrics() if each.item["name"] == "sluice_deliveries_ended_total"]
            points = found[-1]["sum"]["dataPoints"] if found else []
            return any(each["asDouble"] == 1 and attributes(each)["outcome"] == "accepted" for each in points)

        poll(counted, "the delivery in the metrics", PATIENCE)
        poll(lambda: lines(collector, "Operational"), "lines", PATIENCE)
        shown = list(text_string_to_metric_families(get(router.ports["web"], "/metrics").body.decode()))
        with urllib.request.urlopen(f"http://127.0.0.1:{collector.metrics_port}/metrics", timeout=20) as answer:
            exposed = {each.name: each for each in text_string_to_metric_families(answer.read().decode())}
        peer.drop()
    first: Received = collector.metrics()[0]
    assert first.resource == {
        "service.name": "sluice", "service.instance.id": "QDR", "service.version": VERSION
    }  # fmt: skip
    counter = metric(collector, "sluice_deliveries_ended_total")["sum"]
    assert (counter["isMonotonic"], counter["aggregationTemporality"]) == (True, CUMULATIVE)
    assert all(
        began < int(each["startTimeUnixNano"]) < int(each["timeUnixNano"]) < time.time_ns()
        for each in counter["dataPoints"]
    )
    assert "gauge" in metric(collector, "sluice_address_consumers")
    latency = metric(collector, "sluice_delivery_seconds")["histogram"]
    assert latency["aggregationTemporality"] == CUMULATIVE
    assert int(latency["dataPoints"][0]["count"]) == 1
    # The exporter for Prometheus shows the metrics under the names of /metrics, without another suffix.
    for family in shown:
        if family.samples:
            assert exposed[family.name].type == family.type, family.name
    assert all(sample.labels["service_instance_id"] == "QDR" for sample in exposed["sluice_deliveries_ended"].samples)
    (line,) = lines(collector, "Operational")
    assert (line.item["severityText"], line.item["severityNumber"]) == ("notice", 10)
    assert began < int(line.item["timeUnixNano"]) < time.time_ns()
    assert line.attributes["sluice.module"] == "SERVER"
    assert line.attributes["code.file.path"].endswith(".py")
    assert line.attributes["code.line.number"] > 0


def newest(collector: CollectorProcess) -> int:
    """Return the time of the newest page of metrics in ns; 0: there is none."""
    points = [
        point
        for each in collector.metrics()
        for kind in ("sum", "gauge", "histogram")
        for point in each.item.get(kind, {}).get("dataPoints", ())
    ]
    return max((int(point["timeUnixNano"]) for point in points), default=0)


def test_reload_switches_signals_while_collector_is_absent_and_present(
    collector: CollectorProcess, tmp_path: Path
) -> None:
    lines_only = export(collector, metrics="no")
    with running(tmp_path / "R", [listener(), WEB, export(collector)]) as router:
        managing = AmqpPeer.opened(next(iter(router.ports.values())))
        management = Management(managing)
        router.wait_log("Log records cannot be exported to .*: no connection", PATIENCE)
        router.wait_log("Metrics cannot be exported to .*: no connection", PATIENCE)
        router.configure([listener(), WEB, lines_only])
        management.call("RELOAD")
        switched = time.time_ns()
        collector.start()
        router.wait_log("Log records are exported to .* again", PATIENCE)
        poll(collector.logs, "lines", PATIENCE)
        # Pages from before may arrive, because their exports are repeated for some seconds.
        assert newest(collector) < switched
        router.configure([listener(), WEB, export(collector, logs="no")])
        management.call("RELOAD")
        poll(lambda: newest(collector) > switched, "metrics", PATIENCE)
        collector.stop()
        router.wait_log("Metrics cannot be exported to .*: no connection", PATIENCE, after=len(router.lines))
        collector.start()
        pages = len(collector.metrics())
        router.wait_log("Metrics are exported to .* again", PATIENCE)
        poll(lambda: len(collector.metrics()) > pages, "metrics again", PATIENCE)
        assert not lines(collector, "Metrics are exported"), "a line from after the logs were switched off"
        assert get(router.ports["web"], "/readyz").status == 200
        managing.drop()


def test_collector_over_https_gets_signals_of_router_with_certificate_only(program: Path, tmp_path: Path) -> None:
    (tmp_path / "pki").mkdir()
    authority = pki(tmp_path / "pki")
    collector = CollectorProcess(program, tmp_path / "collector", authority.server, authority)
    collector.start()
    trusting = export(collector, caCertFile=authority.trusted)
    files = {"certFile": authority.client.certificate, "privateKeyFile": authority.client.key}
    try:
        with running(tmp_path / "R", [listener(), export(collector)]) as router:
            managing = AmqpPeer.opened(next(iter(router.ports.values())))
            management = Management(managing)
            router.wait_log("Log records .* exported to .*: the collector's certificate is not trusted", PATIENCE)
            router.configure([listener(), trusting])
            management.call("RELOAD")
            router.wait_log("Log records cannot be exported to .*: TLS fails: .* certificate required", PATIENCE)
            assert not collector.logs()
            router.configure([listener(), export(collector, caCertFile=authority.trusted, **files)])
            management.call("RELOAD")
            poll(collector.logs, "lines", PATIENCE)
            poll(collector.metrics, "metrics", PATIENCE)
            managing.drop()
    finally:
        collector.stop()
