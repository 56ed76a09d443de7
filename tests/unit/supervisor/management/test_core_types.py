"""Entity types with columns: their rows, AMQP types and operations (management.md 5.5 to 5.10, 6)."""

import pytest
from msgspec.structs import replace

from router.config.schema import SCHEMA
from router.control import messages
from router.control.ops import TraceOp
from router.testing.interworker import set_address, set_worker
from supervisor.addresses.inprocess import LocalMessage
from tests.peer.management import PREFIX
from tests.peer.types import Int, Long, Map, UInt, ULong
from tests.unit.supervisor.management.managed_router import ManagedRouter, request

CORE = [each for each in SCHEMA.types.values() if each.core_columns]
AMQP_TYPES = {
    "string": str, "ulong": ULong, "uint": UInt, "int": Int, "long": Long, "boolean": bool, "map": Map,
    "list of ulong": list, "list of string": list, "list of long": list,
}  # fmt: skip


@pytest.fixture
def router():
    return ManagedRouter()


@pytest.mark.parametrize("kind", CORE, ids=lambda each: each.name)
def test_columns_and_types_follow_schema(router, kind):
    connection = router.connection()
    router.link(connection, "in", None)
    router.link(connection, "out", "a")
    answer = router.ask("QUERY", {}, entityType=kind.long_name)
    assert answer.body["attributeNames"] == [column.name for column in kind.core_columns]
    for row in answer.body["results"]:
        for column, value in zip(kind.core_columns, row, strict=True):
            if value is None:
                assert column.nullable, column.name
            else:
                assert isinstance(value, AMQP_TYPES[column.amqp_type]), column.name


def test_requested_columns_keep_order(router):
    """Order and repetitions are as requested. A schema attribute without a column is null and shifts nothing."""
    names = ["id", "saslConfigDir", "mode", "id", 5, None]
    answer = router.ask("QUERY", {"attributeNames": names}, entityType=PREFIX + "router")
    assert answer.body["attributeNames"] == ["id", "saslConfigDir", "mode", "id"]
    assert answer.body["results"] == [["QDR", None, "standalone", "QDR"]]


@pytest.mark.parametrize("names", [[], None, "id", {"a": 1}, ["id"] * 64, 7])
def test_query_without_names_returns_all_columns(router, names):
    answer = router.ask("QUERY", {"attributeNames": names}, entityType=PREFIX + "router")
    assert len(answer.body["attributeNames"]) == 33


PAGES = [
    ({}, list(range(10))),
    ({"offset": 0, "count": 3}, [0, 1, 2]),
    ({"offset": ULong(8), "count": ULong(500)}, [8, 9]),
    ({"offset": "7", "count": "2"}, [7, 8]),
    ({"offset": 10}, []),
    ({"offset": 2**40}, []),
    ({"offset": ULong(2**64 - 1), "count": ULong(2**64 - 1)}, []),
    ({"offset": -1}, []),
    ({"count": 0}, list(range(10))),
    ({"count": -4}, list(range(10))),
]


@pytest.mark.parametrize(("page", "expected"), PAGES)
def test_query_pages_are_cut(router, page, expected):
    connection = router.connection()
    identities = [router.link(connection) for _ in range(10)]
    rows = router.query("router.link", "identity", **page)
    assert [row["identity"] for row in rows] == [str(identities[index]) for index in expected]


@pytest.mark.parametrize("key", ["offset", "count"])
@pytest.mark.parametrize("kind", ["router.link", "log"])
def test_non_numeric_page_is_refused(router, key, kind):
    answer = router.ask("QUERY", {}, entityType=PREFIX + kind, **{key: "many"})
    assert answer.outcome == (400, f"'{key}' is not a number: 'many'")


# management.md 6.1.
def test_router_row_shows_counters(router):
    set_worker(router.region, 0, accepted=3, ingress=5)
    set_worker(router.region, 1, accepted=4, presettled=2)
    router.link(router.connection())
    (row,) = router.query("router")
    assert (row["id"], row["name"], row["identity"], row["mode"], row["area"]) == ("QDR", "QDR", "1", "standalone", "0")
    assert (row["version"], row["metadata"], row["workerThreads"]) == ("9.9", "of tests", 2)
    assert (row["acceptedDeliveries"], row["deliveriesIngress"], row["presettledDeliveries"]) == (7, 5, 2)
    assert (row["connectionCount"], row["linkCount"], row["addrCount"]) == (1, 1, len(router.core.table.records))
    assert row["memoryUsage"] > 1 << 20
    assert router.query("router", "blockedLinkCount", "linksBlocked") == [{"blockedLinkCount": 0, "linksBlocked": 0}]


# management.md 6.2.
def test_link_row_shows_counters(router):
    connection = router.connection(worker=1)
    first = router.link(
        connection, "in", "closest/x", capacity=250, credit=249, deliveries=9, accepted=3, rejected=1, released=2,
        modified=1, presettled=1, dropped_presettled=1, delayed_1s=2, delayed_10s=1, unsettled=1,
    )  # fmt: skip
    second = router.link(connection, "out", "closest/x", undelivered=4)
    one, two = router.query("router.link")
    assert (one["identity"], two["identity"]) == (str(first), str(second))
    assert (one["name"], one["linkName"], one["linkDir"], one["owningAddr"]) == (
        "link-0",
        "link-0",
        "in",
        "M0closest/x",
    )
    assert (one["capacity"], one["creditAvailable"], one["deliveryCount"], one["unsettledCount"]) == (250, 249, 9, 1)
    assert [one[f"{name}Count"] for name in ("accepted", "rejected", "released", "modified")] == [3, 1, 2, 1]
    assert (one["presettledCount"], one["droppedPresettledCount"]) == (1, 1)
    assert (one["deliveriesDelayed1Sec"], one["deliveriesDelayed10Sec"]) == (2, 1)
    assert (one["connectionId"], one["linkType"], one["adminStatus"], one["priority"]) == (
        "1",
        "endpoint",
        "enabled",
        4,
    )
    assert (one["peer"], one["ingressHistogram"]) == (None, None)
    assert (two["linkDir"], two["undeliveredCount"], len(two["ingressHistogram"])) == ("out", 4, 128)


def test_link_status_depends_on_address(router):
    router.link(router.connection(), "in", None)
    assert router.query("router.link", "operStatus", "owningAddr") == [{"operStatus": "up", "owningAddr": None}]
    router.link(router.connection(), "out", "x")
    assert [row["operStatus"] for row in router.query("router.link", "operStatus")] == ["up", "down"]


def test_zero_credit_seconds_are_shown(router):
    router.link(router.connection(), "in", None, blocked_since=1)
    assert router.query("router.link", "zeroCreditSeconds")[0]["zeroCreditSeconds"] > 0


# management.md 6.3.
def test_address_row_shows_counters(router):
    connection = router.connection()
    router.link(connection, "out", "closest/x")
    router.link(connection, "out", "closest/x")
    record = router.core.table.records["M0closest/x"]
    set_address(router.region, 0, record.id, ingress=2, egress=3)
    set_address(router.region, 1, record.id, ingress=5, redirected=1)
    answer = router.ask("READ", type=PREFIX + "router.address", name="M0closest/x")
    row = answer.body
    assert (row["key"], row["name"], row["identity"]) == ("M0closest/x",) * 3
    assert (row["distribution"], row["subscriberCount"], row["priority"], row["inProcess"]) == ("closest", 2, 7, 0)
    assert (row["deliveriesIngress"], row["deliveriesEgress"], row["deliveriesRedirectedToFallback"]) == (7, 3, 1)
    assert (row["remoteHostRouters"], row["transitOutstanding"], row["trackedDeliveries"]) == ([], None, 0)
    keys = [each["key"] for each in router.query("router.address", "key", "inProcess") if each["inProcess"]]
    assert set(keys) >= {"M0$management", "L$management"}
    assert router.ask("READ", type=PREFIX + "router.address", identity="Mx").outcome == (404, "Not Found")
    assert router.ask("READ", type=PREFIX + "router.address").outcome == (404, "Not Found")


# management.md 6.5.
def test_connection_row_shows_properties(router):
    tls = messages.TlsFacts(protocol="TLSv1.3", cipher="AES", ssf=256)
    router.connection(properties={"product": "x", "n": 5, "big": 2**40, "list": [1, None], "ü": 1.5}, tls=tls)
    router.connection(1, 1, hostname="acme", mechanism=None, user=None)
    one, two = router.query("connection")
    assert (one["identity"], one["host"], one["name"]) == ("1", "10.0.0.1:1000", "connection/10.0.0.1:1000")
    assert (one["container"], one["role"], one["dir"], one["protocol"]) == ("c1", "normal", "in", "amqp")
    assert (one["sasl"], one["isAuthenticated"], one["user"]) == ("ANONYMOUS", True, "anonymous")
    assert (one["isEncrypted"], one["ssl"], one["sslProto"], one["sslCipher"], one["sslSsf"]) == (
        True, False, "TLSv1.3", "AES", 256,  # `ssl` is about the listener
    )  # fmt: skip
    assert dict(one["properties"]) == {"product": "x", "n": 5, "big": 2**40, "list": [1, None], "ü": 1.5}
    assert (one["tenant"], one["active"], one["opened"], one["lastDlvSeconds"]) == (None, True, True, None)
    assert (two["tenant"], two["role"], two["isAuthenticated"], two["sasl"]) == (
        "acme/",
        "route-container",
        False,
        None,
    )


def test_closed_connections_leave_rows(router):
    one, two = router.connection(0), router.connection(1)
    router.link(one)
    router.core.receive(router.workers[0], messages.Closed(conn=one.number, error=None))
    assert [row["identity"] for row in router.query("connection", "identity")] == [str(two.number)]
    assert router.query("router.link") == []
    router.core.lost(router.workers[1], lambda: None)
    assert router.query("connection") == []


CONNECTION = PREFIX + "connection"


def test_deleted_connection_is_closed_once(router):
    target, other = router.connection(1), router.connection(0)
    answer = router.ask("UPDATE", {"adminStatus": "deleted", "enableProtocolTrace": True}, other.number,
                      type=CONNECTION, identity=str(target.number))  # fmt: skip
    assert answer.outcome == (200, "OK")
    assert (answer.body["adminStatus"], answer.body["operStatus"]) == ("deleted", "closing")
    assert answer.body["enableProtocolTrace"] is True
    assert router.workers[1].outbox[-1:] == [
        messages.Close(target.number, "amqp:connection:forced", "Connection forced-closed by management request"),
    ]
    before = list(router.workers[1].outbox)
    assert router.ask("UPDATE", {"adminStatus": "deleted"}, type=CONNECTION, identity=str(target.number)).status == 200
    assert router.workers[1].outbox == before, "closed once"


def test_connection_trace_is_switched(router):
    target = router.connection()
    for value, shown in ((True, True), ("yes", False), (True, True), (False, False)):
        answer = router.ask("UPDATE", {"enableProtocolTrace": value}, type=CONNECTION, identity=str(target.number))
        assert answer.body["enableProtocolTrace"] is shown
    switched = [op for op in router.published if isinstance(op, TraceOp)]
    assert switched == [TraceOp(target.number, on) for on in (True, False, True, False)]
    assert [op for op in router.core.events.snapshot_ops() if isinstance(op, TraceOp)] == [
        TraceOp(target.number, False)
    ]


def test_unswitched_trace_is_left_to_log(router):
    target = router.connection()
    assert [op for op in router.core.events.snapshot_ops() if isinstance(op, TraceOp)] == []
    router.ask("UPDATE", {"enableProtocolTrace": False}, type=CONNECTION, identity=str(target.number))
    assert [op for op in router.published if isinstance(op, TraceOp)] == [TraceOp(target.number, False)]


def test_trace_switch_is_answered_after_acknowledgements(router):
    target = router.connection()
    body = {"enableProtocolTrace": True}
    router.agent.handle(LocalMessage(1, None, request({"operation": "UPDATE", "type": CONNECTION,
                                                    "identity": str(target.number)}, body)))  # fmt: skip
    epoch, ops = router.core.take_delta()
    assert TraceOp(target.number, True) in ops
    router.core.journal.acknowledge(0, epoch)
    assert router.core.take_delta() is None
    assert router.sent == []
    router.core.journal.acknowledge(1, epoch)
    router.core.take_delta()
    assert len(router.sent) == 1


def test_snapshot_names_traced_connections(router):
    target = router.connection()
    router.connection()
    router.ask("UPDATE", {"enableProtocolTrace": True}, type=CONNECTION, identity=str(target.number))
    assert [op for op in router.core.events.snapshot_ops() if isinstance(op, TraceOp)] == [TraceOp(target.number, True)]


BAD_UPDATES: list[tuple[str | None, object]] = [
    ("1", {}), ("1", "text"), ("1", None), ("1", {"adminStatus": "off"}), ("1", {"name": "n"}),
    ("77", {"adminStatus": "deleted"}), ("x", {"adminStatus": "deleted"}), (None, {"adminStatus": "deleted"}),
]  # fmt: skip


@pytest.mark.parametrize(("identity", "body"), BAD_UPDATES)
def test_invalid_connection_updates_are_refused(router, identity, body):
    router.connection()
    target = {"type": CONNECTION} if identity is None else {"type": CONNECTION, "identity": identity}
    answer = router.ask("UPDATE", body, **target)
    assert (answer.outcome, answer.body) == ((400, "Bad Request"), {})


# brokers-and-edge.md ED-25.
@pytest.mark.parametrize("role", ["edge", "inter-router"])
def test_connection_of_router_is_not_closed_by_request(router, role):
    connection = router.connection()
    connection.origin = replace(connection.origin, role=role)
    answer = router.ask("UPDATE", {"adminStatus": "deleted"}, type=CONNECTION, identity="1")
    assert answer.outcome == (403, "You are not allowed to perform this operation.")
    assert not connection.closing


def test_update_by_lost_requester_is_refused(router):
    router.connection()
    answer = router.ask("UPDATE", {"adminStatus": "deleted"}, 99, type=CONNECTION, identity="1")
    assert answer.outcome == (400, "Bad Request")
    assert not router.workers[0].outbox


def test_enabled_status_changes_nothing(router):
    router.connection()
    answer = router.ask("UPDATE", {"adminStatus": "enabled"}, type=CONNECTION, identity="1")
    assert (answer.status, answer.body["adminStatus"], router.workers[0].outbox) == (200, "enabled", [])


def test_connection_is_read_by_identity(router):
    router.connection()
    assert router.ask("READ", type=CONNECTION, identity="1").body["container"] == "c1"
    wrong = (400, "Name not supported. Identity required")
    assert router.ask("READ", type=CONNECTION, name="connection/10.0.0.1:1000").outcome == wrong
    assert router.ask("READ", type=CONNECTION).outcome == wrong
    assert router.ask("READ", type=CONNECTION, identity="5").outcome == (404, "Not Found")


def test_links_are_read_by_identity_and_name(router):
    number = router.link(router.connection())
    link = PREFIX + "router.link"
    for operation, body in (("READ", {}), ("UPDATE", {"adminStatus": "disabled"})):
        for target in ({"identity": str(number)}, {"identity": ULong(number)}, {"name": "link-0"}):
            answer = router.ask(operation, body, type=link, **target)
            assert (answer.status, answer.body["identity"], answer.body["adminStatus"]) == (200, str(number), "enabled")
        assert router.ask(operation, body, type=link, identity="999").outcome == (404, "Not Found")
        assert router.ask(operation, body, type=link, name="none").outcome == (404, "Not Found")
        assert router.ask(operation, body, type=link).outcome == (400, "Bad Request")
    useless: object
    for useless in ({}, "x", None):
        answer = router.ask("UPDATE", useless, type=link, identity=str(number))
        assert (answer.outcome, answer.body) == ((400, "Bad Request"), {})


REFUSED: list[tuple[str, str, int, object]] = [
    ("router", "READ", 403, {}), ("router", "CREATE", 403, None), ("router", "UPDATE", 501, {}),
    ("router", "DELETE", 403, {}), ("router.link", "CREATE", 501, None), ("router.link", "DELETE", 501, {}),
    ("router.address", "CREATE", 501, None), ("router.address", "UPDATE", 501, {}),
    ("router.address", "DELETE", 501, {}), ("connection", "CREATE", 501, None), ("connection", "DELETE", 403, {}),
    ("router.config.address", "UPDATE", 501, {}), ("router.config.exchange", "UPDATE", 501, {}),
    ("router.config.binding", "UPDATE", 501, {}), ("router.connection.linkRoute", "UPDATE", 501, {}),
    ("console", "READ", 403, {}), ("console", "CREATE", 403, None), ("console", "UPDATE", 403, None),
    ("console", "DELETE", 403, {}), ("console", "QUERY", 403, {"attributeNames": [], "results": []}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "operation", "status", "body"), REFUSED)
def test_unsupported_operations_are_answered(router, kind, operation, status, body):
    answer = router.ask(operation, {}, type=PREFIX + kind, identity="1")
    assert (answer.status, answer.body) == (status, body)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("router.config.address", {}),
        ("router.config.linkRoute", {"direction": "in"}),
        ("router.config.binding", {"exchangeName": "E", "nextHopAddress": "h"}),
    ],
)
def test_pattern_tokens_are_bounded(router, kind, body):
    key = "bindingKey" if kind.endswith("binding") else "pattern"
    status, text = router.ask("CREATE", {**body, key: ".".join("a" * 101)}, type=PREFIX + kind).outcome
    assert (status, "invalid" in text) == (400, True)
    assert router.ask("CREATE", {**body, key: ".".join("a" * 100)}, type=PREFIX + kind).status == 201


# management.md 6.7.
def test_configured_addresses_are_shown(router):
    one, two, three = router.query("router.config.address")
    assert (one["identity"], one["name"], one["prefix"], one["pattern"]) == ("1", "address/0", "closest", None)
    assert (one["distribution"], one["priority"], one["waypoint"], one["fallback"]) == ("closest", 7, False, False)
    assert (two["name"], two["pattern"], two["prefix"], two["fallback"], two["priority"]) == (
        "fb",
        "fb.*",
        None,
        True,
        -1,
    )
    assert (three["waypoint"], three["ingressPhase"], three["egressPhase"]) == (True, 0, 1)
    read = router.ask("READ", type=PREFIX + "router.config.address", identity="2")
    assert read.body == two
    assert router.ask("READ", type="router.config.address", name="fb").body == two
    nothing = (400, "No name or identity provided")
    for operation in ("READ", "DELETE"):
        assert router.ask(operation, type=PREFIX + "router.config.address").outcome == nothing
        assert router.ask(operation, type=PREFIX + "router.config.address", name="no").outcome == (404, "Not Found")


def test_exchanges_and_bindings_are_shown(router):
    (exchange,) = router.query("router.config.exchange")
    assert (exchange["name"], exchange["identity"], exchange["address"], exchange["matchMethod"]) == (
        "E", "4", "ex", "amqp",
    )  # fmt: skip
    assert (exchange["bindingCount"], exchange["alternateAddress"], exchange["alternatePhase"]) == (1, None, None)
    (binding,) = router.query("router.config.binding")
    assert (binding["identity"], binding["name"], binding["bindingKey"]) == ("5", "binding/0", "a.b")
    assert router.ask("READ", type=PREFIX + "router.config.binding").outcome == (
        400, "No binding name or identity provided",
    )  # fmt: skip
    assert router.ask("READ", type=PREFIX + "router.config.binding", name="nope").outcome == (404, "Not Found")
    counters = router.core.exchanges.exchange_counters("E")
    set_address(router.region, 0, counters, ingress=5, egress=3, redirected=1)
    set_address(router.region, 1, counters, ingress=2, egress=2)
    (exchange,) = router.query("router.config.exchange")
    names = ("receivedCount", "forwardedCount", "droppedCount", "divertedCount")
    assert [exchange[name] for name in names] == [7, 5, 2, 1]
    set_address(router.region, 1, router.core.exchanges.binding_counters("binding/0"), ingress=9)
    assert router.query("router.config.binding", "matchedCount") == [{"matchedCount": 9}]


def test_link_numbers_follow_configuration(router):
    assert router.link(router.connection()) == 6


def test_request_without_reply_to_is_executed(router):
    """The core executes a request even without a reply-to (management.md 5.2)."""
    from tests.peer import message

    target = router.connection()
    octets = message.application_properties(
        {"operation": "UPDATE", "type": CONNECTION, "identity": str(target.number)}
    ) + message.value({"adminStatus": "deleted"})
    assert router.raw(octets) == []
    assert target.closing
