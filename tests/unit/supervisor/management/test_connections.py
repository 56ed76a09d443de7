"""Type connection: rows of open connections, and the requests that close or trace one (management.md 5.9, 6.5)."""

import pytest
from msgspec.structs import replace

from sluice.router.control import messages
from sluice.router.control.ops import TraceOp
from sluice.supervisor.addresses.inprocess import LocalMessage
from tests.peer import message
from tests.peer.management import PREFIX
from tests.unit.supervisor.management.managed_router import request


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


def test_request_without_reply_to_is_executed(router):
    """The core executes a request even without a reply-to (management.md 5.2)."""
    target = router.connection()
    octets = message.application_properties(
        {"operation": "UPDATE", "type": CONNECTION, "identity": str(target.number)}
    ) + message.value({"adminStatus": "deleted"})
    assert router.raw(octets) == []
    assert target.closing
