"""Options of the tool."""

import re
from typing import Any

import pytest

from sluice.router import json_codec
from sluice.router.cli.stat.main import main
from tests.unit.router.cli.node import ScriptedManagementNode, rows_node
from tests.unit.router.cli.stat.rows import ADDRESS, CONNECTION, ROUTER, Stat


# brokers-and-edge.md ED-24.
def test_option_all_routers_shows_each_router(stat: Stat, nodes: list[ScriptedManagementNode]) -> None:
    addresses = ["amqp:/_topo/0/QDR.A/$management", "amqp:/_topo/0/QDR.B/$management"]
    out = stat({"connection": []}, "--all-routers", "-c", calls={"GET-MGMT-NODES": addresses})
    assert re.fullmatch(r"[-\d]+ [.:\d]+ UTC\nRouter  QDR\.A\n\nConnections\n\nRouter  QDR\.B\n\nConnections\n\n", out)
    asked = [request.address for request in nodes[0].requests]
    assert asked == ["$management", "_topo/0/QDR.A/$management", "_topo/0/QDR.B/$management"]
    alone = stat({"connection": []}, "--all-routers", "-c", calls={"GET-MGMT-NODES": addresses[:1]})
    assert alone == "Connections\n"


def test_option_all_entities_shows_all_tables(stat: Stat) -> None:
    tables: dict[str, list[dict[str, Any]]] = {
        name: []
        for name in ("router.link", "router.address", "connection", "router.config.autoLink", "router.config.linkRoute",
                     "allocator", "vhost", "vhostStats")
    }  # fmt: skip
    out = stat({**tables, "policy": [dict.fromkeys(("maxConnections", "maxMessageSize", "enableVhostPolicy",
        "enableVhostNamePatterns", "policyDir", "defaultVhost", "connectionsProcessed", "connectionsDenied",
        "connectionsCurrent", "linksDenied", "maxMessageSizeDenied", "totalDenials"))]}, "--all-entities")  # fmt: skip
    titles = [line for line in out.splitlines() if line and not line.startswith(" ")]
    assert titles == [
        "Router Links", "Router Addresses", "Connections", "AutoLinks", "No AutoLinks found", "Link Routes",
        "No Link Routes found", "Router Statistics", "No memory statistics available", "Policy Configuration",
        "Policy Status", "No Vhosts", "No Vhost Stats",
    ]  # fmt: skip
    assert out.endswith("No Vhosts\n\nNo Vhost Stats\n\n")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["-a", "-c"], "argument -c/--connections: not allowed with argument -a/--address"),
        (["x"], "unrecognized arguments: x"),
        (["--limit", "x"], "argument --limit: invalid int value: 'x'"),
        (["--vhost"], "ambiguous option: --vhost could match --vhosts, --vhostgroups, --vhoststats"),
        (["--all-routers", "-r", "x"], "argument -r/--router: not allowed with argument --all-routers"),
    ],
)
def test_usage_error_is_reported(words: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words, "sluice stat")
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert err.startswith("usage: sluice stat ")
    assert err.endswith(f"sluice stat: error: {error}\n")


def test_tables_as_json_have_numbers_and_router(
    nodes: list[ScriptedManagementNode], capsys: pytest.CaptureFixture[str]
) -> None:
    nodes.append(rows_node({"router": [ROUTER], "router.address": [ADDRESS]}))
    assert main(["-a", "--json", "-b", nodes[0].url], "sluice stat") == 0
    (table,) = json_codec.decode(capsys.readouterr().out)
    assert (table["router"], table["title"]) == ("QDR.A", "Router Addresses")
    assert table["rows"][0]["addr"] == "b"
    assert table["rows"][0]["in"] == 1234567


def test_old_tool_has_no_json(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["-a", "--json"], "qdstat")
    assert "unrecognized arguments: --json" in capsys.readouterr().err


def test_missing_column_is_an_error(stat: Stat) -> None:
    broken = {name: value for name, value in CONNECTION.items() if name != "tenant"}
    assert stat({"connection": [broken]}, "-c", code=1) == "KeyError: 'tenant'\n"
