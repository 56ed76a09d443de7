"""Rows of connections, links, addresses and workers, for clients of all workers (management.md 6, 7)."""

import time
from typing import Any

from tests.peer import frames, message
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.types import Symbol
from tests.system.fixtures import CAPACITY, Connect, Fresh, pair, pass_one
from tests.system.router import RouterProcess, Section, listener, poll

SECTIONS: list[Section] = [
    listener("carriers", role="route-container", linkCapacity=20),
    ("exchange", {"name": "E", "address": "ex"}),
]


def identity_of(peer: AmqpPeer) -> str:
    """Return the identity of a connection."""
    assert peer.remote_open is not None
    return str(int(peer.remote_open.properties["qd.conn-id"]))


def test_router_row_counts_deliveries_and_links(
    router: RouterProcess, management: Management, connect: Connect, fresh: Fresh
) -> None:
    before = management.one("router")
    sender, receiver = pair(connect, fresh())
    for _ in range(5):
        pass_one(sender, receiver)
    sender.send(message.message("presettled"), settled=True)
    receiver.next()
    after = poll(
        lambda: (row := management.one("router"))["presettledDeliveries"] > before["presettledDeliveries"] and row,
        "the presettled one is counted",
    )
    assert (after["id"], after["mode"], after["workerThreads"]) == ("QDR", "standalone", router.workers)
    assert after["linkCount"] - before["linkCount"] == 2
    assert after["connectionCount"] - before["connectionCount"] == 2
    assert after["addrCount"] - before["addrCount"] == 1
    requests = after["deliveriesIngress"] - before["deliveriesIngress"] - 6
    assert requests >= 1, "requests count as well"
    assert after["acceptedDeliveries"] - before["acceptedDeliveries"] == 5 + requests
    assert after["deliveriesEgress"] - before["deliveriesEgress"] == 6 + requests
    assert after["memoryUsage"] > 1 << 20


def test_router_row_shows_uptime(management: Management) -> None:
    first = management.one("router")["uptimeSeconds"]
    began = time.monotonic()
    poll(lambda: management.one("router")["uptimeSeconds"] > first, "the uptime grows")
    assert time.monotonic() - began < 5


def test_connection_counters_are_shown_on_request(connect: Connect, management: Management, fresh: Fresh) -> None:
    """The counters of a connection are reported only when a query names them."""
    sender, receiver = pair(connect, fresh())
    for _ in range(3):
        pass_one(sender, receiver)
    names = ["identity", "deliveriesIn", "deliveriesOut", "cost"]
    by_identity = {row["identity"]: row for row in management.query("connection", *names)}
    rows = [by_identity[identity_of(end.peer)] for end in (sender, receiver)]
    assert [(row["deliveriesIn"], row["deliveriesOut"], row["cost"]) for row in rows] == [(3, 0, None), (0, 3, None)]
    assert "deliveriesIn" not in management.query("connection")[0]


def test_link_rows_count_outcomes(connect: Connect, management: Management, fresh: Fresh) -> None:
    address = fresh()
    sender, receiver = pair(connect, address, credit=3)
    for state in (frames.ACCEPTED, frames.rejected("a:b"), frames.RELEASED, frames.modified(True)):
        number = sender.send(message.message("x"))
        receiver.next().settle(state)
        sender.outcome(number)
        receiver.flow(3)
    incoming = management.one("router.link", owningAddr=f"M0{address}", linkDir="in")
    outgoing = management.one("router.link", owningAddr=f"M0{address}", linkDir="out")
    for row in (incoming, outgoing):
        assert row["deliveryCount"] == 4
        assert [row[f"{name}Count"] for name in ("accepted", "rejected", "released", "modified")] == [1, 1, 1, 1]
        assert (row["undeliveredCount"], row["unsettledCount"], row["operStatus"]) == (0, 0, "up")
        assert row["settleRate"] in (0, 1)
    assert (incoming["connectionId"], outgoing["connectionId"]) == (
        identity_of(sender.peer),
        identity_of(receiver.peer),
    )
    assert (incoming["linkName"], outgoing["linkName"]) == (sender.name, receiver.name)
    assert (incoming["capacity"], incoming["creditAvailable"]) == (CAPACITY, sender.wait_credit(CAPACITY))
    assert outgoing["creditAvailable"] == 3
    assert outgoing["ingressHistogram"] == [4] + [0] * 127
    assert int(incoming["identity"]) > int(outgoing["identity"]), "in order of attach"


def test_link_row_shows_settle_rate(connect: Connect, management: Management, fresh: Fresh) -> None:
    address = fresh()
    sender, receiver = pair(connect, address, credit=500)
    for _ in range(100):
        sender.wait_credit()
        pass_one(sender, receiver)

    def rate() -> int:
        return int(management.one("router.link", owningAddr=f"M0{address}", linkDir="in")["settleRate"])

    assert poll(lambda: 15 <= rate() <= 20, "100 deliveries in five seconds")


def test_link_rows_show_undelivered_and_unsettled(connect: Connect, management: Management, fresh: Fresh) -> None:
    address = fresh()
    sender, receiver = pair(connect, address, credit=2)
    for _ in range(5):
        sender.send(message.message("x"))
    receiver.receive(2)

    def outgoing() -> dict[str, Any]:
        return management.one("router.link", owningAddr=f"M0{address}", linkDir="out")

    row = poll(lambda: (row := outgoing())["undeliveredCount"] == 3 and row, "three wait")
    assert (row["unsettledCount"], row["creditAvailable"]) == (2, 0)
    incoming = management.one("router.link", owningAddr=f"M0{address}", linkDir="in")
    assert (incoming["deliveryCount"], incoming["unsettledCount"]) == (5, 5), "counted when they arrive"
    poll(lambda: outgoing()["zeroCreditSeconds"] >= 1, "time without credit is counted")
    receiver.flow(10)
    receiver.receive(3)
    row = outgoing()
    assert (row["undeliveredCount"], row["unsettledCount"], row["zeroCreditSeconds"]) == (0, 5, 0)


def test_address_row_sums_all_workers(connect: Connect, management: Management, fresh: Fresh) -> None:
    """Receivers and deliveries of all workers are summed."""
    address = fresh("multicast")
    receivers = [connect().receiver(address, 10) for _ in range(6)]
    senders = [connect().sender(address) for _ in range(3)]
    for sender in senders:
        number = sender.send(message.message("x"), settled=True)
        assert number is not None
    for receiver in receivers:
        receiver.receive(3)
    row = management.call("READ", type="org.apache.qpid.dispatch.router.address", identity=f"M0{address}")
    assert (row["distribution"], row["subscriberCount"], row["inProcess"]) == ("multicast", 6, 0)
    assert (row["deliveriesIngress"], row["deliveriesEgress"]) == (3, 18)
    receivers[0].detach()
    row = management.one("router.address", key=f"M0{address}")
    assert row["subscriberCount"] == 5


def test_management_address_row_counts_requests(management: Management) -> None:
    before = management.one("router.address", key="M0$management")
    after = management.one("router.address", key="M0$management")
    assert after["deliveriesToContainer"] - before["deliveriesToContainer"] == 1
    assert (after["inProcess"], after["deliveriesIngress"]) == (1, after["deliveriesToContainer"])


def test_connection_row_shows_identity_and_security(connect: Connect, management: Management) -> None:
    properties = {Symbol("product"): "test", Symbol("n"): 7, Symbol("flag"): True, Symbol("list"): [1, "a"]}
    peer = connect("carriers", container_id="carrier", properties=properties)
    row = management.one("connection", container="carrier")
    host = "{}:{}".format(*peer.socket.getsockname())
    assert (row["host"], row["name"], row["identity"]) == (host, f"connection/{host}", identity_of(peer))
    assert (row["role"], row["dir"], row["protocol"]) == ("route-container", "in", "amqp")
    assert (row["sasl"], row["user"], row["isAuthenticated"]) == ("ANONYMOUS", "anonymous", True)
    assert (row["isEncrypted"], row["ssl"], row["sslProto"], row["sslSsf"]) == (False, False, None, 0)
    assert {str(key): value for key, value in row["properties"].items()} == {
        "product": "test", "n": 7, "flag": True, "list": [1, "a"],
    }  # fmt: skip
    assert (row["adminStatus"], row["operStatus"], row["opened"], row["active"]) == ("enabled", "up", True, True)
    assert (row["enableProtocolTrace"], row["lastDlvSeconds"]) == (False, None)


def test_connection_without_sasl_shows_no_mechanism(connect: Connect, management: Management) -> None:
    connect(sasl=False, container_id="bare")
    row = management.one("connection", container="bare")
    assert (row["sasl"], row["user"], row["isAuthenticated"]) == (None, "anonymous", False)


def test_connection_row_shows_last_delivery(connect: Connect, management: Management, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh())
    pass_one(sender, receiver)
    for peer in (sender.peer, receiver.peer):
        row = management.call("READ", type="org.apache.qpid.dispatch.connection", identity=identity_of(peer))
        assert 0 <= row["lastDlvSeconds"] <= 5


def test_connection_rows_keep_order_of_opening(connect: Connect, management: Management) -> None:
    peers = [connect(container_id="ordered") for _ in range(6)]
    rows = [row["identity"] for row in management.query("connection") if row["container"] == "ordered"]
    assert rows == [identity_of(peer) for peer in peers]
    peers[2].close()
    poll(
        lambda: (
            [row["identity"] for row in management.query("connection") if row["container"] == "ordered"]
            == [identity_of(peer) for peer in peers if peer is not peers[2]]
        ),
        "the closed one is not shown",
    )


def test_connection_closed_by_management_gets_an_error(
    router: RouterProcess, connect: Connect, management: Management, fresh: Fresh
) -> None:
    for _ in range(router.workers):
        victim = connect(container_id="victim")
        victim.sender(fresh(), credit=False)
        row = management.update("connection", identity_of(victim), adminStatus="deleted")
        assert (row["adminStatus"], row["operStatus"], row["container"]) == ("deleted", "closing", "victim")
        assert victim.expect_close() == ("amqp:connection:forced", "Connection forced-closed by management request")
        poll(
            lambda: identity_of(victim) not in {row["identity"] for row in management.query("connection", "identity")},  # noqa: B023
            "the connection is closed",
        )
        by = identity_of(management.peer)
        router.wait_log(rf"\[C{identity_of(victim)}\] Connection force-closed by request from connection \[C{by}\]")


def test_connection_of_requester_is_closed_after_the_reply(connect: Connect) -> None:
    management = Management(connect())
    row = management.update("connection", identity_of(management.peer), adminStatus="deleted")
    assert row["adminStatus"] == "deleted"
    assert management.peer.expect_close() is not None


def test_policy_row_counts_connections(connect: Connect, management: Management) -> None:
    before = management.one("policy")
    peer = connect()
    after = management.one("policy")
    assert after["connectionsProcessed"] - before["connectionsProcessed"] == 1
    assert after["connectionsCurrent"] - before["connectionsCurrent"] == 1
    assert (after["connectionsDenied"], after["totalDenials"], after["maxConnections"]) == (0, 0, 65535)
    peer.close()
    poll(
        lambda: management.one("policy")["connectionsCurrent"] == before["connectionsCurrent"],
        "the connection is closed",
    )


def test_worker_rows_sum_to_the_totals(router: RouterProcess, management: Management) -> None:
    rows = management.call("GET-WORKERS")
    assert [row["worker"] for row in rows] == list(range(router.workers))
    assert sorted(row["pid"] for row in rows) == sorted(set(router.worker_pids()) & {row["pid"] for row in rows})
    assert all(row["state"] == "ready" and row["cpuSeconds"] >= 0 for row in rows)
    assert sum(row["connections"] for row in rows) == management.one("policy")["connectionsCurrent"]
    assert sum(row["links"] for row in rows) == management.one("router")["linkCount"]
    assert all(len(row["rings"]) == router.workers - 1 for row in rows)
