"""Spans for a collector: conversion to OpenTelemetry's SDK, and export by OTLP over HTTP.

Only the export process imports the SDK, an optional dependency (extra `otel`). Names of attributes follow the semantic
conventions of OpenTelemetry for messaging where these have one, and begin with `sluice.` otherwise.
"""

import logging
from typing import Any, Final

from sluice.router.tracing.spans import DeliverySpan
from sluice.router.version import VERSION

TIMEOUT_SECONDS: Final = 10
MISSING: Final = "Spans are not exported, because the packages of the extra 'otel' are not installed"
_FAILED: Final = frozenset({"rejected", "released", "modified", "dropped"})


class ExportError(Exception):
    """Failure of an export. Its text is for the log."""


class Exporter:
    """Exporter to one collector. Owner: the export process."""

    def __init__(self, setup: dict[str, Any]) -> None:
        """setup: endpoint, ca (path or None), router (id). Raises ExportError."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope

            from sluice.supervisor.otlp.collector_session import CollectorSession
        except ImportError as error:
            raise ExportError(MISSING) from error
        # The SDK logs each failure, and without a handler its lines go to stderr. The router logs failures itself.
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
        logging.getLogger("opentelemetry").propagate = False
        self.endpoint: Final[str] = setup["endpoint"]
        self._session: Final = CollectorSession()
        self._exporter: Final = OTLPSpanExporter(
            endpoint=self.endpoint, certificate_file=setup["ca"], timeout=TIMEOUT_SECONDS, session=self._session
        )
        self._resource: Final = Resource({
            "service.name": "sluice", "service.instance.id": setup["router"], "service.version": VERSION
        })  # fmt: skip
        self._scope: Final = InstrumentationScope("sluice", VERSION)

    def export(self, spans: list[DeliverySpan]) -> int:
        """Export spans. Returns the number of those that the collector rejects. Raises ExportError."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        result = self._exporter.export([self._converted(span) for span in spans])
        if result is not SpanExportResult.SUCCESS:
            reason = self._session.failure or "they cannot be encoded"
            raise ExportError(f"Spans cannot be exported to {self.endpoint}: {reason}")
        return min(self._session.rejected, len(spans))

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
            resource=self._resource,
            attributes=_attributes(span),
            events=events,
            kind=SpanKind.CONSUMER if receives else SpanKind.PRODUCER if span.kind == "send" else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, span.outcome) if span.outcome in _FAILED else Status(StatusCode.UNSET),
            start_time=span.began,
            end_time=span.ended,
            instrumentation_scope=self._scope,
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
