"""EXPLAIN: each verdict about an address, and the list of its users."""

import time

import pytest

from sluice.router.control import messages
from sluice.router.stalls.reason import StallReason
from tests.unit.supervisor.management.managed_router import ManagedRouter


@pytest.fixture
def router():
    return ManagedRouter()


def explain(router, address, **properties):
    answer = router.ask("EXPLAIN", address=address, **properties)
    assert answer.outcome == (200, "OK")
    return answer.body


def record(body, key):
    (found,) = [each for each in body["records"] if each["key"] == key]
    return found


def ago(seconds):
    """Return the time that many seconds ago, as in shared memory."""
    return time.monotonic_ns() - round(seconds * 1e9)


def test_unused_address_is_explained(router):
    body = explain(router, "amqp://h/nobody.here")
    assert (body["address"], body["class"], body["name"]) == ("amqp://h/nobody.here", "mobile", "nobody.here")
    assert (body["reachable"], body["verdict"], body["records"]) == (False, "not in use", [])
    assert body["findings"] == [
        "Not in use: no consumer, no producer. A producer may attach; it gets credit when a consumer attaches"
    ]
    assert body["setting"] == {
        "pattern": None, "entity": None, "distribution": "balanced", "ingressPhase": 0, "egressPhase": 0,
        "priority": None, "fallback": False, "presettledOverflow": "throttle",
    }  # fmt: skip


def test_setting_of_address_is_explained(router):
    setting = explain(router, "closest/a/b")["setting"]
    assert (setting["pattern"], setting["entity"], setting["priority"]) == ("closest/#", "address/0", 7)
    assert explain(router, "fb.x")["setting"]["entity"] == "fb"


def test_consumers_and_producers_are_listed(router):
    here, there = router.connection(), router.connection(worker=1)
    router.link(there, "out", "closest/q", credit=5, undelivered=1, unsettled=2, deliveries=9, accepted=4, capacity=250)
    router.link(here, "in", "closest/q", credit=250, capacity=250)
    router.link(here, "out", "closest/other", credit=1)
    body = explain(router, "closest/q")
    assert (body["reachable"], body["verdict"], body["findings"][0]) == (True, "reachable", "1 consumer with credit")
    assert body["findings"][1].endswith(f"connection {there.number}) has them")
    (found,) = body["records"]
    assert (found["key"], found["phase"], found["treatment"], found["priority"]) == ("M0closest/q", "0", "closest", 7)
    assert (found["consumerCount"], found["producerCount"]) == (1, 1)
    (consumer,) = found["consumers"]
    assert consumer["connection"] == str(there.number)
    assert (consumer["container"], consumer["host"], consumer["user"]) == (there.container, there.peer, "anonymous")
    wanted = {"worker": 1, "credit": 5, "undelivered": 1, "unsettled": 2, "deliveries": 9, "accepted": 4}
    assert {name: consumer[name] for name in wanted} == wanted
    assert consumer["withoutCreditSeconds"] is None
    (producer,) = found["producers"]
    assert (producer["connection"], producer["worker"], producer["credit"]) == (str(here.number), 0, 250)
    assert (consumer["capacityAdapts"], producer["capacityAdapts"]) == (False, True)


def test_consumers_without_credit_are_named(router):
    connection = router.connection()
    router.link(connection, "out", "q", blocked_since=ago(30))
    router.link(connection, "out", "q", blocked_since=ago(100))
    body = explain(router, "q")
    assert (body["reachable"], body["verdict"]) == (False, "no credit: 2 consumers withhold it")
    client = (
        f"Client '{connection.container}' ({connection.peer}, connection {connection.number}) grants no credit, for"
    )
    assert body["findings"] == [
        "No credit: 2 consumers, none grants credit, the longest for 100 s",
        f"{client} 100 s",
    ]
    assert 100 <= body["records"][0]["longestWithoutCreditSeconds"] < 130
    assert 30 <= body["records"][0]["consumers"][0]["withoutCreditSeconds"] < 60
    router.link(connection, "out", "q", credit=1)
    body = explain(router, "q")
    assert body["reachable"]
    assert body["findings"] == [
        "1 of 3 consumers grant credit; the longest without any: 100 s",
        f"{client} 100 s",
    ]


def test_stalled_consumers_are_named(router):
    """Consumers with credit are stalled: the address is not reachable, and each consumer is named."""
    here, broker = router.connection(), router.connection(listener=1)
    router.link(here, "out", "q", credit=95, undelivered=35, stall=StallReason.WINDOW, stall_since=ago(12))
    body = explain(router, "q")
    assert (body["reachable"], body["verdict"]) == (False, "stalled: 1 consumer, none takes messages (window)")
    client = f"Client '{here.container}' ({here.peer}, connection {here.number})"
    assert body["findings"] == [f"{client} takes no transfers: the incoming window of its session is shut, for 12 s"]
    (found,) = body["records"]
    assert (found["consumersWithCredit"], found["consumersAble"], found["deliveriesWaiting"]) == (1, 0, 35)
    (link,) = found["consumers"]
    assert (link["stall"], link["stallText"].split(")")[0] + ")") == ("window", client.replace("C", "c", 1))
    assert 12 <= link["stallSeconds"] < 42
    router.link(broker, "out", "q", credit=1, stall=StallReason.UNREAD, stall_since=ago(3))
    body = explain(router, "q")
    assert body["verdict"] == "stalled: 2 consumers, none takes messages (broker, window)"
    assert "Container 'c2'" in body["findings"][1]
    assert "does not read its connection, for 3 s" in body["findings"][1]
    router.link(here, "out", "q", credit=1)
    body = explain(router, "q")
    assert (body["reachable"], body["findings"][0]) == (True, "1 of 3 consumers can take messages")


def test_unconfirmed_stall_is_ignored(router):
    router.link(router.connection(), "out", "q", credit=5, stall=StallReason.WINDOW | 256, stall_since=ago(1))
    assert explain(router, "q")["reachable"]


def test_stalled_producers_are_named(router):
    here = router.connection()
    out = router.link(here, "out", "q", credit=5)
    router.link(here, "in", "q", stall=StallReason.UNSETTLED, stall_since=ago(9), stall_detail=out, unsettled=250)
    router.link(here, "in", "q", stall=StallReason.RING, stall_since=ago(5))
    body = explain(router, "q")
    assert (body["reachable"], body["findings"][0]) == (True, "1 consumer with credit")
    assert body["findings"][1].startswith("250 deliveries of client 'c1'")
    assert body["findings"][1].endswith(f"connection {here.number}), link {out}, for 9 s")
    assert body["findings"][2].endswith("have to wait: the ring from worker 0 to another one is full, for 5 s")
    rows = router.query("router.link", "stall", "stallSeconds", "stallText")
    assert [row["stall"] for row in rows] == [None, "unsettled", "ring"]
    assert rows[0] == {"stall": None, "stallSeconds": 0, "stallText": None}
    assert rows[1]["stallSeconds"] >= 9
    assert rows[1]["stallText"].startswith("250 deliveries")


def test_unsettled_deliveries_are_reported_before_they_are_stuck(router):
    connection = router.connection()
    router.link(connection, "out", "q", credit=5, unsettled=1)
    body = explain(router, "q")
    client = f"client '{connection.container}' ({connection.peer}, connection {connection.number})"
    assert body["verdict"] == "reachable"
    assert body["findings"][1:] == [f"1 delivery waits for the outcome of a consumer: {client} has it"]
    router.link(connection, "out", "q", credit=5, unsettled=2)
    finding = f"3 deliveries wait for the outcome of a consumer: {client} has 2 of them"
    assert explain(router, "q")["findings"][1:] == [finding]
    assert "holders" not in body["records"][0]


def test_stuck_deliveries_are_reported(router):
    connection = router.connection()
    router.link(connection, "out", "q", credit=5, stuck=2)
    router.link(connection, "out", "q", credit=5, stuck=1)
    body = explain(router, "q")
    assert (body["reachable"], body["verdict"]) == (True, "3 deliveries are stuck")
    client = f"Client '{connection.container}' ({connection.peer}, connection {connection.number})"
    stuck, *holders = body["findings"][1:]
    assert stuck.startswith("3 deliveries are stuck: consumers have them")
    assert holders == [f"{client} has 2 of them", f"{client} has 1 of them"]
    assert "stuckConsumers" not in body["records"][0]
    for _ in range(5):
        router.link(connection, "out", "q", credit=5, stuck=1)
    assert explain(router, "q")["findings"][-1] == "… and 2 more"
    assert body["records"][0]["deliveriesStuck"] == 3


def test_producers_without_consumer_are_explained(router):
    router.link(router.connection(), "in", "q")
    body = explain(router, "q")
    assert (body["reachable"], body["verdict"]) == (False, "no consumer")
    assert body["findings"] == [
        "No consumer: its producers (1) get no credit; messages sent with earlier credit, or on anonymous links, are "
        "released, and dropped if they were sent settled"
    ]


def test_consumers_at_other_phase_are_explained(router):
    connection = router.connection()
    router.link(connection, "in", "way.x")
    router.link(connection, "out", "way.x", credit=1)
    body = explain(router, "way.x")
    assert (body["setting"]["ingressPhase"], body["setting"]["egressPhase"]) == (0, 1)
    assert (body["reachable"], body["verdict"]) == (False, "no consumer at phase 0")
    assert body["findings"] == ["Messages enter at phase 0, which has no consumers; there are consumers at phase 1"]
    assert {each["key"]: each["consumerCount"] for each in body["records"]} == {"M0way.x": 0, "M1way.x": 1}


def test_fallback_consumers_are_explained(router):
    connection = router.connection()
    router.link(connection, "in", "fb.x")
    router.link(connection, "out", "fb.x", ("qd.fallback",), credit=1)
    body = explain(router, "fb.x")
    assert body["reachable"]
    assert body["findings"] == ["It has no consumer: messages go to its fallback consumers", "1 consumer with credit"]
    assert record(body, "M0fb.x")["fallback"] == "MFfb.x"
    assert record(body, "MFfb.x")["fallbackOf"] == "M0fb.x"


def test_exchange_is_explained(router):
    body = explain(router, "ex")
    assert (body["reachable"], body["findings"]) == (True, ["Messages go through exchange 'E' and its bindings (1)"])
    assert record(body, "M0ex")["exchange"] == {
        "name": "E", "match": "amqp", "alternate": None, "bindingCount": 1,
        "bindings": [{"name": "binding/0", "key": "a.b", "nextHop": "M0hop"}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("address", "kind"),
    [("$management", "mobile"), ("_local/$management", "local"), ("_topo/0/QDR/$management", "local")],
)
def test_router_address_is_explained(router, address, kind):
    body = explain(router, address)
    assert (body["class"], body["reachable"]) == (kind, True)
    assert body["findings"] == ["The router itself consumes its messages"]


@pytest.mark.parametrize(
    ("address", "kind", "owner"),
    [
        ("_topo/0/B/x", "router", "router 'B'"),
        ("_edge/E1/x", "edge", "edge router 'E1'"),
        ("_topo/7/B/x", "area", "area '7'"),
    ],
)
def test_address_of_other_router_is_explained(router, address, kind, owner):
    body = explain(router, address)
    assert (body["class"], body["reachable"], body["setting"]) == (kind, False, None)
    assert body["findings"] == [f"It is an address of {owner}, unknown to this router: it is not part of a network"]


def test_listed_consumers_are_limited(router):
    connection = router.connection()
    for _ in range(5):
        router.link(connection, "out", "q", credit=1)
    found = explain(router, "q", limit=2)["records"][0]
    assert (found["consumerCount"], len(found["consumers"])) == (5, 2)
    assert explain(router, "q", limit=0)["findings"] == ["5 consumers with credit"]


def test_links_beyond_one_step_are_counted():
    """Links are read in steps, and all of them count."""
    router = ManagedRouter(links=1300)
    connection = router.connection()
    for number in range(1200):
        router.link(connection, "out", "q" if number % 2 else "other", credit=1)
    assert explain(router, "q")["records"][0]["consumerCount"] == 600


def test_detached_links_do_not_count(router):
    connection = router.connection()
    router.link(connection, "out", "q", credit=1)
    router.link(connection, "in", "q")
    owner = router.workers[0]
    router.core.receive(owner, messages.Detach(conn=connection.number, link=0))
    body = explain(router, "q")
    assert (body["reachable"], body["records"][0]["consumerCount"]) == (False, 0)


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({}, "No 'address' property: say which address to explain"),
        ({"address": 5}, "No 'address' property: say which address to explain"),
        ({"address": "q", "limit": -1}, "'limit' is -1, must be 0 to 10000"),
        ({"address": "q", "limit": "x"}, "'limit' is not a number: 'x'"),
    ],
)
def test_invalid_explain_requests_are_refused(router, properties, text):
    assert router.ask("explain", **properties).outcome == (400, text)
