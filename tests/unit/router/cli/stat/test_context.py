"""Requests and heading of each display."""

import pytest

from sluice.router.cli.stat.main import main
from tests.unit.router.cli.node import ScriptedManagementNode, rows_node
from tests.unit.router.cli.stat.rows import ADDRESS, HEADING, ROUTER, Stat


def test_heading_and_requests_are_as_expected(
    stat: Stat, nodes: list[ScriptedManagementNode], capsys: pytest.CaptureFixture[str]
) -> None:
    """Time and router stand above the table. GET-MGMT-NODES is sent first. Correlation-ids are consecutive numbers as
    text."""
    node = rows_node({"router": [ROUTER], "connection": []})
    nodes.append(node)
    assert main(["--connections", "--bus", node.url]) == 0
    out = capsys.readouterr().out
    assert HEADING.match(out)
    assert out.endswith("\n\nConnections\n")
    assert [request.properties["operation"] for request in node.requests] == ["GET-MGMT-NODES", "QUERY", "QUERY"]
    assert [request.correlation for request in node.requests] == ["1", "2", "3"]
    for request in node.requests:
        assert request.address == "$management"
        assert (request.properties["type"], request.properties["name"]) == ("org.amqp.management", "self")
    assert (node.requests[1].properties["offset"], node.requests[1].properties["count"]) == (0, 500)


def test_query_is_paged_up_to_limit(stat: Stat, nodes: list[ScriptedManagementNode]) -> None:
    rows = [{**ADDRESS, "name": f"M0{number:04}"} for number in range(1200)]
    assert len(stat({"router.address": rows}, "-a").splitlines()) == 3 + 1200
    assert [request.properties["offset"] for request in nodes[0].requests[2:]] == [0, 500, 1000]
    assert len(stat({"router.address": rows}, "-a", "--limit", "7").splitlines()) == 3 + 7
    assert nodes[1].requests[2].properties["count"] == 7
    assert len(stat({"router.address": rows}, "-a", "--limit", "700").splitlines()) == 3 + 700
    assert [request.properties["count"] for request in nodes[2].requests[2:]] == [500, 200]
    assert len(stat({"router.address": rows}, "-a", "--limit", "0").splitlines()) == 3 + 1200
