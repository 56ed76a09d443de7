"""Loaded configurations: defaults, typed values, rules between entities, and the line of each error.

management.md 2.6.
"""

import os
import re
from pathlib import Path

import pytest

from sluice.router.config.errors import ConfigError, ConfigFileError
from sluice.router.config.load import load, load_text
from sluice.router.log import ALL_LEVELS, DEBUG, MODULES, TRACE, ModuleSettings
from tests.unit.router.config.sections import LONG, errors, section, warnings

ROOT = Path(__file__).parents[4]


def test_empty_configuration_has_defaults():
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


# inter-router.md 1.
def test_generated_router_ids_differ():
    assert load_text("x.conf", "").router.id != load_text("x.conf", "").router.id


def test_router_attributes_are_read():
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
        ("workerThreads: 0", f"{LONG}router: Value 0 must be between 1 and 65535 (attribute 'workerThreads')"),
        (
            "workers: two",
            f"{LONG}router: invalid literal for int() with base 10: 'two'"
            " (attribute 'workerThreads': a whole number is needed, written in digits)",
        ),
        (r"timestampFormat: a\u0000", r"Invalid timestampFormat 'a\x00': embedded null character"),
        ("nonsense: x", f"{LONG}router: Unknown attribute 'nonsense' for '{LONG}router'"),
        ("identity: x", f"{LONG}router: Attribute 'identity' is made by the router"),
        ("type: x", f"{LONG}router: Attribute 'type' is made by the router"),
    ],
)
def test_invalid_router_attribute_is_refused(line, message):
    assert errors(f"# one\nrouter {{\n  metadata: x\n  {line}\n}}\n") == [(4, message)]


def test_router_id_of_maximum_length_is_accepted():
    assert load_text("x.conf", section("router", "id: " + "x" * 127)).router.id == "x" * 127


def test_workers_can_be_set_under_both_names():
    assert load_text("x.conf", section("router", "workerThreads: 2")).router.workers == 2
    assert load_text("x.conf", section("router", "workerThreads: 2", "workers: 2")).router.workers == 2
    message = (
        "'workers' and 'workerThreads' are two names of one attribute but have different values: give only one of them"
    )
    assert errors(section("router", "workerThreads: 2", "workers: 3")) == [(3, f"{LONG}router: {message}")]


def test_workers_beyond_maximum_are_capped_with_warning():
    found = load_text("x.conf", section("router", "workerThreads: 200"))
    assert (found.router.workers, found.router.values["workerThreads"]) == (64, 64)
    assert found.warnings == [("ROUTER", "workerThreads is 200: a router has at most 64 workers (x.conf:2)")]
    assert load_text("x.conf", section("router", "workerThreads: 64")).warnings == []


def test_grace_is_that_of_environment_unless_given(monkeypatch):
    assert load_text("x.conf", section("router")).router.shutdown_grace_seconds == 0
    monkeypatch.setenv("SLUICE_SHUTDOWN_GRACE_SECONDS", "60")
    assert load_text("x.conf", section("router")).router.shutdown_grace_seconds == 60
    given = load_text("x.conf", section("router", "shutdownGraceSeconds: 0"))
    assert given.router.shutdown_grace_seconds == 0
    monkeypatch.setenv("SLUICE_SHUTDOWN_GRACE_SECONDS", "1m")
    text = "SLUICE_SHUTDOWN_GRACE_SECONDS=1m is no number of seconds up to 86400"
    assert errors(section("router")) == [(1, text)]


def test_deprecated_names_are_accepted_with_warning():
    text = section("log", "module: SERVER", "output: stdout") + section("router", "hello-interval: 2")
    configuration = load_text("x.conf", text)
    assert configuration.logs[0].settings.output == "stdout"
    assert configuration.router.hello_interval_seconds == 2
    expected = "Attribute 'output' of entity 'log' has been deprecated. Use 'outputFile' instead (x.conf:3)"
    assert configuration.warnings[0] == ("AGENT", expected)
    text = section("log", "module: SERVER", "output: stdout", "outputFile: stderr")
    expected = f"{LONG}log: Both 'output' and 'outputFile' cannot be specified for entity 'log'"
    assert errors(text) == [(3, expected)]


# security.md T-27.
def test_trusted_certificates_of_listener_give_warning():
    text = "Configuration listener attribute 'trustedCertsFile' is not used. Specify sslProfile caCertFile instead."
    assert warnings(section("listener", "trustedCertsFile: /x.pem")) == [("CONN_MGR", f"{text} (x.conf:2)")]


def test_attributes_without_effect_give_warning():
    expected = [("AGENT", "Attribute 'debugDumpFile' of entity 'router' has no effect in this version (x.conf:2)")]
    assert warnings(section("router", "debugDumpFile: /tmp/x")) == expected
    assert warnings(section("router", "saslConfigName: qdrouterd")) == []


def test_sasl_library_configuration_is_read():
    router = load_text("x.conf", section("router", "saslConfigPath: /etc/sasl2", "saslConfigName: other")).router
    assert (router.sasl_config_dir, router.sasl_config_name) == ("/etc/sasl2", "other")
    router = load_text("x.conf", section("router", "id: A")).router
    assert (router.sasl_config_dir, router.sasl_config_name) == (None, "qdrouterd")


def test_errors_of_several_entities_are_reported():
    found = errors(section("sslProfile", "name: x", "hots: a") + section("linkRoute"))
    assert [line for line, _ in found] == [3, 5]
    assert found[1][1] == f"{LONG}router.config.linkRoute: Missing required attribute 'direction'"
    assert errors(section("sslProfile"))[0] == (1, f"{LONG}sslProfile: Missing required attribute 'name'")


@pytest.mark.parametrize(
    "name", ["allocator", "connection", "log-stats", "vhostStats", "vhostUserGroupSettings", "management", "entity"]
)
def test_operational_entities_cannot_be_configured(name):
    ((line, text),) = errors("\n" + section(name))
    assert line == 2
    assert text.endswith("' cannot be configured: configuration files have no section of this type")


def test_policy_attributes_are_read():
    policy = load_text("x.conf", section("policy", "maxConnections: 10")).policy
    assert (policy.name, policy.max_connections, policy.max_message_size) == ("policy/None", 10, 0)
    assert (policy.vhosts_enabled, policy.vhost_patterns, policy.default_vhost) == (False, False, "$default")
    lines = ("maxMessageSize: 9", "enableVhostPolicy: yes", "enableVhostNamePatterns: yes", "defaultVhost: v")
    policy = load_text("x.conf", section("policy", *lines)).policy
    assert (policy.max_connections, policy.max_message_size) == (65535, 9)
    assert (policy.vhosts_enabled, policy.vhost_patterns, policy.default_vhost) == (True, True, "v")
    assert "Value -1 must be" in errors(section("policy", "maxConnections: -1"))[0][1]


# management.md 2.8.
def test_console_and_dummy_are_accepted():
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


@pytest.mark.parametrize(
    ("name", "guess"), [("routr", " (did you mean 'router'?)"), ("Router", " (did you mean 'router'?)"), ("xyz", "")]
)
def test_unknown_entity_is_refused_with_suggestion(name, guess):
    assert errors(section(name)) == [(1, f"No such entity type '{LONG}{name}'{guess}")]


# management.md 2.7.
def test_log_sections_are_read():
    text = section("log", "module: DEFAULT", "enable: debug+") + section(
        "log", "module: SERVER", "includeSource: yes", "format: json"
    )
    configuration = load_text("x.conf", text)
    modules = configuration.log_settings().modules
    assert modules["DEFAULT"] == ModuleSettings(ALL_LEVELS & ~TRACE, None, None, None)
    assert modules["SERVER"] == ModuleSettings(None, None, True, None, "json")
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
    assert server.values == {"module": "SERVER", "includeSource": True, "format": "json"}
    assert (router.values, router.settings, router.line) == ({"module": "ROUTER"}, ModuleSettings(), None)


def test_invalid_log_section_is_refused():
    text = section("log", "module: SERVER", "enable: info,bogus") + section("log", "module: MAIN") + section("log")
    found = errors(text)
    assert [line for line, _ in found] == [3, 6, 8]
    assert found[0][1] == (
        "'info,bogus' is not a valid log level. Should be one of "
        "{none, trace, debug, info, notice, warning, error, critical}."
    )
    assert found[2][1] == f"{LONG}log: Missing required attribute 'module'"


def test_second_singleton_is_refused():
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
def test_duplicate_unique_attribute_is_refused(second, attribute):
    first = section("listener", "host: a", "name: n") + section("log", "module: DEFAULT")
    if attribute is None:
        load_text("x.conf", first + second)
        return
    found = errors(first + second)
    assert [line for line, _ in found] == [8]
    assert f"duplicates unique attribute '{attribute}' from existing" in found[0][1]


def test_empty_name_is_ignored():
    configuration = load_text("x.json", '[["address", {"name": "", "prefix": "a"}], ["listener", {"name": ""}]]')
    assert (configuration.addresses[0].name, configuration.addresses[0].named) == ("address/0", False)
    assert (configuration.listeners[0].name, configuration.listeners[0].named) == ("listener/:amqp", False)


def test_duplicate_host_and_port_are_refused():
    assert [line for line, _ in errors(section("listener", "port: 1") + section("listener", "port: 1"))] == [4]


def test_errors_of_all_kinds_are_sorted_by_line():
    text = "listener {\n  port: x\n  http: maybe\n}\nlinkRoute {\n}\nrouter {\n  id: a b\n  bad\n}\n"
    text += "listener {\n  maxSessions: none\n  nonsense: 1\n}\n"
    assert [line for line, _ in errors(text)] == [2, 3, 5, 8, 9, 12, 13]


def test_json_values_are_typed():
    text = '[["router", {"id": "A", "workers": 2, "metadata": null}],\n["listener", {"port": 5672, "http": false}]]'
    configuration = load_text("x.json", text)
    assert (configuration.router.workers, configuration.router.metadata) == (2, None)
    assert configuration.listeners[0].port == 5672
    assert errors('[["listener",\n {"port": 5672,\n  "cost": "x"}]]', "x.json")[0][0] == 3


def test_unreadable_files_are_reported(tmp_path):
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


def test_log_levels_of_module_are_read():
    configuration = load_text("x.conf", section("log", "module: ROUTER", "enable: deb"))
    assert configuration.log_settings().modules["ROUTER"].mask == DEBUG


def test_misspelt_attributes_get_suggestions():
    text = section("listener", "prot: 1", "idleTimeOutSeconds: 2", "x" * 10000 + ": 3")
    unknown = f"{LONG}listener: Unknown attribute"
    assert [message.removeprefix(unknown) for _, message in errors(text)][:2] == [
        f" 'prot' for '{LONG}listener' (did you mean 'port'?)",
        f" 'idleTimeOutSeconds' for '{LONG}listener' (did you mean 'idleTimeoutSeconds'?)",
    ]


def test_second_address_section_for_pattern_is_ignored():
    text = section("address", "prefix: a") + section("address", "pattern: /a.#") + section("address", "pattern: a")
    configuration = load_text("x.conf", text)
    assert [(each.prefix, each.pattern) for each in configuration.addresses] == [("a", None), (None, "a")]
    warning = "Already exists: Duplicate pattern 'a/#' not added to parse tree (x.conf:4)"
    assert configuration.warnings == [("ERROR", warning)]


def test_standalone_example_is_accepted():
    configuration = load(str(ROOT / "conf" / "standalone.conf"))
    assert configuration.warnings == []
    assert (configuration.router.id, configuration.router.mode) == ("Standalone", "standalone")
    places = [(each.host, each.port) for each in configuration.listeners]
    assert places == [("localhost", 5672), ("localhost", 8672)]
    urls = [each.console_url(each.port) for each in configuration.listeners]
    assert urls == [None, "http://localhost:8672/"]
    found = {each.prefix: each.distribution for each in configuration.addresses}
    assert found == {"closest": "closest", "balanced": "balanced", "multicast": "multicast"}


def test_proxy_of_connector_is_read():
    expected = "proxyUser has no effect without proxyHost (x.conf:2)"
    assert warnings(section("connector", "proxyUser: me")) == [("CONN_MGR", expected)]
    assert warnings(section("connector", "proxyHost: here", "proxyUser: me")) == []


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
def test_names_sent_to_workers_are_bounded(kind, attribute, most):
    labels = "xxxxxxxxx." * most  # a label of a host name has at most 63 octets
    text = section(kind, f"{attribute}: {labels[:most]}")
    assert load_text("x.conf", text).warnings == []
    text = section(kind, f"{attribute}: {labels[: most + 1]}")
    message = f"{LONG}{kind}: attribute '{attribute}' has {most + 1} octets; at most {most} are allowed"
    assert errors(text) == [(2, message)]
