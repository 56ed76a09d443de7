"""What a file means: defaults, typed values, the rules between entities, and the line of each refusal."""

import os
import re
from pathlib import Path

import pytest

from router.config.entities import FailoverServer
from router.config.errors import ConfigError, ConfigFileError
from router.config.load import load, load_text
from router.log import ALL_LEVELS, DEBUG, MODULES, TRACE, ModuleSettings

ROOT = Path(__file__).parents[4]
LONG = "org.apache.qpid.dispatch."


def section(name, *lines):
    return "\n".join([f"{name} {{", *lines, "}", ""])


def errors(text, path="x.conf"):
    """Return (line, message) of each error of a configuration that must be refused."""
    with pytest.raises(ConfigError) as caught:
        load_text(path, text)
    return [(error.line, error.message) for error in caught.value.errors]


def warnings(text):
    """Return the warnings of a configuration that must be accepted."""
    return load_text("x.conf", text).warnings


def listener(*lines):
    return load_text("x.conf", section("listener", *lines)).listeners[0]


def address(*lines):
    return load_text("x.conf", section("address", *lines)).addresses[0]


def test_nothing_but_comments():
    configuration = load_text("x.conf", "# nothing\n")
    router = configuration.router
    assert re.fullmatch(r"Standalone_[a-zA-Z0-9+_]{15}", router.id)
    assert router.identity == router.name == f"router/{router.id}"
    assert (router.mode, router.default_distribution, router.workers) == (
        "standalone",
        "balanced",
        len(os.sched_getaffinity(0)),
    )
    assert (configuration.listeners, configuration.addresses, configuration.warnings) == ((), (), [])


def test_generated_ids_differ():
    assert load_text("x.conf", "").router.id != load_text("x.conf", "").router.id


def test_router():
    text = section("router", "id: R.1", "workers: 3", "metadata: m", "timestampsInUTC: on", "area: 1")
    configuration = load_text("x.conf", text)
    router = configuration.router
    assert (router.id, router.workers, router.metadata, router.timestamps_in_utc) == ("R.1", 3, "m", True)
    assert router.values["workerThreads"] == 3
    assert router.values["area"] == "0"
    assert configuration.log_settings().utc
    text = "Attribute 'area' of entity 'router' is set by the router (x.conf:6)"
    assert configuration.warnings == [("AGENT", text)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("id: " + "x" * 128, f'Router ID "{"x" * 128}" exceeds the maximum allowed length (127 characters)'),
        ("id: a b", "Router id attribute containing character ' ' in id 'a b' is disallowed."),
        (r"id: a\u0007", r"Router id attribute containing character '\x07' in id 'a\x07' is disallowed."),
        ("workerThreads: 0", f"{LONG}router: Value 0 must be between 1 and 64 (attribute 'workerThreads')"),
        (
            "mode: edge",
            f"{LONG}router: value 'edge' of attribute 'mode' is not supported yet (supported: standalone, interior)",
        ),
        (r"timestampFormat: a\u0000", r"Invalid timestampFormat 'a\x00': embedded null character"),
        ("nonsense: x", f"{LONG}router: Unknown attribute 'nonsense' for '{LONG}router'"),
        ("identity: x", f"{LONG}router: Attribute 'identity' is made by the router"),
        ("type: x", f"{LONG}router: Attribute 'type' is made by the router"),
    ],
)
def test_router_refusals(line, message):
    assert errors(f"# one\nrouter {{\n  metadata: x\n  {line}\n}}\n") == [(4, message)]


def test_router_id_of_the_longest_length():
    assert load_text("x.conf", section("router", "id: " + "x" * 127)).router.id == "x" * 127


def test_workers_under_both_names():
    assert load_text("x.conf", section("router", "workerThreads: 2")).router.workers == 2
    assert load_text("x.conf", section("router", "workerThreads: 2", "workers: 2")).router.workers == 2
    message = "'workers' and 'workerThreads' are the same attribute and differ: give one of them"
    assert errors(section("router", "workerThreads: 2", "workers: 3")) == [(3, f"{LONG}router: {message}")]


def test_deprecated_names():
    text = section("log", "module: SERVER", "output: stdout") + section("router", "hello-interval: 2")
    configuration = load_text("x.conf", text)
    assert configuration.logs[0].settings.output == "stdout"
    assert configuration.router.hello_interval_seconds == 2
    expected = "Attribute 'output' of entity 'log' has been deprecated. Use 'outputFile' instead (x.conf:3)"
    assert configuration.warnings[0] == ("AGENT", expected)
    text = section("log", "module: SERVER", "output: stdout", "outputFile: stderr")
    expected = f"{LONG}log: Both 'output' and 'outputFile' cannot be specified for entity 'log'"
    assert errors(text) == [(3, expected)]


def test_attributes_without_effect_are_told():
    expected = [("AGENT", "Attribute 'saslConfigDir' of entity 'router' has no effect in this version (x.conf:2)")]
    assert warnings(section("router", "saslConfigDir: /etc/sasl2")) == expected
    assert warnings(section("router", "saslConfigName: qdrouterd")) == []


@pytest.mark.parametrize(
    ("name", "folded", "lines"),
    [
        ("auth-service-plugin", "authServicePlugin", ["name: x"]),
        ("ssl-profile", "sslProfile", ["name: x"]),
        ("vhost", "vhost", ["id: v", "maxMessageSize: 1000", "groups: {", "$default: {", "users: *", "},", "}"]),
    ],
)
def test_entities_not_supported(name, folded, lines):
    text = section("router", "id: A") + section(name, *lines)
    assert errors(text) == [(4, f"entity '{folded}' is not supported yet")]


def test_entities_not_supported_are_checked_all_the_same():
    found = errors(section("vhost", "maxConnections: x", "id: v", "hots: a") + section("linkRoute"))
    assert [line for line, _ in found] == [1, 2, 4, 6]
    assert found[3][1] == f"{LONG}router.config.linkRoute: Missing required attribute 'direction'"
    assert errors(section("sslProfile"))[1] == (1, f"{LONG}sslProfile: Missing required attribute 'name'")


@pytest.mark.parametrize(
    "name", ["allocator", "connection", "log-stats", "vhostStats", "vhostUserGroupSettings", "management", "entity"]
)
def test_entities_that_cannot_be_configured(name):
    ((line, text),) = errors("\n" + section(name))
    assert line == 2
    assert text.endswith("' cannot be configured: it only describes or reports")


def test_policy_has_only_its_defaults_but_for_one_limit():
    configuration = load_text("x.conf", section("policy", "maxConnections: 65535", "enableVhostPolicy: no"))
    assert (configuration.policy.name, configuration.policy.values["defaultVhost"]) == ("policy/None", "$default")
    found = errors(section("policy", "maxConnections: 10", "enableVhostPolicy: yes", "policyDir: /etc/x"))
    assert [line for line, _ in found] == [3, 4]
    assert "value 'yes' of attribute 'enableVhostPolicy' is not supported yet (supported: no)" in found[0][1]


def test_console_and_dummy():
    text = section("console", "proxy: p", "home: /h") + section("dummy", "num1: 5") + section("dummy", "name: d")
    configuration = load_text("x.conf", text)
    assert [(each.type, each.identity, each.name) for each in configuration.others] == [
        ("console", "console/0", "console/0"),
        ("dummy", "dummy/0", "dummy/0"),
        ("dummy", "dummy/1", "d"),
    ]
    assert configuration.others[1].values == {"num1": 5}
    console = "Console entity is deprecated: Use http:yes on listener entity instead (x.conf:1)"
    assert ("AGENT", console) in configuration.warnings


@pytest.mark.parametrize("name", ["fixed-address", "waypoint", "Router", "container"])
def test_entities_unknown(name):
    folded = {"fixed-address": "fixedAddress"}.get(name, name)
    guess = " (did you mean 'router'?)" if name == "Router" else ""
    assert errors(section(name)) == [(1, f"No such entity type '{LONG}{folded}'{guess}")]


def test_listener_defaults():
    found = listener()
    assert (found.host, found.hosts, found.port, found.port_text) == ("", ("0.0.0.0", "::"), 5672, "amqp")
    assert (found.role, found.cost, found.sasl_mechanisms) == ("normal", 1, ("ANONYMOUS",))
    assert (found.max_frame_size, found.max_sessions, found.max_session_frames) == (16384, 32768, None)
    assert (found.idle_timeout_seconds, found.initial_handshake_timeout_seconds, found.link_capacity) == (16, 0, 250)
    assert (found.strip_annotations_in, found.strip_annotations_out, found.multi_tenant) == (True, True, False)
    assert (found.failover_servers, found.open_properties) == ((), {})
    assert (found.name, found.identity, found.named) == ("listener/:amqp", "listener/:amqp", False)
    assert "linkCapacity" not in found.values
    assert found.values["maxFrameSize"] == 16384


def test_listener_name_and_identity():
    found = listener("name: web", "host: 127.0.0.1", "port: 0")
    assert (found.name, found.identity, found.named) == ("web", "listener/127.0.0.1:0:web", True)
    assert (found.hosts, found.port) == (("127.0.0.1",), 0)


@pytest.mark.parametrize(
    ("family", "hosts"), [("IPv4", ("0.0.0.0",)), ("IPv6", ("::",)), ("0", ("0.0.0.0",)), ("1", ("::",))]
)
def test_listener_family(family, hosts):
    assert listener(f"protocolFamily: {family}").hosts == hosts


@pytest.mark.parametrize(
    ("text", "number"), [("amqp", 5672), ("amqps", 5671), ("0", 0), ("65535", 65535), ("05672", 5672)]
)
def test_listener_port(text, number):
    assert listener(f"port: {text}").port == number


@pytest.mark.parametrize("text", ["65536", "-1", "nonsense", "127.0.0.1:5672", "5672,", "٣", r"a\u0000"])
def test_listener_bad_port(text):
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
    ],
)
def test_listener_attributes(line, attribute, value):
    assert getattr(listener(line), attribute) == value


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("sslProfile: x", ["'sslProfile'", "'x'", "not supported yet"]),
        ("requireSsl: yes", ["'requireSsl'", "'yes'", "not supported yet"]),
        ("requireEncryption: yes", ["'requireEncryption'", "'yes'", "not supported yet"]),
        ("authenticatePeer: true", ["'authenticatePeer'", "'yes'", "not supported yet"]),
        ("saslPlugin: x", ["'saslPlugin'", "'x'", "not supported yet"]),
        ("saslMechanisms: PLAIN SCRAM-SHA-256", ["'saslMechanisms'", "'PLAIN SCRAM-SHA-256'", "ANONYMOUS"]),
        ("httpRoot: /tmp", ["'httpRootDir'", "'/tmp'", "not supported yet"]),
        ("policyVhost: x", ["'policyVhost'", "not supported yet"]),
        (
            "role: inter-router",
            ["role='standalone' not allowed to connect to or accept connections from other routers"],
        ),
        ("role: edge", ["role='standalone' not allowed"]),
        ("role: none", ["Invalid value for enum['normal', 'inter-router', 'route-container', 'edge']: 'none'"]),
        ("failoverUrls: a,,b", ["No network host in failover item"]),
        ("idleTimeoutSeconds: -1", ["'idleTimeoutSeconds'", "between 0 and"]),
    ],
)
def test_listener_refusals(line, words):
    found = errors(f"listener {{\n  port: 0\n  {line}\n}}\n")
    assert [number for number, _ in found] == [3]
    for word in words:
        assert word in found[0][1]


def test_role_in_a_router_mode_that_is_not_supported():
    text = section("listener", "role: inter-router") + section("router", "mode: edge")
    found = errors(text)
    assert [line for line, _ in found] == [2, 5]
    assert "value 'inter-router' of attribute 'role' is not supported yet" in found[0][1]


def test_interior_routers_have_listeners_and_connectors_for_others():
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


@pytest.mark.parametrize("kind", ["listener", "connector"])
def test_edge_connections_are_not_supported_in_an_interior_router(kind):
    found = errors(section("router", "mode: interior") + section(kind, "role: edge", "port: 1", "host: h"))
    assert len(found) == 1
    assert "value 'edge' of attribute 'role' is not supported yet" in found[0][1]


def test_mechanisms_that_are_not_offered_are_told():
    text = section("listener", "saslMechanisms: PLAIN ANONYMOUS,EXTERNAL")
    expected = "SASL mechanisms not supported yet, not offered: PLAIN EXTERNAL (x.conf:2)"
    assert warnings(text) == [("AUTHSERVICE", expected)]


def test_message_components():
    assert listener().message_components == "none"
    assert listener("logMessage: to,app-properties").message_components == "to,app-properties"
    expected = "Unknown messageLoggingComponents: ' subject', 'tos' (x.conf:2)"
    assert warnings(section("listener", "messageLoggingComponents: to, subject,tos")) == [("CONN_MGR", expected)]


def test_failover_servers():
    found = listener("failoverList: a, amqps://b:5671, amqp://c, d:1234, amqp://[::1]:7, [::2]").failover_servers
    assert found == (
        FailoverServer(None, "a", "5672"),
        FailoverServer("amqps", "b", "5671"),
        FailoverServer("amqp", "c", "5672"),
        FailoverServer(None, "d", "1234"),
        FailoverServer("amqp", "::1", "7"),
        FailoverServer(None, "::2", "5672"),
    )


def test_open_properties():
    assert listener("openProperties: {", '"a": [1]', "}").open_properties == {"a": [1]}
    assert listener("openProperties: {", "a: 1", "}").open_properties == {"a": "1"}


@pytest.mark.parametrize(
    "key", ["product", "version", "failover-server-list", "network-host", "port", "qd.x", "x-opt-qd.y"]
)
def test_reserved_open_properties(key):
    expected = [(2, f"Reserved key '{key}' not allowed in openProperties")]
    assert errors(section("listener", "openProperties: {", f'"{key}": 1', "}")) == expected


def test_logs():
    text = section("log", "module: DEFAULT", "enable: debug+") + section("log", "module: SERVER", "includeSource: yes")
    configuration = load_text("x.conf", text)
    modules = configuration.log_settings().modules
    assert modules["DEFAULT"] == ModuleSettings(ALL_LEVELS & ~TRACE, None, None, None)
    assert modules["SERVER"] == ModuleSettings(None, None, True, None)
    assert [log.identity for log in configuration.logs][:3] == ["log/DEFAULT", "log/SERVER", "log/ROUTER"]
    assert {log.module for log in configuration.logs} == set(MODULES)
    default, server, router = configuration.logs[:3]
    assert default.values == {
        "module": "DEFAULT",
        "enable": "debug+",
        "includeTimestamp": True,
        "includeSource": False,
        "outputFile": "stderr",
    }
    assert server.values == {"module": "SERVER", "includeSource": True}
    assert (router.values, router.settings, router.line) == ({"module": "ROUTER"}, ModuleSettings(), None)


def test_log_refusals():
    text = section("log", "module: SERVER", "enable: info,bogus") + section("log", "module: MAIN") + section("log")
    found = errors(text)
    assert [line for line, _ in found] == [3, 6, 8]
    assert found[0][1] == (
        "'info,bogus' is not a valid log level. Should be one of "
        "{none, trace, debug, info, notice, warning, error, critical}."
    )
    assert found[2][1] == f"{LONG}log: Missing required attribute 'module'"


def test_address():
    found = address("prefix: a/b", "distribution: multicast", "priority: 9", "presettledOverflow: dropOldest")
    assert (found.prefix, found.pattern, found.distribution, found.priority) == ("a/b", None, "multicast", 9)
    assert (found.ingress_phase, found.egress_phase, found.fallback) == (0, 0, False)
    assert (found.presettled_overflow, found.identity) == ("dropOldest", "address/0")
    assert address("pattern: a.#", "enableFallback: yes").fallback


@pytest.mark.parametrize(
    ("lines", "phases"),
    [
        ([], (0, 0)),
        (["waypoint: yes"], (0, 1)),
        (["ingressPhase: 2", "egressPhase: 3"], (2, 3)),
        (["waypoint: yes", "ingressPhase: 2", "egressPhase: 0"], (2, 0)),
    ],
)
def test_address_phases(lines, phases):
    found = address("prefix: a", *lines)
    assert (found.ingress_phase, found.egress_phase) == phases


@pytest.mark.parametrize(
    ("lines", "module", "text"),
    [
        (
            ["prefix: a", "pattern: b"],
            "ROUTER",
            "Cannot set both 'prefix' and 'pattern': ignoring configured address a, b",
        ),
        ([], "ROUTER", "Must set either 'prefix' or 'pattern' attribute: ignoring configured address"),
        (["prefix: a", "ingressPhase: 1"], "ROUTER_CORE", "Phase values must be between 0 and 9"),
        (["prefix: a", "egressPhase: 1"], "ROUTER_CORE", "Phase values must be between 0 and 9"),
        (["prefix: a", "ingressPhase: 0", "egressPhase: 10"], "ROUTER_CORE", "Phase values must be between 0 and 9"),
        (["prefix: a", "ingressPhase: -1", "egressPhase: 0"], "ROUTER_CORE", "Phase values must be between 0 and 9"),
        (
            ["prefix: a", "priority: 10"],
            "ROUTER_CORE",
            "Priority value, if present, must be between 0 and QDR_MAX_PRIORITY",
        ),
        (
            ["prefix: a", "enableFallback: yes", "waypoint: yes"],
            "ROUTER_CORE",
            "Fallback cannot be specified with waypoint or non-zero ingress and egress phases",
        ),
        (["prefix: ./"], "ROUTER_CORE", "Prefix invalid - no tokens"),
        (["pattern: /"], "ROUTER_CORE", "Pattern invalid - no tokens"),
    ],
)
def test_address_left_out(lines, module, text):
    kept = section("address", "prefix: kept")
    configuration = load_text("x.conf", "\n" + section("address", *lines) + kept)
    assert [(each.prefix, each.identity) for each in configuration.addresses] == [("kept", "address/1")]
    assert [each for each, _ in configuration.warnings] == [module]
    assert text in configuration.warnings[0][1]
    assert configuration.warnings[0][1].endswith("(x.conf:2)")


def test_address_negative_priority_is_absent():
    assert address("prefix: a", "priority: -1").priority is None


def test_address_empty_prefix():
    configuration = load_text("x.json", '[["address", {"prefix": ""}]]')
    assert configuration.addresses == ()
    assert "Prefix must be a non-empty string type" in configuration.warnings[0][1]


EXCHANGE = section("exchange", "name: E", "address: e") + section("exchange", "address: f", "matchMethod: mqtt")


def test_exchanges_and_bindings():
    # A binding may come before its exchange.
    text = section("binding", "exchangeName: E", "nextHopAddress: n") + EXCHANGE
    lines = ["name: B", "exchangeName: exchange/1", "bindingKey: a/#", "nextHopAddress: m", "nextHopPhase: 2"]
    text += section("binding", *lines)
    configuration = load_text("x.conf", text)
    assert configuration.warnings == []
    first, second = configuration.exchanges
    assert (first.name, first.identity, first.address, first.phase) == ("E", "exchange/0", "e", 0)
    assert (second.name, second.match_method, second.alternate_address) == ("exchange/1", "mqtt", None)
    default, named = configuration.bindings
    assert (default.exchange_name, default.binding_key, default.next_hop_phase) == ("E", "#", 0)
    assert (default.name, named.name, named.binding_key, named.next_hop_phase) == ("binding/0", "B", "a/#", 2)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (section("exchange", "address: e"), "duplicate exchange address"),
        (section("exchange", "address: x", "phase: 10"), "phase must be in the range 0-9"),
        (section("exchange", "address: x", "alternatePhase: -1"), "phase must be in the range 0-9"),
        (section("binding", "exchangeName: none", "nextHopAddress: n"), "Named exchange does not exist"),
        (
            section("binding", "exchangeName: exchange/1", "bindingKey: a/#/b", "nextHopAddress: n"),
            "The binding key pattern is invalid",
        ),
        (
            section("binding", "exchangeName: E", "nextHopAddress: n", "nextHopPhase: 10"),
            "phase must be in the range 0-9",
        ),
        (
            section("binding", "exchangeName: E", "nextHopAddress: x", "bindingKey: k"),
            "Next hop for key already exists",
        ),
    ],
)
def test_exchanges_and_bindings_left_out(text, reason):
    before = EXCHANGE + section("binding", "exchangeName: E", "nextHopAddress: x", "bindingKey: k")
    configuration = load_text("x.conf", before + text)
    assert (len(configuration.exchanges), len(configuration.bindings)) == (2, 1)
    assert len(configuration.warnings) == 1
    module, warning = configuration.warnings[0]
    assert module == "ROUTER_CORE"
    assert warning.endswith(f": {reason} (x.conf:{before.count(chr(10)) + 1})")


def test_exchange_without_address():
    assert errors(section("exchange", "name: x")) == [
        (1, f"{LONG}router.config.exchange: Missing required attribute 'address'")
    ]
    configuration = load_text("x.json", '[["exchange", {"address": ""}]]')
    assert "exchange address is mandatory" in configuration.warnings[0][1]


def test_singleton():
    found = errors(section("router", "id: A") + section("router", "id: B"))
    assert [line for line, _ in found] == [4]
    assert found[0][1].startswith(f"Adding {LONG}router singleton {{")
    assert found[0][1].endswith("already exists")


@pytest.mark.parametrize(
    ("second", "attribute"),
    [
        (section("listener", "host: b", "name: n"), "name"),
        (section("address", "prefix: a", "name: n"), "name"),
        (section("listener", "host: a"), None),
        (section("listener", "name: log/AGENT"), "name"),
        (section("listener", "name: self"), "name"),
        (section("log", "module: DEFAULT"), "name"),
        (section("log", "module: DEFAULT", "name: x"), "identity"),
    ],
)
def test_uniqueness(second, attribute):
    first = section("listener", "host: a", "name: n") + section("log", "module: DEFAULT")
    if attribute is None:
        load_text("x.conf", first + second)
        return
    found = errors(first + second)
    assert [line for line, _ in found] == [8]
    assert f"duplicates unique attribute '{attribute}' from existing" in found[0][1]


def test_an_empty_name_is_none():
    configuration = load_text("x.json", '[["address", {"name": "", "prefix": "a"}], ["listener", {"name": ""}]]')
    assert (configuration.addresses[0].name, configuration.addresses[0].named) == ("address/0", False)
    assert (configuration.listeners[0].name, configuration.listeners[0].named) == ("listener/:amqp", False)


def test_same_host_and_port_twice():
    assert [line for line, _ in errors(section("listener", "port: 1") + section("listener", "port: 1"))] == [4]


def test_errors_of_all_kinds_in_one_go_in_order_of_lines():
    text = "listener {\n  port: x\n  http: maybe\n}\nlinkRoute {\n}\nrouter {\n  id: a b\n  bad\n}\n"
    text += "listener {\n  maxSessions: none\n  nonsense: 1\n}\n"
    assert [line for line, _ in errors(text)] == [2, 3, 5, 8, 9, 12, 13]


def test_json_values():
    text = '[["router", {"id": "A", "workers": 2, "metadata": null}],\n["listener", {"port": 5672, "http": false}]]'
    configuration = load_text("x.json", text)
    assert (configuration.router.workers, configuration.router.metadata) == (2, None)
    assert configuration.listeners[0].port == 5672
    assert errors('[["listener",\n {"port": 5672,\n  "cost": "x"}]]', "x.json")[0][0] == 3


def test_files(tmp_path):
    path = tmp_path / "a.conf"
    with pytest.raises(ConfigFileError) as caught:
        load(str(path))
    assert caught.value.summary == "Not found: Configuration file could not be opened"
    assert str(caught.value) == f"{path}: the configuration file cannot be opened: No such file or directory"
    path.write_bytes(b"")
    with pytest.raises(ConfigFileError) as caught:
        load(str(path))
    assert caught.value.summary == "Configuration: Configuration file was empty"
    path.write_bytes(b"# a\nrouter {\n  id: \xff\n}\n")
    with pytest.raises(ConfigError) as undecodable:
        load(str(path))
    assert str(undecodable.value) == f"{path}:3: not UTF-8 text: octet 0xff"
    with pytest.raises(ConfigFileError):
        load(str(tmp_path))
    with pytest.raises(ConfigFileError):
        load("a\0b")


def test_log_levels_of_one_module():
    configuration = load_text("x.conf", section("log", "module: ROUTER", "enable: deb"))
    assert configuration.log_settings().modules["ROUTER"].mask == DEBUG


def test_misspelt_attributes():
    text = section("listener", "prot: 1", "idleTimeOutSeconds: 2", "x" * 10000 + ": 3")
    unknown = f"{LONG}listener: Unknown attribute"
    assert [message.removeprefix(unknown) for _, message in errors(text)][:2] == [
        f" 'prot' for '{LONG}listener' (did you mean 'port'?)",
        f" 'idleTimeOutSeconds' for '{LONG}listener' (did you mean 'idleTimeoutSeconds'?)",
    ]


def test_second_address_section_for_a_pattern():
    text = section("address", "prefix: a") + section("address", "pattern: /a.#") + section("address", "pattern: a")
    configuration = load_text("x.conf", text)
    assert [(each.prefix, each.pattern) for each in configuration.addresses] == [("a", None), (None, "a")]
    warning = "Already exists: Duplicate pattern 'a/#' not added to parse tree (x.conf:4)"
    assert configuration.warnings == [("ERROR", warning)]


def test_standalone_example():
    configuration = load(str(ROOT / "conf" / "standalone.conf"))
    assert configuration.warnings == []
    assert (configuration.router.id, configuration.router.mode) == ("Standalone", "standalone")
    assert [(each.host, each.port) for each in configuration.listeners] == [("localhost", 5672)]
    found = {each.prefix: each.distribution for each in configuration.addresses}
    assert found == {"closest": "closest", "balanced": "balanced", "multicast": "multicast"}


def test_what_is_not_supported_but_the_default_is_accepted_with_a_warning():
    expected = "Attribute 'websockets' of entity 'listener': 'yes' is not supported yet (x.conf:2)"
    assert warnings(section("listener", "websockets: yes")) == [("AGENT", expected)]
    assert warnings(section("listener", "websockets: no")) == []


@pytest.mark.parametrize(
    ("kind", "attribute", "most"),
    [
        ("listener", "name", 1024),
        ("listener", "host", 255),
        ("connector", "name", 1024),
        ("connector", "host", 255),
        ("connector", "port", 255),
        ("connector", "saslUsername", 400),
    ],
)
def test_what_goes_to_workers_with_each_connection_is_bounded(kind, attribute, most):
    labels = "xxxxxxxxx." * most  # of a host name at most 63 octets
    text = section(kind, f"{attribute}: {labels[:most]}")
    assert load_text("x.conf", text).warnings == []
    text = section(kind, f"{attribute}: {labels[: most + 1]}")
    message = f"{LONG}{kind}: attribute '{attribute}' has {most + 1} octets, and at most {most} are allowed"
    assert errors(text) == [(2, message)]
