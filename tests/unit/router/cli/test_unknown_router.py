"""Tool output for requests to a router outside the network, and for operations that the router lacks."""

from collections.abc import Iterator
from typing import Any

import pytest

from sluice.router.cli import explain, policy, reload, top, trace
from sluice.router.cli.manage import main as qdmanage
from sluice.router.cli.options import router_of
from sluice.router.cli.stat.main import main as qdstat
from tests.unit.router.cli.node import Answer, ReceivedRequest, ScriptedManagementNode

REASON = "router 'NOPE' is not in the network"
UNKNOWN = f"UnknownRouter: {REASON}\n"
NOWHERE = "_topo/0/NOPE/$management"
NO_EDGE = "_edge/NOPE/$management"
PATIENCE = ("-t", "1000")  # seconds; no test waits this long


class LimitedManagementAnswers:
    """Answers of a router that implements only the listed operations."""

    def __init__(self) -> None:
        self.explained: dict[str, Any] | None = None  # answer to EXPLAIN; None: not implemented
        self.nodes: list[str] = []

    def __call__(self, request: ReceivedRequest) -> list[Answer]:
        match request.properties["operation"]:
            case "EXPLAIN" if self.explained is not None:
                return [(200, "OK", self.explained)]
            case "GET-MGMT-NODES":
                return [(200, "OK", [f"amqp:/_topo/0/{each}/$management" for each in self.nodes])]
        return [(501, f"Operation '{request.properties['operation']}' not implemented", {})]


@pytest.fixture
def network() -> LimitedManagementAnswers:
    return LimitedManagementAnswers()


@pytest.fixture(params=[NOWHERE, NO_EDGE])
def node(request: pytest.FixtureRequest, network: LimitedManagementAnswers) -> Iterator[ScriptedManagementNode]:
    made = ScriptedManagementNode(network, mute=request.param)
    yield made
    made.stop()


@pytest.mark.parametrize("node", [NOWHERE], indirect=True)
@pytest.mark.parametrize("tool", [qdstat, qdmanage, top.main, reload.main])
def test_unknown_router_is_reported_at_once(
    node: ScriptedManagementNode, network: LimitedManagementAnswers, capsys: pytest.CaptureFixture[str], tool: Any
) -> None:
    network.explained = {"reachable": False, "further": []}
    words = ["query"] if tool is qdmanage else []
    assert tool([*words, "-b", node.url, "-r", "NOPE", *PATIENCE]) == 1
    shown = capsys.readouterr()
    if tool in (qdstat, qdmanage):
        assert shown == (UNKNOWN, "")
    else:
        assert shown.out == ""
        assert shown.err.splitlines()[0].endswith(f": {REASON}")
    assert [request.properties["operation"] for request in node.requests] == ["EXPLAIN"]
    assert node.requests[0].properties["address"] == NOWHERE


@pytest.mark.parametrize("node", [NO_EDGE], indirect=True)
def test_unknown_edge_router_is_reported_at_once(
    node: ScriptedManagementNode, network: LimitedManagementAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    network.explained = {"reachable": False, "further": []}
    assert qdstat(["-b", node.url, "--edge-router", "NOPE", *PATIENCE]) == 1
    assert capsys.readouterr().out == UNKNOWN


@pytest.mark.parametrize("node", [NOWHERE], indirect=True)
def test_router_of_1_19_is_queried_for_its_nodes(
    node: ScriptedManagementNode, network: LimitedManagementAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    network.nodes = ["A", "B"]
    assert qdstat(["-b", node.url, "-r", "NOPE", *PATIENCE]) == 1
    assert capsys.readouterr().out == UNKNOWN


@pytest.mark.parametrize("nodes", [[], ["A", "NOPE"]])
@pytest.mark.parametrize("node", [NOWHERE], indirect=True)
def test_router_that_may_exist_is_waited_for(
    node: ScriptedManagementNode,
    network: LimitedManagementAnswers,
    capsys: pytest.CaptureFixture[str],
    nodes: list[str],
) -> None:
    """An edge router of 1.19 knows no nodes."""
    network.nodes = nodes
    assert qdstat(["-b", node.url, "-r", "NOPE", "-t", "0.5"]) == 1
    assert capsys.readouterr().out.startswith("Timeout: Router 'NOPE' does not answer: Connection ")


@pytest.mark.parametrize("node", [NOWHERE], indirect=True)
def test_edge_router_refers_to_interior_router(
    node: ScriptedManagementNode, network: LimitedManagementAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    """The interior router's answer decides. Here it equals that of the edge router."""
    network.explained = {"reachable": False, "further": [{"router": "INT", "edge": False}]}
    assert qdstat(["-b", node.url, "-r", "NOPE", *PATIENCE]) == 1
    assert capsys.readouterr().out == UNKNOWN
    assert [request.address for request in node.requests] == ["$management", "_topo/0/INT/$management"]


@pytest.mark.parametrize(
    ("address", "router"),
    [(NOWHERE, "NOPE"), (NO_EDGE, "NOPE"), ("$management", None), ("_topo/0/A", None), ("_local/$management", None)],
)
def test_router_is_extracted_from_address(address: str, router: str | None) -> None:
    assert router_of(address) == router


@pytest.mark.parametrize("node", [NOWHERE], indirect=True)
@pytest.mark.parametrize(
    ("tool", "words", "what"),
    [
        (explain.main, ["x"], "explain addresses"),
        (policy.main, ["explain"], "explain their policy"),
        (trace.main, ["1"], "show the frames of a connection as they pass"),
    ],
)
def test_tools_report_router_without_their_operation(
    node: ScriptedManagementNode, capsys: pytest.CaptureFixture[str], tool: Any, words: list[str], what: str
) -> None:
    where = "--url" if tool is policy.main else "-b"
    assert tool([*words, where, node.url]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    reason = f"Only Sluice routers {what}: this router is not Sluice, or too old (status 501)"
    assert shown.err.splitlines()[0].endswith(f": {reason}")


@pytest.mark.parametrize("node", [NOWHERE], indirect=True)
def test_reload_reports_router_without_its_operation(
    node: ScriptedManagementNode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reload.main(["-b", node.url]) == 1
    assert "sluice reload: Only Sluice routers read their configuration file again: " in capsys.readouterr().err
