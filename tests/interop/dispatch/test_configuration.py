"""Configuration files of Dispatch 1.19 with qdrouterd: valid files, invalid files, and the texts of refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.interop.dispatch.node import ManagementNode
from tests.interop.dispatch.programs import ProgramResult, program, run
from tests.system.router import RouterProcess

LONG = "org.apache.qpid.dispatch."
LOADING = "Python: Exception: Cannot load configuration file {path}: "
IN_ADDRESS = LOADING + LONG + "router.config.address: "
LEVELS = "Should be one of {none, trace, debug, info, notice, warning, error, critical}."

#: Bad file and beginning of the last line on stderr after "qdrouterd: ", by name. {path} stands for the file's path.
#: A text of 1.19 may be followed by an explanation.
BAD: dict[str, tuple[str, str]] = {
    "unknown-section": ("fixed-address {\n}\n", LOADING + f"No such entity type '{LONG}fixedAddress'"),
    "capital-section": ("Router {\n}\n", LOADING + f"No such entity type '{LONG}Router'"),
    "dotted-section": ("router.config.address {\n    prefix: a\n}\n", LOADING),
    "unknown-attribute": (
        "listener {\n    nosuch: 1\n}\n",
        LOADING + f"{LONG}listener: Unknown attribute 'nosuch' for '{LONG}listener'",
    ),
    "type-attribute": ("listener {\n    type: listener\n}\n", LOADING),
    "missing-required": (
        "exchange {\n    name: x\n}\n",
        LOADING + f"{LONG}router.config.exchange: Missing required attribute 'address'",
    ),
    "missing-module": ("log {\n    enable: info\n}\n", LOADING + f"{LONG}log: Missing required attribute 'module'"),
    "enum": (
        "router {\n    mode: alone\n}\n",
        LOADING + f"{LONG}router: Invalid value for enum['standalone', 'interior', 'edge']: 'alone'",
    ),
    "enum-case": ("address {\n    prefix: a\n    distribution: Closest\n}\n", IN_ADDRESS + "Invalid value for enum["),
    "enum-negative": ("address {\n    prefix: a\n    distribution: -1\n}\n", IN_ADDRESS + "Invalid value for enum["),
    "log-module-main": ("log {\n    module: MAIN\n}\n", LOADING + f"{LONG}log: Invalid value for enum["),
    "boolean": (
        "listener {\n    multiTenant: maybe\n}\n",
        LOADING + f"{LONG}listener: Invalid Boolean value ''maybe''",
    ),
    "boolean-one": ("listener {\n    multiTenant: 1\n}\n", LOADING + f"{LONG}listener: Invalid Boolean value ''1''"),
    "integer": (
        "router {\n    workerThreads: many\n}\n",
        LOADING + f"{LONG}router: invalid literal for int() with base 10: 'many'",
    ),
    "fraction": (
        "listener {\n    maxFrameSize: 2.5\n}\n",
        LOADING + f"{LONG}listener: invalid literal for int() with base 10: '2.5'",
    ),
    "hexadecimal": (
        "listener {\n    maxFrameSize: 0x4000\n}\n",
        LOADING + f"{LONG}listener: invalid literal for int() with base 10: '0x4000'",
    ),
    "both-names": (
        "router {\n    helloInterval: 1\n    helloIntervalSeconds: 1\n}\n",
        LOADING
        + f"{LONG}router: Both 'helloInterval' and 'helloIntervalSeconds' cannot be specified for entity 'router'",
    ),
    "two-routers": ("router {\n}\nrouter {\n}\n", LOADING + f"Adding {LONG}router singleton "),
    "same-name": (
        "listener {\n    name: a\n    port: 0\n}\naddress {\n    name: a\n    prefix: b\n}\n",
        LOADING + "adding ",
    ),
    "name-of-a-log": (
        "listener {\n    name: log/AGENT\n    port: 0\n}\nlog {\n    module: AGENT\n}\n",
        LOADING + "adding ",
    ),
    "same-port-twice": ("listener {\n    port: 0\n}\nlistener {\n    port: 0\n}\n", LOADING + "adding "),
    "long-id": (
        f"router {{\n    id: {'r' * 128}\n}}\n",
        LOADING + f'Router ID "{"r" * 128}" exceeds the maximum allowed length (127 characters)',
    ),
    "blank-in-id": (
        "router {\n    id: a b\n}\n",
        "Python: AttributeError: Router id attribute containing character ' ' in id 'a b' is disallowed.",
    ),
    "standalone-inter-router": (
        "listener {\n    role: inter-router\n    port: 0\n}\n",
        "Python: ValidationError: "
        "role='standalone' not allowed to connect to or accept connections from other routers.",
    ),
    "standalone-edge": (
        "router {\n    mode: standalone\n}\nlistener {\n    role: edge\n    port: 0\n}\n",
        LOADING + "role='standalone' not allowed to connect to or accept connections from other routers.",
    ),
    "reserved-property": (
        'listener {\n    port: 0\n    openProperties: {\n        "product": "x"\n    }\n}\n',
        "Python: ValidationError: Reserved key 'product' not allowed in openProperties",
    ),
    "reserved-prefix": (
        'listener {\n    port: 0\n    openProperties: {\n        "qd.x": "x"\n    }\n}\n',
        "Python: ValidationError: Reserved key 'qd.x' not allowed in openProperties",
    ),
    "properties-of-a-router": (
        "router {\n    mode: interior\n    id: R\n}\nlistener {\n    port: 0\n    role: inter-router\n"
        '    openProperties: {\n        "a": "x"\n    }\n}\n',
        "Python: ValidationError: openProperties not allowed for role inter-router",
    ),
    "null-as-key": (
        'listener {\n    port: 0\n    openProperties: {\n        null: "x",\n    }\n}\n',
        LOADING + "Expecting property name enclosed in double quotes: ",
    ),
    "number-as-key": (
        "listener {\n    port: 0\n    openProperties: {\n        9: 9\n    }\n}\n",
        LOADING + "Expecting property name enclosed in double quotes: ",
    ),
    "number-as-second-key": (
        'listener {\n    port: 0\n    openProperties: {\n        "a": 1,\n        9: "x"\n    }\n}\n',
        LOADING + "Expecting property name enclosed in double quotes",
    ),
    "found-when-reading-first": (
        "router {\n    id: a b\n}\nlistener {\n    nosuch: 1\n}\n",
        LOADING + f"{LONG}listener: Unknown attribute 'nosuch' for '{LONG}listener'",
    ),
    "map-in-one-line": ('listener {\n    port: 0\n    openProperties: {"a": "b"}\n}\n', LOADING),
    "log-level": (
        "log {\n    module: AGENT\n    enable: loud\n}\n",
        "Python: CError: Configuration: 'loud' is not a valid log level. " + LEVELS,
    ),
    "log-level-beside-trace": (
        "log {\n    module: AGENT\n    enable: trace,bogus\n}\n",
        "Python: CError: Configuration: 'trace,bogus' is not a valid log level. " + LEVELS,
    ),
    "log-file": (
        "log {\n    module: DEFAULT\n    outputFile: /nonexistent/directory/log\n}\n",
        "Failed to open log file '/nonexistent/directory/log'",
    ),
    "sasl-plugin": ("listener {\n    port: 0\n    saslPlugin: nope\n}\n", ""),
    "quote": ('listener {\n    host: "localhost"\n}\n', LOADING),
    "unknown-escape": ("listener {\n    host: a\\q\n}\n", LOADING),
    "brace-alone": ("listener\n{\n    port: 0\n}\n", LOADING),
    "one-line-section": ("listener { port: 0 }\n", LOADING),
    "text-after-brace": ("listener { host: x\n}\n", LOADING),
    "not-closed": ("listener {\n    port: 0\n", LOADING),
    "closed-twice": ("listener {\n    port: 0\n}\n}\n", LOADING),
    "no-value": ("listener {\n    host:\n}\n", LOADING),
    "no-colon": ("listener {\n    host localhost\n}\n", LOADING),
    "empty": ("", "Configuration: Configuration file was empty"),
}

#: Bad files in JSON and their messages, by name.
BAD_JSON: dict[str, tuple[str, str]] = {
    "json-object": ('{"router": {"id": "A"}}', LOADING),
    "json-cut": ('[ ["router", {"id": "A"}', LOADING),
    "json-unknown": ('[["nosuch", {}]]', LOADING + f"No such entity type '{LONG}nosuch'"),
    "json-properties": (
        '[["listener", {"port": 0, "openProperties": "x"}]]',
        LOADING + f"{LONG}listener: Properties must be a map",
    ),
    "json-list-of-maps": ('[{"router": {"id": "A"}}]', LOADING),
}

CASES = {name: (".conf", *case) for name, case in BAD.items()}
CASES |= {name: (".json", *case) for name, case in BAD_JSON.items()}
#: Routers started in parallel; more would only compete for the cores.
AT_ONCE = 4


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, ProgramResult]]:
    """Path and result of qdrouterd for each bad file, by name."""
    directory = tmp_path_factory.mktemp("bad")
    paths = {}
    for name, (ending, text, _) in CASES.items():
        paths[name] = directory / (name + ending)
        paths[name].write_text(text)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = pool.map(lambda path: run("qdrouterd", "-c", str(path), cwd=directory), paths.values())
        return {name: (paths[name], ran) for name, ran in zip(paths, done, strict=True)}


@pytest.mark.parametrize("name", CASES)
def test_bad_file_is_refused_with_reason(name: str, refusals: dict[str, tuple[Path, ProgramResult]]) -> None:
    """The exit code is 1; the reason is logged as error and as critical, and is on the last line of stderr."""
    path, ran = refusals[name]
    assert ran.code == 1
    assert ran.out == ""
    wanted = CASES[name][2].replace("{path}", str(path))
    head = f"{program('qdrouterd')}: "
    assert ran.last_error.startswith(head)
    said = ran.last_error.removeprefix(head)
    assert said.startswith(wanted) if wanted.startswith(("Python: ", "Configuration: ")) else wanted in said
    assert said.startswith(("Python: ", "Configuration: "))
    assert re.search(r"^\S+ \S+ \S+ ERROR \(error\) ", ran.err, re.MULTILINE)
    assert re.search(r"^\S+ \S+ \S+ MAIN \(critical\) Router start-up failed: ", ran.err, re.MULTILINE)
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("name", ["quote", "brace-alone", "one-line-section", "not-closed", "no-value", "no-colon"])
def test_syntax_errors_name_line(name: str, refusals: dict[str, tuple[Path, ProgramResult]]) -> None:
    lines = {"quote": 2, "brace-alone": 1, "one-line-section": 1, "no-value": 2, "no-colon": 2}
    path, ran = refusals[name]
    assert str(path) in ran.last_error
    if name in lines:
        assert re.search(rf"\bline {lines[name]}\b|:{lines[name]}\b", ran.err), ran.err


def test_missing_file_is_refused(tmp_path: Path) -> None:
    ran = run("qdrouterd", "-c", str(tmp_path / "none.conf"))
    assert ran.code == 1
    assert ran.last_error == f"{program('qdrouterd')}: Not found: Configuration file could not be opened"


# --- files that run -----------------------------------------------------------------------------------------------

Start = Callable[..., RouterProcess]

#: Examples of Dispatch's documentation, with ports and paths that a test can use.
EXAMPLES: dict[str, str] = {
    "default file": """
# See the qdrouterd.conf (5) manual page for information about this
# file's format and options.

router {
    mode: standalone
    id: Router.A
}

listener {
    host: 127.0.0.1
    port: 0
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}

address {
    prefix: closest
    distribution: closest
}

address {
    prefix: multicast
    distribution: multicast
}

address {
    prefix: unicast
    distribution: closest
}

address {
    prefix: exclusive
    distribution: closest
}

address {
    prefix: broadcast
    distribution: multicast
}
""",
    "logging": """
router {
    mode: standalone
    id: Router.A
    timestampsInUTC: true
}
listener {
    host: 127.0.0.1
    port: 0
    authenticatePeer: no
    idleTimeoutSeconds: 120
}
log {
    module: ROUTER
    enable: debug+
    includeTimestamp: yes
}
log {
    module: ROUTER_CORE
    enable: trace, debug, info, error
    includeSource: yes
}
log {
    module: DEFAULT
    enable: info+
    includeTimestamp: yes
    outputFile: stderr
}
log {\x20
    module: MESSAGE
    enable: none
}
""",
    "addresses": """
router {\x20
    mode: standalone
    id: Router.A
    workerThreads: 2
    defaultDistribution: unavailable
}
listener {
    name: clients
    host: 127.0.0.1
    port: 0
    role: normal
    linkCapacity: 1000
    stripAnnotations: no
    maxFrameSize: 65536
    maxSessions: 100
    maxSessionFrames: 100
}
address {
    prefix: my_queue
    waypoint: yes
}
address {
    prefix: orders
    enableFallback: yes
    distribution: balanced
}
address {
    pattern: */orange        # one token
    distribution: balanced
    priority: 9
}
address {
    pattern: ++/#            # everything below
    distribution: multicast
}
address {
    pattern: Mary/*/lamb/#
    ingressPhase: 0
    egressPhase: 1
}
""",
    "exchange": """
router {
    id: Router.A
}
listener {
    host: 127.0.0.1
    port: 0
}
exchange {
    name: my-exchange
    address: news.exchange
    matchMethod: amqp
    alternateAddress: news.unmatched
}
binding {
    name: weather
    exchangeName: my-exchange
    bindingKey: weather.#
    nextHopAddress: news.weather
}
binding {
    exchangeName: my-exchange
    bindingKey: *.sports
    nextHopAddress: news.sports
    nextHopPhase: 0
}
""",
    "old names": """
router {
    id: Router.A
    worker-threads: 1
    hello-interval: 2
    hello_max_age: 4
    debugDump: dump.txt
    saslConfigPath: /etc/sasl2
}
listener {
    host: 127.0.0.1
    port: 0
    protocolFamily: IPv4
    sasl-mechanisms: ANONYMOUS
    authenticate-peer: no
    failoverList: a.example:5672, b.example
}
log {
    module: DEFAULT
    enable: info+
    timestamp: true
    source: false
    output: stderr
}
""",
    "open properties, every form": """
listener {
    name: json
    host: 127.0.0.1
    port: 0
    openProperties: {
        "location": "cellar",
        # a comment
        "contact": {
            "name": "Operations"
        },
    }
}
listener {
    name: unquoted
    host: 127.0.0.1
    port: 0
    openProperties: {
        location: cellar
        contact: {
            name: Operations
        },
    }
}
""",
    "comments and nothing else to say": "# nothing\n\n   # here\nlistener {\n  host:127.0.0.1\n\tport : 0\n}\n\n\r\n",
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_file_starts_router(name: str, start: Start) -> None:
    router = start(text=EXAMPLES[name])
    assert all(port for port in router.ports.values())
    assert "(error)" not in router.log
    assert "(critical)" not in router.log


def test_old_names_are_replaced_with_warning(start: Start) -> None:
    log = start(text=EXAMPLES["old names"]).log
    for kind, old, new in [
        ("router", "helloInterval", "helloIntervalSeconds"),
        ("router", "debugDump", "debugDumpFile"),
        ("listener", "failoverList", "failoverUrls"),
        ("log", "timestamp", "includeTimestamp"),
        ("log", "output", "outputFile"),
    ]:
        text = f"Attribute '{old}' of entity '{kind}' has been deprecated. Use '{new}' instead"
        assert re.search(rf"AGENT \(warning\) {re.escape(text)}", log), text


def test_json_file_keeps_value_types(tmp_path: Path) -> None:
    """Values of a JSON file with comment lines keep their types."""
    directory = tmp_path / "json"
    directory.mkdir()
    router = RouterProcess(directory, [], text="placeholder")
    router.config = directory / "sluice.json"
    sections = [
        ["router", {"id": "JSON", "mode": "standalone", "worker_threads": 1}],
        ["listener", {"host": "127.0.0.1", "port": 0, "authenticatePeer": False}],
        ["address", {"prefix": "a", "distribution": "multicast", "waypoint": 1}],
    ]
    lines = json.dumps(sections, indent=1).splitlines()
    # start() counts listeners in the line syntax: the comment provides one, and shows that comments are skipped.
    router.config.write_text("\n".join(["# listener {", *lines]) + "\n")
    router.start()
    try:
        node = ManagementNode.connect(router.port)
        assert node.one("router")["id"] == "JSON"
        row = node.one("router.config.address")
        assert (row["prefix"], row["distribution"], row["waypoint"]) == ("a", "multicast", True)
        node.close()
    finally:
        router.stop()


def test_router_without_section_generates_id(start: Start) -> None:
    """A file with only a listener starts a standalone router with a generated id."""
    router = start(text="listener {\n    host: 127.0.0.1\n    port: 0\n}\n")
    match = router.wait_log(r"Container Name: (\S+)")
    assert re.fullmatch(r"Standalone_[a-zA-Z0-9+_]{15}", match[1])


def test_values_parse_as_in_1_19(start: Start) -> None:
    """Comments, `#` in patterns, repeated attributes, enum values by position, booleans in each spelling."""
    router = start(
        text=r"""
router {
    id: R
    metadata: first#comment
    metadata: a\tb c  # comment
    defaultDistribution: 1
}
listener {
    host: 127.0.0.1
    port: 0
    multiTenant: OFF
    maxFrameSize:  +16_384
}
address {
    pattern: a/#/b  # note
    distribution: 1
}
address {
    prefix: p/#x
    waypoint: Yes
}
address {
    prefix: /slash.dot./
}
"""
    )
    node = ManagementNode.connect(router.port)
    assert node.one("router")["metadata"] == "a\tb c"
    listeners = node.rows("listener")
    values = [(row["multiTenant"], row["maxFrameSize"], row["host"]) for row in listeners]
    assert values == [(False, 16384, "127.0.0.1")]
    rows = node.rows("router.config.address")
    assert [(row["prefix"], row["pattern"], row["distribution"], row["waypoint"]) for row in rows] == [
        (None, "a/#/b", "closest", False),
        ("p", None, "balanced", True),
        ("slash.dot", None, "balanced", False),
    ]
    assert node.read(identity="router/R").defaultDistribution == "closest"
    node.close()


#: Warning for each address section that the router skips.
LEFT_OUT = {
    "prefix: both\n    pattern: both/#": (
        "Cannot set both 'prefix' and 'pattern': ignoring configured address both, both/#"
    ),
    "distribution: closest": "Must set either 'prefix' or 'pattern' attribute: ignoring configured address",
}


def test_invalid_address_sections_are_skipped(start: Start) -> None:
    sections = "".join(f"address {{\n    {body}\n}}\n" for body in LEFT_OUT)
    plain = "listener {\n    host: 127.0.0.1\n    port: 0\n}\naddress {\n    prefix: kept\n}\n"
    router = start(text=plain + sections)
    for text in LEFT_OUT.values():
        assert re.search(rf"ROUTER \(warning\) {re.escape(text)}", router.log), router.log
    node = ManagementNode.connect(router.port)
    assert [row["prefix"] for row in node.rows("router.config.address")] == ["kept"]
    node.close()


def test_duplicate_prefix_is_dropped(start: Start) -> None:
    """Prefix `p` and pattern `p/#` are equal: the router drops the second and starts."""
    router = start(
        text="listener {\n    host: 127.0.0.1\n    port: 0\n}\n"
        "address {\n    prefix: p\n    name: one\n}\naddress {\n    pattern: p.#\n    name: two\n}\n"
    )
    node = ManagementNode.connect(router.port)
    assert [row["name"] for row in node.rows("router.config.address")] == ["one"]
    assert "Already exists" in router.log
    node.close()
