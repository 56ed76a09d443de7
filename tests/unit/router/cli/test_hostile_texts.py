"""Output of all tools for a management node whose texts contain terminal control sequences: it must be harmless.

Each new tool must be added to CALLS.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.router.capture.capture_file import CapturedMessage, CaptureHeader, CaptureTrailer, CaptureWriter
from sluice.router.cli.main import TOOLS
from sluice.router.cli.main import main as sluice
from sluice.router.cli.manage import main as qdmanage
from sluice.router.cli.stat.main import DISPLAYS
from sluice.router.cli.stat.main import main as qdstat
from sluice.router.config.schema import SCHEMA
from tests.unit.router.cli.node import PREFIX, Answer, ReceivedRequest, ScriptedManagementNode

HOSTILE = "M0\x1b]0;owned\x07\x1b[2J\x7f\x9b31m\u202e\u2066\u200b\r\n\t[/x][red]"
SHOWN = "\\x1b]0;owned"
_NUMBERS = ("integer", "ulong", "uint", "int", "long")
_SHARE = ("connections", "links", "addresses", "messages", "octets", "bufferedOctets", "creditHeldBack")
# Values whose inner structure the displays rely on.
_SPECIAL: dict[str, Any] = {
    "perUserState": {HOSTILE: [HOSTILE]},
    "groups": {HOSTILE: {"users": HOSTILE, "sources": HOSTILE}},
    "groupState": {HOSTILE: dict.fromkeys(_SHARE, 1)},
    "role": "edge", "isAuthenticated": True, "isEncrypted": True, "http": True, "websockets": True,
    "httpRootDir": None, "port": 1, "identity": "identity/" + HOSTILE,
}  # fmt: skip
_LINK: dict[str, Any] = {
    **dict.fromkeys(("identity", "connection", "worker", "container", "host", "user", "name"), HOSTILE),
    **dict.fromkeys(("credit", "capacity", "undelivered", "unsettled", "deliveries"), 1),
    "withoutCreditSeconds": 1.0,
}
_RECORD = {
    "key": HOSTILE, "phase": "0", "treatment": HOSTILE, "inProcess": True, "remoteCount": 1, "fallback": HOSTILE,
    "remotes": [{"router": HOSTILE, "nextHop": HOSTILE, "cost": 1, "unsettled": 1}], "fallbackOf": HOSTILE,
    "exchange": {"name": HOSTILE, "match": HOSTILE, "alternate": HOSTILE, "bindingCount": 1,
                 "bindings": [{"key": HOSTILE, "nextHop": HOSTILE, "name": HOSTILE}]},
    "consumers": [_LINK], "producers": [_LINK], "consumerCount": 1, "producerCount": 1, "consumersWithCredit": 1,
    **dict.fromkeys(("deliveriesIngress", "deliveriesEgress", "deliveriesToContainer", "deliveriesFromContainer",
                     "deliveriesRedirectedToFallback"), 1),
}  # fmt: skip
_EXPLAINED = {
    "address": HOSTILE, "class": HOSTILE, "router": HOSTILE, "verdict": HOSTILE, "reachable": True,
    "findings": [HOSTILE], "records": [_RECORD], "further": [{"router": HOSTILE + "2", "edge": True}],
    "setting": {"pattern": HOSTILE, "entity": HOSTILE, "priority": None, "distribution": HOSTILE, "ingressPhase": 0,
                "egressPhase": 0, "fallback": True, "presettledOverflow": HOSTILE},
}  # fmt: skip
_SPAN: dict[str, Any] = {
    **dict.fromkeys(("router", "trace_id", "span_id", "address", "outcome"), HOSTILE),
    **dict.fromkeys(("worker", "from_worker", "began", "sent", "ended", "octets", "link", "connection"), 1),
    "parent_id": None, "kind": "send", "queued": True,
}  # fmt: skip
_WORKER = dict.fromkeys(
    ("worker", "pid", "generation", "cpuSeconds", "residentOctets", "connections", "links", "deliveriesIngress",
     "deliveriesEgress", "wakes", "bufferedOctets"), 1
) | {"state": HOSTILE, "rings": [], "latencyHistogram": [], "dropped": {}}  # fmt: skip
_BODIES: dict[str, Any] = {
    "GET-MGMT-NODES": [],
    "GET-CONFIGURATION": {"path": HOSTILE, "text": HOSTILE, "changes": [HOSTILE]},
    "GET-LOG": [[HOSTILE, HOSTILE, f"{HOSTILE}\n    | {HOSTILE}", None, None, 0]],
    "GET-SCHEMA": {"entityTypes": {"vhostUserGroupSettings": {"attributes": {}}}},
    "GET-WORKERS": [_WORKER],
    "GET-USAGE": [
        {
            "vhost": HOSTILE,
            **dict.fromkeys(
                ("connections", "linksIn", "linksOut", "deliveriesIn", "deliveriesOut", "octetsIn", "octetsOut"), 1
            ),
        }
    ],
    "GET-HISTORY": {
        "figures": {"deliveriesIngress": [1.0, None]},
        "events": [{"time": 0.0, "kind": HOSTILE, "text": HOSTILE, "count": 2, "last": 0.0}],
    },
    "EXPLAIN": {
        **_EXPLAINED,
        "ways": [[HOSTILE, HOSTILE + "2"]],
        "routers": [_EXPLAINED, {"router": HOSTILE + "2", "error": HOSTILE}],
    },
    "EXPLAIN-POLICY": [{"allowed": True, "what": HOSTILE, "why": HOSTILE, "file": HOSTILE, "line": None}],
    "RELOAD": {"text": HOSTILE},
    "DRAIN": {"router": HOSTILE, "connections": 1, "perSecond": 1, "seconds": 1},
    "TEXT": HOSTILE,
    "VALUE": {HOSTILE: HOSTILE},
}


def harmless(text: str) -> bool:
    """Return True if the text has no control characters except newlines and tabs."""
    return text.replace("\n", "").replace("\t", "").isprintable()


def _value(name: str, kind: str) -> Any:
    if name in _SPECIAL:
        return _SPECIAL[name]
    if kind in _NUMBERS:
        return 1
    if kind == "boolean":
        return True
    if kind in ("list of ulong", "list of long"):
        return [1]
    return [HOSTILE] if "list" in kind else {HOSTILE: HOSTILE} if "map" in kind else HOSTILE


def _row(short_type: str) -> dict[str, Any]:
    kind = SCHEMA.types[short_type]
    columns = {column.name: column.amqp_type for column in kind.core_columns or ()}
    row = {name: _value(name, each.type) for name, each in kind.attributes.items()}
    row |= {name: _value(name, amqp_type) for name, amqp_type in columns.items()}
    row["name"] = HOSTILE
    if short_type == "router.node":
        row["lastTopoChange"] = 1
    return row


def hostile(request: ReceivedRequest) -> list[Answer]:
    """Return the answers to a request."""
    operation = request.properties["operation"]
    if operation == "TRACE" and "address" in request.properties:
        return [(200, "OK", {}), (200, "OK", [_SPAN]), (200, "OK", [])]
    if operation == "TRACE":
        return [(200, "OK", {}), (200, "OK", [[1.0, HOSTILE]]), (200, "OK", [])]
    if operation in _BODIES:
        return [(200, "OK", _BODIES[operation])]
    if operation != "QUERY":
        return [(400, HOSTILE, {})]
    row = _row(request.properties.get("entityType", "router").removeprefix(PREFIX))
    names = request.body["attributeNames"] or list(row)
    rows = [] if request.properties["offset"] else [[row.get(name) for name in names]]
    return [(200, "OK", {"attributeNames": names, "results": rows})]


@pytest.fixture
def node() -> Iterator[ScriptedManagementNode]:
    made = ScriptedManagementNode(hostile)
    yield made
    made.stop()


_DISPLAYS = [name for _, name, _, _ in DISPLAYS] + ["--all-entities"]
# Calls by tool.
CALLS: dict[str, list[list[str]]] = {
    "stat": [[name, *more] for name in _DISPLAYS for more in ([], ["--csv"], ["-v"])],
    "manage": [["query", "--type=router.address"], ["read", "--name=x"], ["TEXT"], ["VALUE"]],
    "top": [["--once", "-i", "0.01"]],
    "console": [["--print"], ["--json"]],
    "explain": [["x"], ["x", "--json"], ["x", "--alone"]],
    "capture": [["--address", "x", "--out", "FOLDER/capture"]],
    "trace": [["1"], ["x"], ["x", "--json"]],
    "policy": [["explain"], ["explain", "--json"]],
    "reload": [[]],
    "drain": [[], ["--json"]],
    "config": [["show"], ["diff"], ["diff", "--json"]],
}
# Passwd and context are tested elsewhere, replay below. Hello prints no text of the router but errors of its client.
_WITHOUT_MANAGEMENT = {"completion", "context", "hello", "passwd", "pipeline", "replay"}
_JSON = ("query", "VALUE", "--json")


def test_calls_cover_all_tools() -> None:
    assert {*CALLS, *_WITHOUT_MANAGEMENT} == set(TOOLS)


@pytest.mark.parametrize(("tool", "words"), [(tool, words) for tool, calls in CALLS.items() for words in calls])
def test_texts_of_router_are_printed_harmlessly(
    node: ScriptedManagementNode, capsys: pytest.CaptureFixture[str], tmp_path: Path, tool: str, words: list[str]
) -> None:
    words = [word.replace("FOLDER", str(tmp_path)) for word in words]
    where = ["--url", node.url] if tool == "policy" else ["-b", node.url]
    if tool == "manage":
        qdmanage([*words, *where])
    elif tool == "stat":
        assert qdstat([*words, *where]) == 0, capsys.readouterr()
    else:
        sluice([tool, *words, *where])
    shown = capsys.readouterr()
    text = shown.out + shown.err
    assert harmless(text)
    if any(word in words for word in _JSON):
        assert json.loads(shown.out)
        assert "\\u001b]0;owned" in shown.out
    else:
        assert SHOWN in text


def test_texts_of_files_are_printed_harmlessly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "router.json"
    path.write_text(json.dumps([["listener", {"name": HOSTILE, "host": HOSTILE, HOSTILE: HOSTILE}]]))
    assert sluice(["check", str(path)]) == 1
    assert sluice(["policy", "explain", "-c", str(path)]) == 1
    assert sluice(["passwd", str(tmp_path / "users\x1b]0;owned"), "--delete", "u\x1b]0;owned"]) == 1
    shown = capsys.readouterr()
    text = shown.out + shown.err
    assert harmless(text)
    assert SHOWN in text


def test_texts_of_captures_are_printed_harmlessly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "capture"
    header = CaptureHeader(began=1, router=HOSTILE, patterns=[HOSTILE], payload=True, version=HOSTILE)
    writer = CaptureWriter(path, header)
    writer.write(CapturedMessage(1, HOSTILE, b"\x00\x53\x77\x40"))
    writer.finish(CaptureTrailer(ended=1, messages=1, reason=HOSTILE, selected=2, missed={HOSTILE: 1}))
    assert sluice(["replay", str(path), "--info"]) == 0
    shown = capsys.readouterr().out
    assert harmless(shown)
    assert shown.count("\n") == 4
    assert SHOWN in shown
    assert sluice(["replay", str(path), "--info", "--json"]) == 0
    shown = capsys.readouterr().out
    assert harmless(shown)
    assert json.loads(shown)["missed"] == {HOSTILE: 1}


def test_cell_with_newline_stays_in_its_row(node: ScriptedManagementNode, capsys: pytest.CaptureFixture[str]) -> None:
    assert qdstat(["-a", "-b", node.url]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 7  # heading of three lines, title, heads, rule, one row


def test_error_texts_are_printed_harmlessly(node: ScriptedManagementNode, capsys: pytest.CaptureFixture[str]) -> None:
    assert qdmanage(["read", "--name=x", "-b", node.url]) == 1
    out = capsys.readouterr().out
    assert out.startswith("BadRequestStatus: M0\\x1b]0;owned")
    assert out.count("\n") == 1
