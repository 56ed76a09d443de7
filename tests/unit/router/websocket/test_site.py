"""Web pages that may use a listener, by the listener's host, its allowedOrigins and the connection's address."""

import pytest

from sluice.router.websocket.origins import OriginPolicy, is_local, origin_fault

LOOPBACK = OriginPolicy("localhost", (), "127.0.0.1")
EVERYWHERE = OriginPolicy("0.0.0.0", (), "127.0.0.1")
OUTSIDE = OriginPolicy("", (), "192.0.2.7")
EVIL = "https://evil.example"


@pytest.mark.parametrize("site", [LOOPBACK, EVERYWHERE, OUTSIDE, OriginPolicy("router.example", (), "192.0.2.7")])
@pytest.mark.parametrize(
    "host",
    [
        "localhost:5673", "127.0.0.1:5673", "[::1]:5673", "0.0.0.0:5673", "localhost.:5673", "[::]:5673",
        "[::ffff:7f00:1]:5673", "127.0.0.1.:5673", "LOCALHOST:5673", "127.1:5673", "router.example",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "origin",
    [
        EVIL, "http://evil.localhost", "http://localhost:3000", "null", "", "http://[", "http://localhost:5673/x",
        "http://localhost:5673.evil.example", "http://localhost@evil.example", "localhost:5673", "file://",
    ],
)  # fmt: skip
def test_page_of_other_site_is_refused(site, host, origin):
    assert "another site" in (site.refusal(host, origin) or "")


@pytest.mark.parametrize(
    ("site", "host", "origin"),
    [
        (LOOPBACK, "localhost:5673", "http://localhost:5673"),
        (LOOPBACK, "127.0.0.1:5673", "http://127.0.0.1:5673"),
        (LOOPBACK, "LocalHost:5673", "http://localhost:5673"),
        (LOOPBACK, "[::1]:5673", "http://[::1]:5673"),
        (LOOPBACK, "localhost", "https://localhost"),
        (OriginPolicy("::1", (), "::1"), "[::1]:5673", "http://[::1]:5673"),
        (EVERYWHERE, "localhost:5673", "http://localhost:5673"),
        (OUTSIDE, "router.example:8080", "http://router.example:8080"),
        (OUTSIDE, "router.example", "https://router.example"),
        (OUTSIDE, "192.0.2.7:8080", "http://192.0.2.7:8080"),
    ],
)
def test_listeners_own_pages_are_allowed(site, host, origin):
    assert site.refusal(host, origin) is None
    assert site.refusal(host, None) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:5673", "0.0.0.0:5673", "localhost.:5673", "[::]:5673", "[::ffff:7f00:1]:5673", "127.0.0.1.:5673",
        "localhost.evil.example", "localhost@evil.example", "", "a b", "[::1", "10.0.0.1:5673",
    ],
)  # fmt: skip
def test_loopback_listener_has_only_local_names(host):
    """DNS rebinding: a name of the page's own site that resolves to this machine makes Origin and Host equal."""
    assert "does not name this listener" in (LOOPBACK.refusal(host, None) or "")
    assert LOOPBACK.refusal(host, f"http://{host}") is not None
    assert OriginPolicy("127.0.0.2", (), "").refusal(host, None) is not None
    assert OriginPolicy("", (), "::ffff:127.0.0.1").refusal(host, f"http://{host}") is not None


def test_programs_may_use_any_name_of_wildcard_listener():
    assert EVERYWHERE.refusal("this-machine:8080", None) is None
    assert OUTSIDE.refusal("router.example:8080", None) is None
    assert LOOPBACK.refusal(None, None) is None  # HTTP/1.0


def test_configured_host_of_listener_is_its_own_name():
    site = OriginPolicy("router.internal", (), "127.0.0.1")
    assert site.refusal("router.internal:5673", "http://router.internal:5673") is None
    assert site.refusal("evil.example:5673", "http://evil.example:5673") is not None


def test_allowed_origins_are_accepted():
    site = OriginPolicy("localhost", ("https://app.example", "http://localhost:3000"), "127.0.0.1")
    assert site.refusal("localhost:5673", "http://localhost:3000") is None
    assert site.refusal("localhost:5673", "https://app.example") is None
    assert site.refusal("app.example", "https://app.example") is None  # a proxy that keeps the Host header
    assert site.refusal("localhost:5673", "https://app.example:8443") is not None
    assert site.refusal("localhost:5673", "http://app.example") is not None
    assert OriginPolicy("", ("*",), "127.0.0.1").refusal("whatever", EVIL) is None


@pytest.mark.parametrize(
    ("origin", "good"),
    [
        ("*", True), ("https://app.example", True), ("http://localhost:3000", True), ("http://[::1]:3000", True),
        ("app.example", False), ("https://app.example/", False), ("https://*.example", False), ("null", False),
        ("https://", False), ("https://a:b:c", False),
    ],
)  # fmt: skip
def test_allowed_origin_items_are_validated(origin, good):
    assert (origin_fault(origin) is None) is good


def test_local_names_are_recognised():
    assert all(map(is_local, ("localhost", "LOCALHOST", "a.localhost", "127.0.0.1", "127.9.9.9", "::1")))
    assert not any(map(is_local, ("localhost.", "localhost.example", "128.0.0.1", "127.0.0.1.example", "0.0.0.0", "")))
