"""Management of a network: rows about other routers, and requests that reach a router through another one."""

from __future__ import annotations

import json
import re
import time

import pytest

from tests.peer import message
from tests.peer.management import PREFIX, Management
from tests.system.fixtures import pass_one
from tests.system.management.test_tools_original import DispatchToolClient
from tests.system.networks import CONVERGENCE, RouterView, TwoRouterNetwork
from tests.system.router import poll
from tests.system.tools import run, table

ADDRESSES = 2000


def test_node_rows_describe_both_routers(two_routers: TwoRouterNetwork) -> None:
    poll(lambda: two_routers.at_a.nodes()["B"]["linkState"], "B has said who its neighbours are")
    nodes = two_routers.at_a.nodes()
    assert list(nodes) == ["A", "B"]
    own, other = nodes["A"], nodes["B"]
    assert own["type"] == f"{PREFIX}router.node"
    for name, row in nodes.items():
        assert row["name"] == row["identity"] == f"router.node/{name}"
        assert row["address"] == f"amqp:/_topo/0/{name}"
        assert row["protocolVersion"] == 1
        assert abs(row["instance"] - time.time()) < 3600
        assert row["validOrigins"] == []
    assert (own["index"], own["nextHop"], own["linkState"], own["routerLink"], own["cost"]) == (
        0, "(self)", ["B"], None, None,
    )  # fmt: skip
    assert (other["index"], other["nextHop"], other["linkState"], other["routerLink"], other["cost"]) == (
        1, None, ["A"], 0, 1,
    )  # fmt: skip
    assert 0 <= time.time() - own["lastTopoChange"] < 3600
    assert other["lastTopoChange"] is None


def test_router_row_counts_other_nodes(two_routers: TwoRouterNetwork) -> None:
    (row,) = two_routers.at_a.query("router")
    assert (row["mode"], row["id"], row["nodeCount"]) == ("interior", "A", 1)


def test_management_nodes_lists_agents_of_all_routers(two_routers: TwoRouterNetwork) -> None:
    for router, wanted in ((two_routers.a, "AB"), (two_routers.b, "BA")):
        answer = Management(two_routers.connect(router)).call("GET-MGMT-NODES", name="self", type="org.amqp.management")
        assert answer == [f"amqp:/_topo/0/{name}/$management" for name in wanted]


@pytest.mark.parametrize(
    "address",
    ["_topo/0/B/$management", "amqp:/_topo/0/B/$management", "_topo/all/B/$management", "/_topo/0/B/$management"],
)
def test_request_to_another_router_is_answered_by_it(two_routers: TwoRouterNetwork, address: str) -> None:
    (row,) = RouterView(two_routers.a, address).query("router")
    assert row["id"] == "B"


def test_request_over_anonymous_link_reaches_another_router(two_routers: TwoRouterNetwork) -> None:
    peer = two_routers.connect(two_routers.a)
    replies = peer.receiver(dynamic=True, credit=10)
    request = message.properties(to="_topo/0/B/$management", reply_to=replies.address, correlation_id="7")
    request += message.application_properties({"operation": "QUERY", "type": "org.amqp.management", "name": "self",
                                               "entityType": f"{PREFIX}router"})  # fmt: skip
    peer.sender().send(request + message.value({"attributeNames": ["id"]}))
    delivery = replies.next()
    assert message.body(delivery.payload)["results"] == [["B"]]
    assert message.section_of(delivery.payload, message.PROPERTIES)[5] == "7"


def test_requests_sent_at_once_to_another_router_are_answered(two_routers: TwoRouterNetwork) -> None:
    management = Management(two_routers.connect(two_routers.a), "_topo/0/B/$management")
    for _ in range(100):
        management.send(management.request({"operation": "QUERY", "entityType": f"{PREFIX}router.link",
                                            "type": "org.amqp.management", "name": "self"}, {}))  # fmt: skip
    assert {management.next().status for _ in range(100)} == {200}


def test_sender_to_unknown_router_gets_no_credit(two_routers: TwoRouterNetwork) -> None:
    for address in ("_topo/0/NOPE/$management", "_topo/0/all/$management", "_topo/1/B/$management"):
        sender = two_routers.connect(two_routers.a).sender(address, credit=False)
        sender.peer.barrier()
        assert sender.credit == 0


def test_address_rows_count_local_and_remote_consumers(two_routers: TwoRouterNetwork) -> None:
    address = two_routers.fresh("multicast/")
    two_routers.connect(two_routers.b).receiver(address, 10)
    two_routers.at_a.wait_remote(f"M0{address}", "B")
    row = two_routers.at_a.address(f"M0{address}")
    assert row is not None
    assert (row["distribution"], row["subscriberCount"], row["remoteCount"]) == ("multicast", 0, 1)
    row = two_routers.at_b.address(f"M0{address}")
    assert row is not None
    assert (row["subscriberCount"], row["remoteCount"], row["remoteHostRouters"]) == (1, 0, [])


def test_tools_of_dispatch_see_all_addresses_of_other_routers(two_routers: TwoRouterNetwork) -> None:
    """Proton, which the tools of Dispatch 1.19 use, decodes the whole reply."""
    prefix = two_routers.fresh("balanced/")
    peer = two_routers.connect(two_routers.b)
    for number in range(ADDRESSES):
        peer.receiver(f"{prefix}/{number}", wait=False)
    peer.barrier()
    wanted = {f"M0{prefix}/{number}" for number in range(ADDRESSES)}
    tool = DispatchToolClient(two_routers.a.port)

    def seen() -> set[object]:
        return {row[0] for row in tool.query("router.address")}

    poll(lambda: seen() >= wanted, "A shows all addresses of B")
    peer.close()
    poll(lambda: not seen() & wanted, "the addresses are removed")


def test_built_in_addresses_have_rows(two_routers: TwoRouterNetwork) -> None:
    rows = {row["key"]: row for row in two_routers.at_a.query("router.address")}
    for key, treatment, remotes in (
        ("Lqdhello", "flood", 0),
        ("Lqdrouter", "flood", 0),
        ("Lqdrouter.ma", "multicast", 0),
        ("Tqdrouter", "flood", 1),
        ("Tqdrouter.ma", "multicast", 1),
        ("L$management", "closest", 0),
        ("M0$management", "closest", 0),
    ):
        row = rows[key]
        assert (row["distribution"], row["inProcess"], row["remoteCount"]) == (treatment, 1, remotes), key
    assert (rows["RB"]["distribution"], rows["RB"]["remoteHostRouters"]) == ("closest", ["B"])


def test_deliveries_unsettled_at_another_router_are_counted(two_routers: TwoRouterNetwork) -> None:
    address = two_routers.fresh("balanced/")
    receiver = two_routers.connect(two_routers.b).receiver(address, 10)
    sender = two_routers.connect(two_routers.a).sender(address)
    sender.wait_credit(timeout=CONVERGENCE)
    for number in range(5):
        sender.send(message.message(number))
    deliveries = receiver.receive(5)

    def tracked(count: int) -> bool:
        row = two_routers.at_a.address(f"M0{address}")
        assert row is not None
        return bool(row["trackedDeliveries"] == count == sum(row["transitOutstanding"]))

    poll(lambda: tracked(5), "five are unsettled")
    for delivery in deliveries:
        delivery.settle()
    poll(lambda: tracked(0), "none is unsettled")


def test_inter_router_connection_has_a_link_pair_per_priority(two_routers: TwoRouterNetwork) -> None:
    (connection,) = [row for row in two_routers.at_a.query("connection") if row["role"] == "inter-router"]
    assert (connection["container"], connection["dir"], connection["opened"]) == ("B", "in", True)
    links = [row for row in two_routers.at_a.query("router.link") if row["connectionId"] == connection["identity"]]
    kinds = [(row["linkType"], row["linkDir"], row["priority"]) for row in links]
    for direction in ("in", "out"):
        assert kinds.count(("router-control", direction, 9)) == 1
        priorities = {priority for kind, way, priority in kinds if (kind, way) == ("inter-router", direction)}
        assert priorities == set(range(10))


def test_connection_link_route_cannot_be_created_through_another_router(two_routers: TwoRouterNetwork) -> None:
    management = Management(two_routers.connect(two_routers.a), "_topo/0/B/$management")
    body = {"pattern": "a.#", "direction": "in"}
    answer = management.ask("CREATE", body, type=f"{PREFIX}router.connection.linkRoute", name="x")
    assert answer.outcome == (400, "Parent connection no longer exists")


# Tools


def test_qdstat_shows_all_nodes(two_routers: TwoRouterNetwork) -> None:
    done = run("stat", two_routers.a.port, "-n")
    assert re.search(r"Routers in the Network\nLast Topology Change: \w+day \w+ \d\d ", done.out)
    assert done.rows == [
        {"router-id": "A", "next-hop": "(self)", "link": "-"},
        {"router-id": "B", "next-hop": "-", "link": "0"},
    ]
    (row,) = [row for row in table(two_routers.a.port, "-n", "-v") if row["router-id"] == "B"]
    assert (row["cost"], row["neighbors"], row["valid-origins"], row["ver"]) == ("1", "['A']", "[]", "1")


def test_qdstat_shows_another_router(two_routers: TwoRouterNetwork) -> None:
    done = run("stat", two_routers.a.port, "--router", "B", "-g")
    assert re.search(r"^  Router Id +B$", done.out, re.MULTILINE)
    assert re.search(r"^  Nodes +1$", done.out, re.MULTILINE)
    assert {row["role"] for row in table(two_routers.a.port, "-r", "B", "-c")} >= {"inter-router"}


def test_qdstat_shows_all_routers(two_routers: TwoRouterNetwork) -> None:
    done = run("stat", two_routers.a.port, "--all-routers", "-g")
    assert done.code == 0
    assert re.findall(r"^Router  (\w+)$", done.out, re.MULTILINE) == ["A", "B"]
    assert re.findall(r"^  Router Id +(\w+)$", done.out, re.MULTILINE) == ["A", "B"]
    done = run("stat", two_routers.a.port, "--all-routers", "--all-entities")
    assert (done.code, done.err) == (0, "")


def test_tools_report_unknown_router_at_once(two_routers: TwoRouterNetwork) -> None:
    """The tool prints the error at once, not after its own timeout."""
    calls = [("stat", "--router", "NOPE"), ("manage", "-r", "NOPE", "query"), ("explain", "x", "-r", "NOPE")]
    calls += [("stat", "--edge-router", "NOPE"), ("top", "--once", "-d", "NOPE")]
    for tool, *words in calls:
        done = run(tool, two_routers.a.port, "-t", "1000", *words)
        reported = "router 'NOPE' is not in the network\n"
        if tool in ("stat", "manage"):
            assert (done.code, done.out) == (1, f"UnknownRouter: {reported}"), (tool, words, done)
        else:
            assert (done.code, done.out) == (1, ""), (tool, words, done)
            assert done.err.startswith(f"sluice {tool}: {reported}"), (tool, words, done)


def test_qdmanage_changes_another_router(two_routers: TwoRouterNetwork) -> None:
    done = run("manage", two_routers.a.port, "-r", "B", "query", "--type=router.node", "id", "nextHop")
    assert [row["id"] for row in json.loads(done.out)] == ["B", "A"]
    name = two_routers.fresh()
    done = run("manage", two_routers.a.port, "-r", "B", "create", "--type=address", f"--name={name}", f"prefix={name}",
               "distribution=multicast")  # fmt: skip
    assert done.code == 0, done
    assert [row["name"] for row in two_routers.at_b.query("router.config.address") if row["name"] == name] == [name]


def test_explain_follows_an_address_to_another_router(two_routers: TwoRouterNetwork) -> None:
    address = two_routers.fresh()
    receiver = two_routers.connect(two_routers.b).receiver(address, 10)
    sender = two_routers.connect(two_routers.a).sender(address)
    sender.wait_credit(timeout=CONVERGENCE)
    pass_one(sender, receiver)
    done = run("explain", two_routers.a.port, address)
    assert done.code == 0, done
    for text in ("Consumers at another router: B (cost 1)", "Path: A -> B", "--- Router B", "1 consumer with credit"):
        assert text in done.out
    answer = json.loads(run("explain", two_routers.a.port, address, "--json").out)
    assert answer["ways"] == [["A", "B"]]
    assert answer["routers"]["B"]["records"][0]["consumerCount"] == 1
    answer = json.loads(run("explain", two_routers.a.port, address, "--json", "-r", "B").out)
    assert (answer["router"], answer["ways"], answer["routers"]) == ("B", [], {})
    assert run("explain", two_routers.a.port, "_topo/0/B/$management").code == 0
    assert run("explain", two_routers.a.port, "_topo/0/B/x").code == 3
    assert run("explain", two_routers.a.port, "_topo/0/NOPE/x").code == 3


def test_inter_router_message_links_have_a_larger_capacity(two_routers: TwoRouterNetwork) -> None:
    """Default capacity per link type: 1000 for message links, to cover a hop's round trip; 250 for the routing
    protocol."""
    for view in (two_routers.at_a, RouterView(two_routers.b)):
        rows = [row for row in view.query("router.link") if row["linkDir"] == "in"]
        for kind, capacity in (("router-control", 250), ("inter-router", 1000)):
            assert {row["capacity"] for row in rows if row["linkType"] == kind} == {capacity}
