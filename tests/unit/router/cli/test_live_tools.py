"""`sluice reload` and `sluice trace`: requests, output and exit codes."""

from collections.abc import Iterator

import pytest

from sluice.router import json_codec
from sluice.router.cli import reload, trace
from tests.unit.router.cli.node import Answer, ReceivedRequest, ScriptedManagementNode

SELF = {"type": "org.amqp.management", "name": "self"}


class FixedAnswers:
    """Fixed answers to every request."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []

    def __call__(self, request: ReceivedRequest) -> list[Answer]:
        return self.answers


@pytest.fixture
def script() -> FixedAnswers:
    return FixedAnswers()


@pytest.fixture
def node(script: FixedAnswers) -> Iterator[ScriptedManagementNode]:
    made = ScriptedManagementNode(script)
    yield made
    made.stop()


@pytest.mark.parametrize(
    ("words", "properties"), [([], {}), (["--plan"], {"plan": True}), (["--undo"], {"undo": True})]
)
def test_reload_sends_request_and_prints_changes(
    node: ScriptedManagementNode,
    script: FixedAnswers,
    words: list[str],
    properties: dict[str, bool],
    capsys: pytest.CaptureFixture[str],
) -> None:
    script.answers = [(200, "OK", {"applied": True, "changes": [], "text": "address b: live\n  priority: 4 -> 5\n"})]
    assert reload.main([*words, "-b", node.url]) == 0
    assert capsys.readouterr() == ("address b: live\n  priority: 4 -> 5\n", "")
    assert node.requests[0].properties == {**SELF, "operation": "RELOAD", **properties}


def test_reload_prints_changes_as_json(
    node: ScriptedManagementNode, script: FixedAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = {"applied": False, "changes": [{"kind": "delete", "title": "address b"}], "text": "1 change"}
    script.answers = [(200, "OK", answer)]
    assert reload.main(["--plan", "--json", "-b", node.url]) == 0
    assert json_codec.decode(capsys.readouterr().out) == answer


def test_refused_reload_prints_error(
    node: ScriptedManagementNode, script: FixedAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    script.answers = [(400, "a.conf:3: Unknown attribute 'x'", {})]
    assert reload.main(["-b", node.url]) == 1
    assert capsys.readouterr() == ("", "a.conf:3: Unknown attribute 'x'\n")


def test_reload_options_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        reload.main(["--plan", "--undo"], "sluice reload")
    assert ended.value.code == 2
    assert "sluice reload: error: argument --undo: not allowed with argument --plan" in capsys.readouterr().err


FRAMES = [(200, "OK", [[1795221139.5, f"[C7]: -> frame {number}"]]) for number in range(3)]


@pytest.mark.parametrize("connection", ["7", "C7", "[C7]"])
def test_trace_prints_frames_of_connection(
    node: ScriptedManagementNode, script: FixedAnswers, connection: str, capsys: pytest.CaptureFixture[str]
) -> None:
    script.answers = [(200, "OK", {}), *FRAMES, (200, "OK", [])]
    assert trace.main([connection, "-b", node.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" [")[2] for line in lines] == [f"C7]: -> frame {number}" for number in range(3)]
    assert lines[0].split()[1].endswith(":19.500000")
    assert node.requests[0].properties == {**SELF, "operation": "TRACE", "connection": "7"}


def test_trace_ends_after_count(
    node: ScriptedManagementNode, script: FixedAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    script.answers = [(200, "OK", {}), *FRAMES]
    assert trace.main(["7", "--count", "2", "-b", node.url]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert node.requests[0].properties["lines"] == 2


def test_trace_prints_json_lines(
    node: ScriptedManagementNode, script: FixedAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    script.answers = [(200, "OK", {}), *FRAMES, (200, "OK", [])]
    assert trace.main(["7", "--json", "-b", node.url]) == 0
    lines = [json_codec.decode(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["text"] for line in lines] == [f"[C7]: -> frame {number}" for number in range(3)]


def test_trace_of_unknown_connection_is_error(
    node: ScriptedManagementNode, script: FixedAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    script.answers = [(404, "Not Found", {})]
    assert trace.main(["7", "-b", node.url]) == 1
    assert capsys.readouterr() == ("", "sluice trace: Not Found (status 404)\n")


def _span(kind: str, router: str, began: int, **fields: object) -> dict[str, object]:
    return {
        "router": router, "trace_id": "ab" * 16, "span_id": "cd" * 8, "parent_id": None, "kind": kind, "worker": 0,
        "from_worker": None, "began": began, "sent": began, "ended": began + 2_000_000, "octets": 9, "link": 3,
        "connection": 7, "address": "orders", "outcome": "accepted", "queued": False, **fields,
    }  # fmt: skip


SPANS = [
    _span("send", "A", 1_795_221_139_001_000_000, worker=2, from_worker=0, queued=True, sent=1_795_221_139_001_500_000),
    _span("receive", "A", 1_795_221_139_000_000_000, ended=1_795_221_139_004_000_000),
]


def test_trace_of_address_prints_spans_in_order(
    node: ScriptedManagementNode, script: FixedAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    script.answers = [(200, "OK", {}), (200, "OK", SPANS), (200, "OK", [])]
    assert trace.main(["orders", "--alone", "--for", "5m", "--ratio", "0.5", "-b", node.url]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.endswith(f" orders: 4.000 ms, accepted, 9 octets, trace {'ab' * 16}")
    assert lines == [
        "      0.000 ms  received by A [C7][L3] worker 0: accepted after 4.000 ms",
        "      1.000 ms  sent by     A [C7][L3] worker 2, from worker 0, waited 0.500 ms: accepted after 2.000 ms",
    ]
    asked = {"operation": "TRACE", "address": "orders", "seconds": 300, "ratio": 0.5}
    assert node.requests[0].properties == {**SELF, **asked}


def test_trace_of_address_prints_json_spans(
    node: ScriptedManagementNode, script: FixedAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    script.answers = [(200, "OK", {}), (200, "OK", SPANS), (200, "OK", [])]
    assert trace.main(["7", "--address", "--alone", "--json", "--count", "2", "-b", node.url]) == 0
    assert [json_codec.decode(line) for line in capsys.readouterr().out.splitlines()] == SPANS
    assert node.requests[0].properties["lines"] == 2


def test_trace_for_unreadable_time_is_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        trace.main(["orders", "--for", "soon"], "sluice trace")
    assert ended.value.code == 2
    assert "'soon' is no duration: write 60s, 5m or 1h" in capsys.readouterr().err
