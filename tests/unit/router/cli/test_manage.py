"""`sluice manage`: the request for each command line, and the output for each answer."""

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.router.cli.manage import long_type, main
from sluice.router.cli.tool import DEBUG_VARIABLE
from tests.unit.router.cli.node import PREFIX, Answer, ReceivedRequest, ScriptedManagementNode

ROOT = Path(__file__).parents[4]

Manage = Callable[..., str]


class AnswersByOperation:
    """Answers by operation; the default answer is empty."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}

    def __call__(self, request: ReceivedRequest) -> list[Answer]:
        operation = request.properties["operation"]
        status = {"CREATE": (201, "Created"), "DELETE": (204, "No Content")}.get(operation, (200, "OK"))
        return [self.answers.get(operation, (*status, {}))]


@pytest.fixture
def script() -> AnswersByOperation:
    return AnswersByOperation()


@pytest.fixture
def node(script: AnswersByOperation) -> Iterator[ScriptedManagementNode]:
    made = ScriptedManagementNode(script)
    yield made
    made.stop()


@pytest.fixture
def manage(node: ScriptedManagementNode, capsys: pytest.CaptureFixture[str]) -> Manage:
    """Return a function that runs the tool and returns its output. code: expected exit status."""

    def run(*words: str, code: int = 0) -> str:
        assert main([*words, "-b", node.url]) == code
        return capsys.readouterr().out

    return run


def sent(node: ScriptedManagementNode) -> tuple[dict[str, Any], Any]:
    """Return properties and body of the only request."""
    assert len(node.requests) == 1
    return node.requests[0].properties, node.requests[0].body


SELF = {"type": "org.amqp.management", "name": "self"}


def test_query_sends_columns_and_prints_rows(
    manage: Manage, node: ScriptedManagementNode, script: AnswersByOperation
) -> None:
    rows = [["a", None, 1], [None, None, None]]
    script.answers["QUERY"] = (200, "OK", {"attributeNames": ["name", "prefix", "priority"], "results": rows})
    out = manage("query", "--type=listener", "name", "prefix", "priority")
    assert out == '[\n  {\n    "name": "a",\n    "priority": 1\n  },\n  {}\n]\n'
    properties = {"operation": "QUERY", "entityType": PREFIX + "listener", "offset": 0, "count": 500}
    assert sent(node) == (SELF | properties, {"attributeNames": ["name", "prefix", "priority"]})


def test_query_without_type_covers_all_types(
    manage: Manage, node: ScriptedManagementNode, script: AnswersByOperation
) -> None:
    script.answers["QUERY"] = (200, "OK", {"attributeNames": [], "results": []})
    assert manage("QuErY", "--indent=-1") == "[]\n"
    assert sent(node) == (SELF | {"operation": "QUERY", "offset": 0, "count": 500}, {"attributeNames": []})


@pytest.mark.parametrize(
    ("given", "expanded"),
    [
        ("link", "router.link"),
        ("node", "router.node"),
        ("linkRoute", "router.config.linkRoute"),
        ("address", "router.config.address"),
        ("autoLink", "router.config.autoLink"),
        ("listener", "listener"),
        ("exchange", "exchange"),
        ("connection", "connection"),
    ],
)
def test_short_types_are_expanded(manage: Manage, node: ScriptedManagementNode, given: str, expanded: str) -> None:
    manage("read", "--type", given, "--identity", "1")
    assert sent(node)[0]["type"] == PREFIX + expanded


@pytest.mark.parametrize("operation", ["create", "update"])
@pytest.mark.parametrize("short", ["link", "node", "linkRoute", "address", "autoLink", "listener"])
def test_short_types_from_stdin_are_expanded(
    manage: Manage, node: ScriptedManagementNode, monkeypatch: pytest.MonkeyPatch, operation: str, short: str
) -> None:
    given = [{"type": short, "name": "a"}, {"type": PREFIX + "log", "name": "b"}, {"name": "c"}, {"type": 5}]
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(given)))
    manage(operation, "--stdin")
    expected = [long_type(short), PREFIX + "log", None, 5]
    assert [request.properties.get("type") for request in node.requests] == expected
    assert [request.body.get("type") for request in node.requests] == expected


def test_types_with_dot_are_sent_unchanged(manage: Manage, node: ScriptedManagementNode) -> None:
    manage("read", "--type", "router.address", "--identity", "1")
    assert sent(node)[0]["type"] == "router.address"


def test_create_converts_and_validates_attributes(
    manage: Manage, node: ScriptedManagementNode, script: AnswersByOperation
) -> None:
    script.answers["CREATE"] = (201, "Created", {"name": "n", "port": "77"})
    out = manage("create", "--type=address", "prefix=2", "--name", "n", "priority=3", "waypoint=true", "x=", code=1)
    assert out == f"ValidationError: Unknown attribute 'x' for '{PREFIX}router.config.address'\n"
    assert node.requests == []
    out = manage("--name", "n", "create", "prefix=2", "priority=3", "waypoint=true", "--type=address", "--indent", "1")
    assert out == '{\n "name": "n",\n "port": "77"\n}\n'
    properties = {"operation": "CREATE", "type": PREFIX + "router.config.address", "name": "n"}
    assert sent(node) == (properties, {"prefix": "2", "priority": 3, "waypoint": True})


def test_create_accepts_target_among_arguments(manage: Manage, node: ScriptedManagementNode) -> None:
    manage("create", "type=linkRoute", "name=n", "prefix=a=b", "phase=1")
    long_type = PREFIX + "router.config.linkRoute"
    assert sent(node) == (
        {"operation": "CREATE", "type": long_type, "name": "n"},
        {"type": long_type, "name": "n", "prefix": "a=b", "phase": "1"},
    )


def test_invalid_integer_is_refused(manage: Manage, node: ScriptedManagementNode) -> None:
    out = manage("create", "--type=address", "priority=x", code=1)
    assert out == "ValueError: invalid literal for int() with base 10: 'x'\n"
    assert node.requests == []


def test_unexpected_success_status_is_error(manage: Manage, script: AnswersByOperation) -> None:
    script.answers["CREATE"] = (200, "OK", {})
    out = manage("create", "--type=listener", code=1)
    assert out == "ValueError: Response was 200(OK) but expected 201(Created): OK\n"


def test_update_sends_converted_attributes(
    manage: Manage, node: ScriptedManagementNode, script: AnswersByOperation
) -> None:
    script.answers["UPDATE"] = (200, "OK", {"enable": "info+"})
    words = [
        "update",
        "--type=log",
        "--name=n",
        "identity=log/DEFAULT",
        "includeSource=yes",
        "outputFile",
        "enable=info+",
    ]
    assert json.loads(manage(*words)) == {"enable": "info+"}
    properties = {"operation": "UPDATE", "type": PREFIX + "log", "identity": "log/DEFAULT"}
    body = {"identity": "log/DEFAULT", "includeSource": True, "outputFile": None, "enable": "info+"}
    assert sent(node) == (properties, body)


@pytest.mark.parametrize(("text", "value"), [("on", True), ("off", False), ("no", False), ("true", True), ("1", "1")])
def test_update_converts_booleans(manage: Manage, node: ScriptedManagementNode, text: str, value: Any) -> None:
    manage("update", "--type=connection", "identity=3", f"enableProtocolTrace={text}")
    assert sent(node)[1]["enableProtocolTrace"] == value


def test_delete_sends_type_and_name(manage: Manage, node: ScriptedManagementNode) -> None:
    assert manage("delete", "--type=listener", "--name=n") == ""
    assert sent(node)[0] == {"operation": "DELETE", "type": PREFIX + "listener", "name": "n"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["get-types"], {"operation": "GET-TYPES"}),
        (["Get-Attributes", "listener"], {"operation": "GET-ATTRIBUTES", "entityType": "listener"}),
        (["GET-OPERATIONS", "--type=listener"], {"operation": "GET-OPERATIONS", "entityType": PREFIX + "listener"}),
        (["get-annotations"], {"operation": "GET-ANNOTATIONS"}),
        (["get-mgmt-nodes"], {"operation": "GET-MGMT-NODES"}),
    ],
)
def test_introspection_operations_are_sent(
    manage: Manage, node: ScriptedManagementNode, words: list[str], expected: dict[str, str]
) -> None:
    assert manage(*words) == "{}\n"
    assert sent(node)[0] == SELF | expected


def test_custom_operations_are_sent_as_typed(
    manage: Manage, node: ScriptedManagementNode, script: AnswersByOperation
) -> None:
    script.answers["get-log"] = (200, "OK", [["A", "info", "text"]])
    assert manage("get-log", "limit=5", "--indent=-1") == '[["A", "info", "text"]]\n'
    assert sent(node)[0] == {"operation": "get-log", "limit": "5"}


def test_custom_operations_take_all_options(
    manage: Manage, node: ScriptedManagementNode, script: AnswersByOperation
) -> None:
    script.answers["callme"] = (200, "OK", "as it is\nsecond line")
    words = ["--type=dummy", "--name=n", "--identity=i", "--properties", '{"p": 1}', "--body", '{"b": [1]}', "a"]
    assert manage("callme", *words) == "as it is\nsecond line\n"
    expected = {"operation": "callme", "type": PREFIX + "dummy", "name": "n", "identity": "i", "p": 1, "a": None}
    assert sent(node) == (expected, {"b": [1]})


def test_empty_answer_prints_nothing(manage: Manage) -> None:
    assert manage("profile", "start") == ""


def test_body_option_is_parsed_as_json(manage: Manage, node: ScriptedManagementNode) -> None:
    manage("x", "--body", "plain text")
    assert node.requests[0].body == "plain text"
    manage("x", "--body", "17")
    assert node.requests[1].body == 17
    text = '{"a": }'
    assert manage("x", "--body", text, code=1).startswith(f"ValueError: Invalid JSON '{text}': ")
    assert manage("x", "--properties", "[]", code=1) == "ValueError: Invalid JSON '[]': not a map\n"
    assert manage("x", "--body", str(2**64), code=1).startswith("OverflowError")  # not rounded to a double
    assert len(node.requests) == 2


def test_stdin_gives_one_or_more_requests(
    manage: Manage, node: ScriptedManagementNode, script: AnswersByOperation, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.answers["CREATE"] = (201, "Created", {"a": 1})

    def given(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))

    given('{"type": "listener", "name": "n", "port": 5}')
    assert json.loads(manage("create", "--stdin")) == {"a": 1}
    assert sent(node) == (
        {"operation": "CREATE", "type": PREFIX + "listener", "name": "n"},
        {"type": PREFIX + "listener", "name": "n", "port": 5},
    )
    given('[{"name": "a"}, {"name": "b"}]')
    assert json.loads(manage("create", "--stdin", "--type", "listener")) == [{"a": 1}, {"a": 1}]
    assert [request.properties["name"] for request in node.requests[1:]] == ["a", "b"]
    for text in ("5", "[5]", '"x"'):
        given(text)
        assert manage("create", "--stdin", code=1) == "ValueError: stdin is not a JSON map or list\n"
    assert len(node.requests) == 3


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (400, "BadRequestStatus"),
        (401, "UnauthorizedStatus"),
        (403, "ForbiddenStatus"),
        (404, "NotFoundStatus"),
        (500, "InternalServerErrorStatus"),
        (501, "NotImplementedStatus"),
    ],
)
def test_error_status_is_named(manage: Manage, script: AnswersByOperation, status: int, name: str) -> None:
    script.answers["READ"] = (status, "No entity with name=x", {})
    assert manage("read", "--name=x", code=1) == f"{name}: No entity with name=x\n"


def test_debug_variable_shows_exceptions(
    node: ScriptedManagementNode, script: AnswersByOperation, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.answers["READ"] = (404, "Not Found", {})
    monkeypatch.setenv(DEBUG_VARIABLE, "1")
    with pytest.raises(Exception, match="^Not Found$"):
        main(["read", "--name=x", "-b", node.url])


def test_connection_refused_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        assert main(["query", "-b", f"user:secret@127.0.0.1:{port}"]) == 1
    assert capsys.readouterr().out == (
        f"ConnectionException: Connection amqp://127.0.0.1:{port} disconnected: "
        "Condition('proton.pythonio', 'Connection refused to all addresses')\n"
    )


def test_timeout_names_router_and_wait(capsys: pytest.CaptureFixture[str]) -> None:
    silent = ScriptedManagementNode(lambda _: [], mute="_topo/0/NOPE/$management")
    try:
        assert main(["query", "-b", silent.url, "-r", "NOPE", "-t", "0.3"]) == 1
        out = capsys.readouterr().out
        connection = rf"Connection amqp://127\.0\.0\.1:{silent.port}"
        sender = r"[-0-9a-f]+-_topo/0/NOPE/\$management"
        text = rf"Timeout: Router 'NOPE' does not answer: {connection} timed out: Sending on sender {sender}\n"
        assert re.fullmatch(text, out)
        assert main(["query", "-b", silent.url, "-t", "0.3"]) == 1
        assert capsys.readouterr().out.endswith(" timed out: Waiting for response\n")
    finally:
        silent.stop()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "No operation specified"),
        (["--type", "listener"], "No operation specified"),
        (["read", "--name=n", "x"], "Unexpected arguments: x"),
        (["delete", "x", "y=1"], "Unexpected arguments: x y=1"),
        (["get-types", "a", "b"], "Unexpected arguments: b"),
        (["get-mgmt-nodes", "a"], "Unexpected arguments: a"),
        (["create", "--stdin", "a=b"], "Unexpected arguments: a=b"),
        (["query", "--nonsense"], "Unexpected arguments: --nonsense"),
        (["query", "--indent", "x"], "argument --indent: invalid int value: 'x'"),
        (["query", "--i", "x"], "ambiguous option: --i could match --identity, --indent"),
    ],
)
def test_usage_error_is_reported(words: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert err.startswith("usage: qdmanage ")
    assert err.endswith(f"qdmanage: error: {error}\n")


@pytest.mark.starts
def test_interrupt_ends_with_empty_line(node: ScriptedManagementNode) -> None:
    """Ctrl-C while the tool waits prints an empty line and gives exit code 1."""
    quiet = ScriptedManagementNode(lambda _: [])
    # A shell that starts the tests in the background may have made them ignore the signal.
    restore_signal = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{restore_signal}; import sys; from sluice.router.cli.manage import long_type, main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "query", "-b", quiet.url, "-t", "60"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        quiet.wait_request()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
        assert (process.returncode, out) == (1, "\n")
    finally:
        process.kill()
        quiet.stop()
