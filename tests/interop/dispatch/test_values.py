"""Counters of links, addresses and the router after known traffic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from proton import Delivery, Message
from proton.reactor import AtLeastOnce, AtMostOnce, LinkOption
from proton.utils import BlockingConnection

from tests.interop.dispatch.node import PREFIX, ManagementNode
from tests.system.router import RouterProcess, poll

Fresh = Callable[[str], str]
Connect = Callable[[], BlockingConnection]

#: Outcomes that the consumer gives to the unsettled messages, in order.
OUTCOMES = ["accepted"] * 7 + ["rejected"] * 3 + ["released"] * 2 + ["modified"]
PRESETTLED = 4
ALL = len(OUTCOMES) + PRESETTLED
STATES = {
    "accepted": Delivery.ACCEPTED,
    "rejected": Delivery.REJECTED,
    "released": Delivery.RELEASED,
    "modified": Delivery.MODIFIED,
}


@pytest.fixture
def connect(shared_router: RouterProcess) -> Iterator[Connect]:
    """Factory connect(): opens a new connection, so that workers share the traffic. Closed after the test."""
    made: list[BlockingConnection] = []

    def open_connection() -> BlockingConnection:
        made.append(BlockingConnection(f"127.0.0.1:{shared_router.port}", sasl_enabled=False, timeout=10))
        return made[-1]

    yield open_connection
    for connection in made:
        connection.close()


def outcome_of(sender: Any, message: Message) -> str:
    """Send a message, wait, and return the name of its outcome. Presettled messages count as accepted."""
    state = sender.send(message, error_states=[]).remote_state
    return next((word for word, each in STATES.items() if each == state), "accepted")


def send_all(connect: Connect, address: str, options: LinkOption, count: int, name: str) -> list[str]:
    """Send messages one after the other; return their outcomes."""
    connection = connect()
    sender = connection.create_sender(address, name=name, options=options)
    became = []
    for number in range(count):
        became.append(outcome_of(sender, Message(body=number)))
    connection.close()
    return became


def consume(connect: Connect, address: str) -> Any:
    """Attach a consumer with credit for all messages."""
    return connect().create_receiver(address, credit=100, name=f"out-{address}")


def settle_in_turn(receiver: Any, count: int) -> None:
    """Receive messages and settle them with the outcomes in order."""
    for outcome in OUTCOMES[:count]:
        receiver.receive(timeout=10)
        receiver.settle(STATES[outcome])
    flush(receiver)


def flush(link: Any) -> None:
    """Wait until proton has written all frames of the connection: an attach makes a round trip."""
    link.connection.create_sender(None).close()


def totals(node: ManagementNode) -> dict[str, int]:
    """Return the router's delivery counters."""
    return {key: value for key, value in node.one("router").items() if key.endswith("Deliveries")}


def test_outcomes_are_counted_at_each_level(node: ManagementNode, connect: Connect, fresh: Fresh) -> None:
    """Outcomes and presettled messages are counted on both links, on the address and on the router."""
    address = fresh("balanced/outcomes")
    before = totals(node)
    receiver = consume(connect, address)
    producer = connect()
    sender = producer.create_sender(address, name=f"in-{address}", options=AtLeastOnce())
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(settle_in_turn, receiver, len(OUTCOMES))
        for number, outcome in enumerate(OUTCOMES):
            assert outcome_of(sender, Message(body=number)) == outcome
        done.result()
    settled = producer.create_sender(address, name=f"pre-{address}", options=AtMostOnce())
    for number in range(PRESETTLED):
        settled.send(Message(body=number))
    flush(settled)
    assert [receiver.receive(timeout=10).body for _ in range(PRESETTLED)] == list(range(PRESETTLED))
    flush(receiver)  # proton grants one more credit for each message that it waits for

    def finished() -> bool:
        rows = {row["linkName"]: row for row in node.rows("router.link")}
        outgoing = rows[f"out-{address}"]
        return (outgoing["presettledCount"], outgoing["modifiedCount"]) == (PRESETTLED, 1)

    poll(finished, "all deliveries are counted")
    links = {row["linkName"]: row for row in node.rows("router.link")}
    wanted = {f"{outcome}Count": OUTCOMES.count(outcome) for outcome in STATES}
    incoming, outgoing, pre = (links[f"{kind}-{address}"] for kind in ("in", "out", "pre"))
    assert {name: incoming[name] for name in wanted} == wanted
    assert {name: outgoing[name] for name in wanted} == wanted
    assert (incoming["deliveryCount"], outgoing["deliveryCount"], pre["deliveryCount"]) == (13, ALL, PRESETTLED)
    assert (incoming["presettledCount"], outgoing["presettledCount"], pre["presettledCount"]) == (0, 4, 4)
    for row in (incoming, outgoing, pre):
        assert (row["undeliveredCount"], row["unsettledCount"], row["droppedPresettledCount"]) == (0, 0, 0)
        assert (row["owningAddr"], row["capacity"], row["linkType"]) == (f"M0{address}", 250, "endpoint")
        assert (row["priority"], row["peer"], row["operStatus"], row["adminStatus"]) == (4, None, "up", "enabled")
        assert (row["deliveriesDelayed10Sec"], row["deliveriesStuck"]) == (0, 0)
    assert (incoming["linkDir"], outgoing["linkDir"]) == ("in", "out")
    assert incoming["connectionId"] == pre["connectionId"] != outgoing["connectionId"]
    assert incoming["creditAvailable"] == 250
    assert outgoing["creditAvailable"] == receiver.link.credit
    assert outgoing["zeroCreditSeconds"] == 0
    assert incoming["ingressHistogram"] is None
    assert outgoing["ingressHistogram"] == [ALL] + [0] * 127
    row = node.one("router.address", key=f"M0{address}")
    assert (row["deliveriesIngress"], row["deliveriesEgress"], row["deliveriesTransit"]) == (ALL, ALL, 0)
    assert (row["subscriberCount"], row["remoteCount"], row["inProcess"], row["containerCount"]) == (1, 0, 0, 0)
    assert (row["distribution"], row["priority"], row["remoteHostRouters"]) == ("balanced", -1, [])
    after = totals(node)
    for outcome in ("rejected", "released", "modified"):
        assert after[f"{outcome}Deliveries"] - before[f"{outcome}Deliveries"] == OUTCOMES.count(outcome)
    assert after["presettledDeliveries"] - before["presettledDeliveries"] == PRESETTLED
    assert after["acceptedDeliveries"] - before["acceptedDeliveries"] >= OUTCOMES.count("accepted")
    connections = {row["identity"]: row for row in node.rows("connection")}
    assert connections[incoming["connectionId"]]["lastDlvSeconds"] is not None
    producer.close()
    receiver.connection.close()
    poll(lambda: not node.rows("router.address", key=f"M0{address}"), "the address is gone with its links")


def test_waiting_deliveries_show_as_unsettled(node: ManagementNode, connect: Connect, fresh: Fresh) -> None:
    """A delivery that the consumer has not settled shows as unsettled on both links."""
    address = fresh("balanced/waiting")
    receiver = consume(connect, address)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(send_all, connect, address, AtLeastOnce(), 1, f"in-{address}")
        receiver.receive(timeout=10)

        def counts() -> list[tuple[int, int]]:
            rows = node.rows("router.link", owningAddr=f"M0{address}")
            return [(row["unsettledCount"], row["undeliveredCount"]) for row in rows]

        poll(lambda: counts() == [(1, 0), (1, 0)], "both links have one unsettled delivery")
        receiver.accept()
        flush(receiver)
        assert done.result() == ["accepted"]


def test_multicast_counts_every_copy(node: ManagementNode, connect: Connect, fresh: Fresh) -> None:
    address = fresh("multicast/copies")
    consumers = [connect() for _ in range(3)]
    receivers = [connection.create_receiver(address, credit=10) for connection in consumers]
    assert send_all(connect, address, AtMostOnce(), 5, "in") == ["accepted"] * 5
    for receiver in receivers:
        assert [receiver.receive(timeout=10).body for _ in range(5)] == list(range(5))
    row = node.one("router.address", key=f"M0{address}")
    assert (row["distribution"], row["subscriberCount"]) == ("multicast", 3)
    assert (row["deliveriesIngress"], row["deliveriesEgress"]) == (5, 15)


def test_management_addresses_count_requests(node: ManagementNode, shared_router: RouterProcess) -> None:
    """The management node shows as an in-process consumer, and its requests are counted."""
    keys = {row["key"]: row for row in node.rows("router.address")}
    assert {"M0$management", "L$management"} <= set(keys)
    before = keys["M0$management"]
    assert (before["inProcess"], before["subscriberCount"], before["distribution"]) == (1, 0, "closest")
    for _ in range(3):
        node.ask("GET-ANNOTATIONS")
    after = node.one("router.address", key="M0$management")
    assert after["deliveriesIngress"] - before["deliveriesIngress"] == 4
    assert after["deliveriesToContainer"] - before["deliveriesToContainer"] == 4


def test_temporary_address_is_topological(node: ManagementNode, shared_router: RouterProcess) -> None:
    """The address of a dynamic receiver is topological, and ends with `temp.` and 15 characters."""
    reply_to = node.client.reply_to
    head = "amqp:/_topo/0/QDR/temp."
    assert reply_to.startswith(head)
    assert len(reply_to) == len(head) + 15
    keys = [row["key"] for row in node.rows("router.address")]
    assert "L" + reply_to.removeprefix("amqp:/_topo/0/QDR/") in keys


def test_router_counts_return_after_close(node: ManagementNode, connect: Connect) -> None:
    """connectionCount, linkCount and addrCount return to their values before the connections."""
    mine = {"connectionCount", "linkCount", "addrCount"}

    def counts() -> dict[str, int]:
        return {key: value for key, value in node.one("router").items() if key in mine}

    before = poll(lambda: len(node.rows("connection")) == 1 and counts(), "others have gone")
    connections = [connect() for _ in range(4)]
    for number, connection in enumerate(connections):
        connection.create_receiver(f"balanced/count{number}")
        connection.create_sender(f"balanced/count{number}")
    assert counts() == {
        "connectionCount": before["connectionCount"] + 4,
        "linkCount": before["linkCount"] + 8,
        "addrCount": before["addrCount"] + 4,
    }
    for connection in connections:
        connection.close()
    poll(lambda: counts() == before, "counts are as before")


def test_management_address_forms_reach_router(shared_router: RouterProcess, connect: Connect) -> None:
    """All forms of the address reach the router, on targeted and on anonymous links."""
    for address in (
        "$management", "_local/$management", "_topo/0/QDR/$management", "_topo/all/QDR/$management",
        "amqp:/$management", "amqp:/_topo/0/QDR/$management", "amqp://somewhere/_local/$management", "/$management",
    ):  # fmt: skip
        node = ManagementNode.connect(shared_router.port, address=address)
        assert node.one("router")["id"] == "QDR", address
        node.close()
    connection = connect()
    replies = connection.create_receiver(None, dynamic=True, credit=5)
    sender = connection.create_sender(None)
    for number, address in enumerate(("$management", "_local/$management", "amqp:/_topo/0/QDR/$management")):
        sender.send(
            Message(
                address=address,
                reply_to=replies.link.remote_source.address,
                correlation_id=number,
                properties={"operation": "QUERY", "entityType": PREFIX + "router", "type": "org.amqp.management"},
                body={},
            )
        )
        answer: Any = replies.receive(timeout=10)
        assert (answer.properties["statusCode"], answer.correlation_id) == (200, number)
