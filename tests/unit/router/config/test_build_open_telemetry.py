"""Entity openTelemetry: values, and errors with their lines."""

from __future__ import annotations

import pytest

from sluice.router.config.entities import OpenTelemetryConfig
from sluice.router.config.errors import ConfigError
from sluice.router.config.load import load_text

ENDPOINT = "endpoint: http://127.0.0.1:4318"


def load(*lines: str) -> OpenTelemetryConfig:
    text = "router {\n  id: R\n}\nopenTelemetry {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"
    (found,) = load_text("x.conf", text).of_type("openTelemetry")
    assert isinstance(found, OpenTelemetryConfig)
    return found


def test_open_telemetry_attributes_are_read() -> None:
    found = load("endpoint: https://c.example:4318/otlp/", "logs: no", "metrics: no", "metricsIntervalSeconds: 5")
    assert (found.endpoint, found.tls) == ("https://c.example:4318/otlp", (None, None, None))
    assert (found.logs, found.metrics, found.metrics_interval_seconds) == (False, False, 5)


def test_open_telemetry_files_for_tls_are_read() -> None:
    found = load("endpoint: https://c.example:4318", "caCertFile: /ca", "certFile: /own", "privateKeyFile: /key")
    assert found.tls == ("/ca", "/own", "/key")


def test_open_telemetry_defaults_export_logs_and_metrics_each_minute() -> None:
    found = load(ENDPOINT)
    assert (found.logs, found.metrics, found.metrics_interval_seconds) == (True, True, 60)


@pytest.mark.parametrize(
    ("lines", "line", "text"),
    [
        (("logs: yes",), 4, "Missing required attribute 'endpoint'"),
        (("endpoint: 127.0.0.1:4318",), 5, "is not a URL with http:// or https:// and a host"),
        (("endpoint: http://me:secret@a:4318",), 5, "has a user or a password"),
        (("endpoint: http://a:4318/v1/logs",), 5, "must not end in /v1/logs"),
        (("endpoint: http://a:4318/?key=1",), 5, "neither a query nor a fragment"),
        ((ENDPOINT, "certFile: /own"), 6, "certFile is set, but privateKeyFile is not"),
        ((ENDPOINT, "privateKeyFile: /key"), 6, "privateKeyFile is set, but certFile is not"),
        ((ENDPOINT, "metricsIntervalSeconds: 0"), 6, "between 1 and 3600"),
        ((ENDPOINT, "}", "openTelemetry {", ENDPOINT), 7, "duplicates unique attribute"),
    ],
)
def test_invalid_open_telemetry_is_refused_with_line(lines: tuple[str, ...], line: int, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(*lines)
    assert [(error.line, text in error.message) for error in caught.value.errors] == [(line, True)]
