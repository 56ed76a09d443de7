"""Entity tracing: values, and errors with their lines."""

import pytest

from sluice.router.config.entities import TracingConfig
from sluice.router.config.errors import ConfigError
from sluice.router.config.load import load_text

BASE = "router {\n  id: R\n}\n"
ENDPOINT = "endpoint: http://127.0.0.1:4318/v1/traces"


def load(*lines):
    return load_text("x.conf", BASE + "tracing {\n" + "".join(f"  {line}\n" for line in lines) + "}\n")


def test_tracing_attributes_are_read():
    (found,) = load(ENDPOINT, "ratio: 0.5", "addresses: orders/#,a.*", "parentBased: yes").of_type("tracing")
    assert (found.endpoint, found.tls) == ("http://127.0.0.1:4318/v1/traces", (None, None, None))
    assert (found.ratio, found.addresses) == (0.5, ("orders/#", "a.*"))
    assert (found.parent_based, found.spans_per_second) == (True, 1000)


def test_tracing_without_endpoint_takes_section_open_telemetry():
    text = BASE + "tracing {\n  ratio: 1\n}\nopenTelemetry {\n  endpoint: http://127.0.0.1:4318\n}\n"
    (found,) = load_text("x.conf", text).of_type("tracing")
    assert isinstance(found, TracingConfig)
    assert found.endpoint is None


def test_tracing_defaults_sample_little():
    (found,) = load(ENDPOINT).of_type("tracing")
    assert (found.ratio, found.addresses, found.parent_based) == (0.01, ("#",), False)


@pytest.mark.parametrize(
    ("lines", "line", "text"),
    [
        (("ratio: 1",), 4, "there is no collector: neither an attribute endpoint nor a section openTelemetry"),
        (("endpoint: 127.0.0.1:4318",), 5, "is not a URL with http:// or https:// and a host"),
        (("endpoint: http://a:99999/",), 5, "is not a URL"),
        ((ENDPOINT, "ratio: 1.5"), 6, "ratio '1.5' is not a number from 0 to 1"),
        ((ENDPOINT, "ratio: nan"), 6, "ratio 'nan' is not a number from 0 to 1"),
        ((ENDPOINT, "addresses: a,/,b"), 6, "addresses '/': Pattern invalid - no tokens"),
        ((ENDPOINT, "spansPerSecond: 0"), 6, "between 1 and 10000"),
        ((ENDPOINT, "}", "tracing {", ENDPOINT), 7, "duplicates unique attribute"),
    ],
)
def test_invalid_tracing_is_refused_with_line(lines, line, text):
    with pytest.raises(ConfigError) as caught:
        load(*lines)
    assert [(error.line, text in error.message) for error in caught.value.errors] == [(line, True)]
