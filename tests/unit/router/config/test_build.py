"""Listeners of a configuration: typed values, rules and errors."""

import pytest

from sluice.router.config.entities import FailoverServer
from sluice.router.config.load import load_text
from tests.unit.router.config.sections import errors, listener, section, warnings


# brokers-and-edge.md L-1.
def test_listener_has_documented_defaults():
    found = listener()
    assert (found.host, found.hosts, found.port, found.port_text) == ("", ("0.0.0.0", "::"), 5672, "amqp")
    assert (found.role, found.cost, found.sasl_mechanisms) == ("normal", 1, None)
    assert (found.max_frame_size, found.max_sessions, found.max_session_frames) == (16384, 32768, None)
    assert (found.idle_timeout_seconds, found.initial_handshake_timeout_seconds, found.link_capacity) == (16, 30, 250)
    assert (found.strip_annotations_in, found.strip_annotations_out, found.multi_tenant) == (True, True, False)
    assert (found.failover_servers, found.open_properties) == ((), {})
    assert (found.name, found.identity, found.named) == ("listener/:amqp", "listener/:amqp", False)
    assert "linkCapacity" not in found.values
    assert found.values["maxFrameSize"] == 16384


def test_listener_name_and_identity():
    found = listener("name: web", "host: 127.0.0.1", "port: 0")
    assert (found.name, found.identity, found.named) == ("web", "listener/127.0.0.1:0:web", True)
    assert (found.hosts, found.port) == (("127.0.0.1",), 0)


# brokers-and-edge.md L-2.
@pytest.mark.parametrize(
    ("family", "hosts"), [("IPv4", ("0.0.0.0",)), ("IPv6", ("::",)), ("0", ("0.0.0.0",)), ("1", ("::",))]
)
def test_listener_family_selects_hosts(family, hosts):
    assert listener(f"protocolFamily: {family}").hosts == hosts
    assert listener("host: ::1", f"protocolFamily: {family}").hosts == ("::1",)


@pytest.mark.parametrize(
    ("text", "number"), [("amqp", 5672), ("amqps", 5671), ("0", 0), ("65535", 65535), ("05672", 5672)]
)
def test_listener_port_may_be_service_name(text, number):
    assert listener(f"port: {text}").port == number


@pytest.mark.parametrize("text", ["65536", "-1", "nonsense", "127.0.0.1:5672", "5672,", "٣", r"a\u0000"])
def test_listener_with_invalid_port_is_refused(text):
    assert [line for line, _ in errors(section("listener", f"port: {text}"))] == [2]


@pytest.mark.parametrize(
    ("line", "attribute", "value"),
    [
        ("maxFrameSize: 100", "max_frame_size", 512),
        ("maxSessions: 0", "max_sessions", 32768),
        ("maxSessions: 40000", "max_sessions", 32768),
        ("maxSessions: 7", "max_sessions", 7),
        ("maxSessionFrames: 0", "max_session_frames", None),
        ("maxSessionFrames: 9", "max_session_frames", 9),
        ("linkCapacity: 0", "link_capacity", 250),
        ("linkCapacity: 10", "link_capacity", 10),
        ("stripAnnotations: in", "strip_annotations_out", False),
        ("stripAnnotations: out", "strip_annotations_in", False),
        ("stripAnnotations: no", "strip_annotations_in", False),
        ("role: route-container", "role", "route-container"),
        ("multiTenant: yes", "multi_tenant", True),
        ("saslMechanisms: ANONYMOUS", "sasl_mechanisms", ("ANONYMOUS",)),
        ("saslMechanisms: plain, EXTERNAL PLAIN", "sasl_mechanisms", ("PLAIN", "EXTERNAL")),
        ("authenticatePeer: yes", "authenticate_peer", True),
    ],
)
def test_listener_attributes_are_read(line, attribute, value):
    assert getattr(listener(line), attribute) == value


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("saslPlugin: x", ["Cannot find sasl plugin x"]),
        ("saslUsers: x", ["Cannot find saslUsers x"]),
        ("tokenIssuers: x", ["Cannot find tokenIssuer x"]),
        (
            "role: inter-router",
            ["role='standalone' not allowed to connect to or accept connections from other routers"],
        ),
        ("role: edge", ["role='standalone' not allowed"]),
        (
            "role: none",
            ["Invalid value for enum['normal', 'inter-router', 'route-container', 'edge', 'inter-edge']: 'none'"],
        ),
        ("failoverUrls: a,,b", ["No network host in failover item"]),
        ("idleTimeoutSeconds: -1", ["'idleTimeoutSeconds'", "between 0 and"]),
    ],
)
def test_invalid_listener_is_refused(line, words):
    found = errors(f"listener {{\n  port: 0\n  {line}\n}}\n")
    assert [number for number, _ in found] == [3]
    for word in words:
        assert word in found[0][1]


@pytest.mark.parametrize(
    ("mode", "kind", "role", "allowed"),
    [
        ("edge", "listener", "inter-router", "interior"),
        ("edge", "connector", "inter-router", "interior"),
        ("edge", "listener", "edge", "interior"),
        ("interior", "connector", "edge", "edge"),
        ("interior", "listener", "inter-edge", "edge"),
        ("interior", "connector", "inter-edge", "edge"),
    ],
)
def test_role_of_other_router_mode_is_refused(mode, kind, role, allowed):
    """See brokers-and-edge.md W-10, W-11."""
    found = errors(section(kind, f"role: {role}", "port: 1", "host: h") + section("router", f"mode: {mode}"))
    assert [line for line, _ in found] == [2]
    assert found[0][1].startswith(f"role='{role}' only allowed with router mode='{allowed}' for ")


# brokers-and-edge.md ED-1.
def test_edge_connections_are_allowed_in_both_modes():
    interior = load_text("x.conf", section("router", "mode: interior") + section("listener", "role: edge", "port: 0"))
    assert [listener.role for listener in interior.listeners] == ["edge"]
    text = section("router", "mode: edge") + section("connector", "role: edge", "port: 1", "host: h")
    edge = load_text("x.conf", text)
    assert edge.router.id.startswith("Edge_")
    assert [connector.role for connector in edge.connectors] == ["edge"]


def test_edge_routers_may_connect_to_each_other():
    ends = [section(kind, "role: inter-edge", "port: 1", "host: h") for kind in ("listener", "connector")]
    edge = load_text("x.conf", section("router", "mode: edge") + "".join(ends))
    assert [end.role for end in (*edge.listeners, *edge.connectors)] == ["inter-edge", "inter-edge"]
    refused = errors(ends[0])
    assert [text for _, text in refused] == [
        "role='standalone' not allowed to connect to or accept connections from other routers."
    ]


def test_interior_routers_may_connect_to_others():
    text = (
        section("router", "mode: interior", "helloIntervalSeconds: 2", "remoteLsMaxAge: 30")
        + section("listener", "role: inter-router", "cost: 3", "port: 0")
        + section("connector", "role: inter-router", "port: 1", "host: h")
    )
    configuration = load_text("x.conf", text)
    router = configuration.router
    assert router.id.startswith("Interior_")
    assert (router.hello_interval_seconds, router.hello_max_age_seconds, router.remote_ls_max_age_seconds) == (2, 3, 30)
    (listener,), (connector,) = configuration.listeners, configuration.connectors
    assert (listener.role, listener.cost, connector.role) == ("inter-router", 3, "inter-router")


# brokers-and-edge.md W-15.
def test_message_components_are_validated():
    assert listener().message_components == "none"
    assert listener("logMessage: to,app-properties").message_components == "to,app-properties"
    expected = "Unknown messageLoggingComponents: ' subject', 'tos' (x.conf:2)"
    assert warnings(section("listener", "messageLoggingComponents: to, subject,tos")) == [("CONN_MGR", expected)]


@pytest.mark.parametrize(
    ("protocols", "missing"),
    [
        ("TLSv1.3 TLSv1.1", "TLSv1.2"),
        ("TLSv1 TLSv1.3", "TLSv1.1 TLSv1.2"),
        ("TLSv1 TLSv1.2 TLSv1.3", "TLSv1.1"),
        ("TLSv1.1 TLSv1.2 TLSv1.3", None),
        ("TLSv1.1", None),
        ("TLSv1.2 SSLv9", None),
    ],
)
def test_gap_in_protocols_gives_warning_with_line(protocols, missing):
    """A TLS client of OpenSSL ignores the versions above a gap; the file must still load."""
    found = warnings(section("sslProfile", "name: p", f"protocols: {protocols}"))
    text = "sslProfile 'p': connectors and authentication services use only TLS versions before"
    oldest = missing and missing.split()[0]
    expected = f"{text} {oldest}, because protocols has newer ones without it; add {missing} (x.conf:3)"
    assert found == ([("CONN_MGR", expected)] if missing else [])


def test_failover_servers_are_parsed():
    found = listener("failoverList: a, amqps://b:5671, amqp://c, d:1234, amqp://[::1]:7, [::2]").failover_servers
    assert found == (
        FailoverServer(None, "a", "5672"),
        FailoverServer("amqps", "b", "5671"),
        FailoverServer("amqp", "c", "5672"),
        FailoverServer(None, "d", "1234"),
        FailoverServer("amqp", "::1", "7"),
        FailoverServer(None, "::2", "5672"),
    )


def test_open_properties_are_read():
    assert listener("openProperties: {", '"a": [1]', "}").open_properties == {"a": [1]}
    assert listener("openProperties: {", "a: 1", "}").open_properties == {"a": "1"}


# brokers-and-edge.md C-30, C-31.
@pytest.mark.parametrize(
    "key", ["product", "version", "failover-server-list", "network-host", "port", "qd.x", "x-opt-qd.y"]
)
def test_reserved_open_properties_are_refused(key):
    expected = [(2, f"Reserved key '{key}' not allowed in openProperties")]
    assert errors(section("listener", "openProperties: {", f'"{key}": 1', "}")) == expected
