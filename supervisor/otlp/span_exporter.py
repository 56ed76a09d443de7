"""Spans for a collector: conversion to those of OpenTelemetry's SDK.

Names of attributes follow the semantic conventions of OpenTelemetry for messaging where these have one, and begin with
`sluice.` otherwise.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from sluice.router.tracing.spans import DeliverySpan
from sluice.supervisor.otlp.exporter import Exporter

_FAILED: Final = frozenset({"rejected", "released", "modified", "dropped"})


class SpanExporter(Exporter[DeliverySpan]):
    """Exporter of spans."""

    SUBJECT = "Spans"
    BATCH = 512
    MOST_WAITING = 20_000  # spans

    def _made(self, **options: Any) -> Any:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(**options)

    def _rejected(self) -> Callable[[bytes], int]:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

        return lambda content: ExportTraceServiceResponse.FromString(content).partial_success.rejected_spans

    def _send(self, batch: Sequence[DeliverySpan]) -> bool:
        from opentelemetry.sdk.trace.export import SpanExportResult

        return self._exporter.export([self._converted(span) for span in batch]) is SpanExportResult.SUCCESS

    def _converted(self, span: DeliverySpan) -> Any:
        from opentelemetry.sdk.trace import Event, ReadableSpan
        from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
        from opentelemetry.trace.status import Status, StatusCode

        def context(span_id: str, *, remote: bool) -> SpanContext:
            return SpanContext(int(span.trace_id, 16), int(span_id, 16), remote, TraceFlags(TraceFlags.SAMPLED))

        receives = span.kind == "receive"
        events = [] if span.sent is None else [Event("sent", timestamp=span.sent)]
        return ReadableSpan(
            name=f"{span.kind} {span.address}".rstrip(),
            context=context(span.span_id, remote=False),
            parent=None if span.parent_id is None else context(span.parent_id, remote=receives),
            resource=self.resource,
            attributes=_attributes(span),
            events=events,
            kind=SpanKind.CONSUMER if receives else SpanKind.PRODUCER if span.kind == "send" else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, span.outcome) if span.outcome in _FAILED else Status(StatusCode.UNSET),
            start_time=span.began,
            end_time=span.ended,
            instrumentation_scope=self.scope,
        )


def _attributes(span: DeliverySpan) -> dict[str, str | int | bool]:
    """Return the attributes of a span: address, numbers, sizes and outcome, nothing of the message's content."""
    found: dict[str, str | int | bool] = {
        "messaging.system": "amqp",
        "messaging.destination.name": span.address,
        "messaging.message.envelope.size": span.octets,
        "sluice.outcome": span.outcome,
        "sluice.worker": span.worker,
        "sluice.connection": span.connection,
    }
    if span.kind != "cross":
        found["messaging.operation.type"] = span.kind
        found["sluice.link"] = span.link
    if span.kind == "send":
        found["sluice.queued"] = span.queued
    if span.from_worker is not None:
        found["sluice.from_worker"] = span.from_worker
    return found
