"""Spans of a tracing section at a collector that speaks OTLP over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from sluice.router.amqp import codec
from tests.peer import message
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Start
from tests.system.router import listener, poll

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra 'otel' is not installed")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

CONTEXT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Collector:
    """Collector that keeps the spans it receives, by name."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                octets = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    import gzip

                    octets = gzip.decompress(octets)
                collector.take(octets)
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - name of the base class
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    def take(self, octets: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(octets)
        for of_resource in request.resource_spans:
            self.resources.append({each.key: each.value.string_value for each in of_resource.resource.attributes})
            for of_scope in of_resource.scope_spans:
                self.spans += of_scope.spans

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
    """Return the attributes of a span."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


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
