"""Conversion of a validated openTelemetry entity to a typed object."""

from typing import Final
from urllib.parse import urlsplit

from sluice.router.config.collector_tls import build_collector_tls
from sluice.router.config.entities import OpenTelemetryConfig
from sluice.router.config.errors import Problems
from sluice.router.config.validate import Entity
from sluice.router.config.web_urls import web_url_fault

# Paths that are appended to the URL of a collector (OTLP 1.x, "OTLP/HTTP Request"), by signal.
SIGNAL_PATHS: Final = {"traces": "/v1/traces", "logs": "/v1/logs", "metrics": "/v1/metrics"}


def build_open_telemetry(entity: Entity, problems: Problems) -> OpenTelemetryConfig:
    """Build the section of the collector. Whether the collector answers is seen when something is sent."""
    endpoint = entity.text("endpoint").rstrip("/")
    fault = web_url_fault(endpoint) or _path_fault(endpoint)
    if fault is not None:
        problems.error(entity.line_of("endpoint"), f"{entity.type.long_name}: endpoint: {fault}")
    return OpenTelemetryConfig(
        name=entity.optional_text("name") or "openTelemetry",
        identity="openTelemetry/0",
        named="name" in entity.values,
        line=entity.line or None,
        values=entity.values,
        endpoint=endpoint,
        tls=build_collector_tls(entity, problems),
        logs=entity.flag("logs"),
        metrics=entity.flag("metrics"),
        metrics_interval_seconds=entity.number("metricsIntervalSeconds"),
    )


def _path_fault(url: str) -> str | None:
    """Return why paths of signals cannot be appended to a URL; None if they can."""
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        return "the router appends /v1/logs and other paths to the URL, which must have neither a query nor a fragment"
    for path in SIGNAL_PATHS.values():
        if parts.path.endswith(path):
            return f"the router appends the paths of signals to the URL, which must not end in {path}"
    return None
