"""Management over the network (inter-router.md 13, management.md 6.4 and 8.5)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.interop.network.conftest import ChainNetwork, MiddleNetwork
from tests.interop.network.net import router_annotations
from tests.peer import message
from tests.peer.management import Management
from tests.peer.types import Int
from tests.system.router import ROOT

Fresh = Callable[..., str]


@pytest.mark.parametrize("address", ["_topo/0/B/$management", "amqp:/_topo/0/B/$management"])
def test_remote_router_answers_query(chain: ChainNetwork, address: str) -> None:
    management = chain.a.management(address)
    assert management.one("router")["id"] == "B"
    assert {row["name"] for row in management.query("router.config.linkRoute")} == {
        "lr-in",
        "lr-out",
        "lp-in",
    }


def test_local_router_answers_to_own_name(chain: ChainNetwork) -> None:
    assert chain.a.management("_topo/0/A/$management").one("router")["id"] == "A"


def test_remote_router_accepts_changes(chain: ChainNetwork) -> None:
    far = chain.a.management("_topo/0/B/$management")
    far.create("router.config.address", "made-from-afar", prefix="made", distribution="multicast")
    near = chain.b.management()
    assert near.one("router.config.address", name="made-from-afar")["distribution"] == "multicast"
    far.delete("router.config.address", "made-from-afar")
    assert not [row for row in near.query("router.config.address") if row["name"] == "made-from-afar"]


def test_large_answers_arrive_over_network(chain: ChainNetwork) -> None:
    management = chain.a.management("_topo/0/B/$management")
    rows = management.query("router.link")
    assert len(rows) >= 22
    schema = management.call("GET-SCHEMA")
    assert "entityTypes" in schema


@pytest.mark.parametrize("end", ["a", "b"])
def test_management_nodes_are_listed(chain: ChainNetwork, end: str) -> None:
    management = getattr(chain, end).management()
    found = management.call("GET-MGMT-NODES")
    assert sorted(found) == [f"amqp:/_topo/0/{name}/$management" for name in "ABM"]


def test_node_rows_show_network(chain: ChainNetwork) -> None:
    rows = {row["id"]: row for row in chain.a.rows("router.node")}
    assert set(rows) == {"A", "B", "M"}
    own, near, far = rows["A"], rows["M"], rows["B"]
    assert (own["nextHop"], own["index"], own["linkState"], own["protocolVersion"]) == ("(self)", 0, ["M"], 1)
    assert own["validOrigins"] == []
    assert own["lastTopoChange"] > 0
    assert (near["nextHop"], near["cost"], sorted(near["linkState"])) == (None, 1, ["A", "B"])
    assert near["routerLink"] == 0
    assert near["instance"] == chain.m.instance
    assert (far["nextHop"], far["cost"], far["linkState"], far["routerLink"]) == ("M", 2, ["M"], None)
    for name, row in rows.items():
        assert row["address"] == f"amqp:/_topo/0/{name}"
        assert row["name"] == row["identity"] == f"router.node/{name}"
        assert row["protocolVersion"] == 1
    assert sorted(row["index"] for row in rows.values()) == [0, 1, 2]
    assert far["instance"] == chain.m.engine.nodes["B"].instance


def test_valid_origins_of_middle_router_are_shown(middle: MiddleNetwork) -> None:
    rows = {row["id"]: row for row in middle.s.rows("router.node")}
    assert [one for one in rows["L"]["validOrigins"] if one == "R"] == ["R"]
    assert [one for one in rows["R"]["validOrigins"] if one == "L"] == ["L"]


def test_router_row_counts_nodes(chain: ChainNetwork) -> None:
    row = chain.a.management().one("router")
    assert (row["mode"], row["nodeCount"]) == ("interior", 2)


def test_connection_rows_show_role(chain: ChainNetwork) -> None:
    for sluice, direction in ((chain.a, "out"), (chain.b, "in")):
        row = sluice.management().one("connection", container="M")
        assert (row["role"], row["dir"]) == ("inter-router", direction)
        assert row["properties"]["product"] == "qpid-dispatch-router"
        assert row["properties"]["version"] == "1.19.0"


def test_router_links_appear_as_rows(chain: ChainNetwork) -> None:
    rows = chain.a.rows("router.link")
    control = [row for row in rows if row["linkType"] == "router-control"]
    data = [row for row in rows if row["linkType"] == "inter-router"]
    assert sorted(row["linkDir"] for row in control) == ["in", "out"]
    assert len(data) >= 20
    assert all(row["operStatus"] == "up" and row["capacity"] == 250 for row in control + data)


def test_address_rows_name_remote_routers(chain: ChainNetwork, fresh: Fresh) -> None:
    address = fresh("multicast")
    chain.b.client().receiver(address)
    chain.m.consumer(address)
    chain.a.wait_remote("M0" + address, "B", "M")
    row = chain.a.address("M0" + address)
    assert row is not None
    assert (row["remoteCount"], row["subscriberCount"]) == (2, 0)
    assert sorted(row["remoteHostRouters"]) == ["B", "M"]


def test_request_from_1_19_is_answered(chain: ChainNetwork, fresh: Fresh) -> None:
    """The router answers a request that arrives over the network; its reply has the router as ingress."""
    name = "temp." + fresh("t").replace("/", "")
    replies = chain.m.consumer(f"_topo/0/M/{name}")
    request = (
        message.properties(reply_to=f"amqp:/_topo/0/M/{name}", correlation_id=7)
        + message.application_properties(
            {"operation": "QUERY", "entityType": "org.apache.qpid.dispatch.router", "name": "self"}
        )
        + message.value({"attributeNames": ["id"]})
    )
    sent = chain.m.send("_topo/0/B/$management", request)
    reply = replies.next()
    assert sent.outcome() == "accepted"
    assert reply.presettled
    assert reply.body["results"] == [["B"]]
    found = message.section_of(reply.payload, message.PROPERTIES)
    assert (found[2], found[5]) == (f"amqp:/_topo/0/M/{name}", 7)
    given = router_annotations(reply.payload)
    assert "to" not in given
    assert (given["ingress"], given["trace"]) == ("0/B", ["0/B", "0/M"])


def test_request_to_1_19_arrives_unchanged(chain: ChainNetwork) -> None:
    agent = chain.m.consumer("_topo/0/M/$management")
    try:
        peer = chain.a.client()
        replies = peer.receiver(dynamic=True, credit=10)
        sender = peer.sender("_topo/0/M/$management")
        number = sender.send(
            message.properties(reply_to=replies.address, correlation_id="c")
            + message.application_properties({"operation": "GET-MGMT-NODES"})
            + message.value({})
        )
        arrived = agent.next()
        given = router_annotations(arrived.payload)
        assert (given["to"], given["ingress"]) == ("_topo/0/M/$management", "0/A")
        assert sender.outcome(number).name == "accepted"
        reply = message.properties(to=replies.address, correlation_id="c") + message.application_properties(
            {"statusCode": Int(200), "statusDescription": "OK"}
        )
        chain.m.send(replies.address, reply + message.value(["x"]), settled=True, override=False)
        got = replies.next()
        assert message.body(got.payload) == ["x"]
    finally:
        agent.close()


# --- tools ------------------------------------------------------------------------------------------------------------


def run_tool(name: str, *arguments: str) -> str:
    """Run a command of the package and return its output."""
    program = ROOT / ".venv" / "bin" / name
    words = [str(program)] if program.exists() else [sys.executable, "-m", f"sluice.router.cli.{name[2:]}.main"]
    done = subprocess.run(
        [*words, *arguments], capture_output=True, text=True, timeout=30, check=False, env={**os.environ}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rows_of(output: str, first: str) -> dict[str, list[str]]:
    """Return the rows of the table whose header begins with `first`, by their first column."""
    lines = output.splitlines()
    start = next(number for number, line in enumerate(lines) if line.split()[:1] == [first])
    found = {}
    for line in lines[start + 2 :]:
        words = line.split()
        if not words:
            break
        found[words[0]] = words[1:]
    return found


def test_qdstat_shows_nodes(chain: ChainNetwork) -> None:
    output = run_tool("qdstat", "-b", f"127.0.0.1:{chain.a.router.port}", "-n")
    rows = rows_of(output, "router-id")
    assert rows["A"][:2] == ["(self)", "-"]
    assert rows["M"][:2] == ["-", "0"]
    assert rows["B"][:2] == ["M", "-"]
    assert "Last Topology Change" in output


def test_qdstat_queries_remote_router(chain: ChainNetwork) -> None:
    output = run_tool("qdstat", "-b", f"127.0.0.1:{chain.a.router.port}", "-r", "B", "-g")
    assert any(line.split()[:3] == ["Router", "Id", "B"] for line in output.splitlines()), output


def test_qdmanage_queries_remote_router(chain: ChainNetwork) -> None:
    output = run_tool("qdmanage", "-b", f"127.0.0.1:{chain.a.router.port}", "-r", "B", "get-mgmt-nodes")
    assert "amqp:/_topo/0/A/$management" in output


def test_request_to_unknown_router_is_released(chain: ChainNetwork) -> None:
    management = Management(chain.a.client())
    sender = management.peer.sender()
    outcome = sender.request(message.message({}, to="_topo/0/nobody/$management", reply_to=management.replies.address))
    assert outcome.name == "released"
