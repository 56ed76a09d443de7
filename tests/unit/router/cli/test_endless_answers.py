"""Tools at a management node whose answers have no end, or are of another kind: bounded memory, one line of error."""

from collections.abc import Callable, Iterator

import pytest

from sluice.router.cli import client, connection, trace_address
from sluice.router.cli.completion.complete import named_target
from sluice.router.cli.main import main as sluice
from sluice.router.cli.manage import main as qdmanage
from tests.unit.router.cli.node import Answer, ReceivedRequest, ScriptedManagementNode
from tests.unit.router.cli.test_hostile_texts import _SPAN

OTHERS = 5

Start = Callable[[Callable[[ReceivedRequest], list[Answer]]], ScriptedManagementNode]


@pytest.fixture
def start() -> Iterator[Start]:
    nodes: list[ScriptedManagementNode] = []

    def make(answer: Callable[[ReceivedRequest], list[Answer]]) -> ScriptedManagementNode:
        nodes.append(ScriptedManagementNode(answer))
        return nodes[-1]

    yield make
    for node in nodes:
        node.stop()


def traced(*answers: Answer, others: int = 0) -> Callable[[ReceivedRequest], list[Answer]]:
    """Return the answers of a router that traces, in a network with this number of other routers."""

    def answer(request: ReceivedRequest) -> list[Answer]:
        if request.properties["operation"] == "TRACE":
            return list(answers)
        routers = ["R", *(f"R{number}" for number in range(others))]
        return [(200, "OK", [f"amqp:/_topo/0/{router}/$management" for router in routers])]

    return answer


def test_pages_without_end_are_an_error(
    start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(client, "ROWS_MOST", 3 * client.PAGE)

    def answer(request: ReceivedRequest) -> list[Answer]:
        if request.properties["operation"] != "QUERY":
            return [(200, "OK", [])]
        columns = request.body["attributeNames"]
        return [(200, "OK", {"attributeNames": columns, "results": [[1] * len(columns)] * request.properties["count"]})]

    node = start(answer)
    assert qdmanage(["query", "--type=router.address", "name", "-b", node.url]) == 1
    assert capsys.readouterr().out == "ManagementError: the router's answers have no end: more than 1500 rows\n"
    with client.ManagementClient(named_target(["-b", node.url])) as connected:
        assert len(connected.rows("router.address", ["name"], 600)) == 600, "the limit of the user ends it"


def test_answer_that_is_too_long_is_an_error(
    start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(connection, "ANSWER_MOST", 100_000)
    node = start(lambda request: [(200, "OK", "x" * int(request.properties["size"]))])
    assert qdmanage(["text", "--properties", '{"size": 90000}', "-b", node.url]) == 0
    assert "xxx" in capsys.readouterr().out
    assert qdmanage(["text", "--properties", '{"size": 200000}', "-b", node.url]) == 1
    shown = capsys.readouterr().out
    assert "a message has more than 100000 octets" in shown
    assert shown.count("\n") == 1


def test_trace_of_too_many_routers_is_refused(
    start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trace_address, "_ROUTERS_MOST", OTHERS)
    node = start(traced((200, "OK", {}), (200, "OK", []), others=OTHERS))
    assert sluice(["trace", "x", "-b", node.url]) == 1
    assert f"the network has {OTHERS} other routers" in capsys.readouterr().err
    assert sluice(["trace", "x", "--alone", "-b", node.url]) == 0


def test_trace_with_spans_without_end_is_shown_in_parts(
    start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trace_address, "_SPANS_MOST", 10)
    node = start(traced((200, "OK", {}), *[(200, "OK", [_SPAN] * 5)] * 5, (200, "OK", [])))
    assert sluice(["trace", "x", "-b", node.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if not line.startswith(" ")]) == 3
    assert len(lines) == 3 + 25


# Status 204: a ValueError.
@pytest.mark.parametrize("answer", [(204, "none", {}), (400, "no", {})])
def test_answer_that_trace_cannot_use_is_one_line(
    start: Start, capsys: pytest.CaptureFixture[str], answer: Answer
) -> None:
    node = start(traced(answer))
    assert sluice(["trace", "x", "-b", node.url]) == 1
    shown = capsys.readouterr()
    assert "Traceback" not in shown.out + shown.err
    assert f": {answer[1]}" in shown.err
