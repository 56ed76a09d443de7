"""CREATE and DELETE of addresses, exchanges and bindings; closing of connections; requests that the core refuses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from proton import ConnectionException, Message, symbol
from proton.reactor import AtMostOnce, Container
from proton.utils import BlockingConnection

from tests.interop.dispatch.expected import KINDS
from tests.interop.dispatch.node import PREFIX, ManagementNode, refused
from tests.system.router import RouterProcess, poll

Fresh = Callable[[str], str]
ADDRESS = "router.config.address"
EXCHANGE = "router.config.exchange"
BINDING = "router.config.binding"


def client(
    shared_router: RouterProcess, container_id: str = "a-client", sasl: bool = False, **options: Any
) -> BlockingConnection:
    """Connect a client."""
    container = Container()
    container.container_id = container_id
    url = f"127.0.0.1:{shared_router.port}"
    return BlockingConnection(url, container=container, sasl_enabled=sasl, timeout=10, **options)


# --- address ------------------------------------------------------------------------------------------------------


def test_address_created_by_management_takes_effect(
    node: ManagementNode, fresh: Fresh, shared_router: RouterProcess
) -> None:
    """The answer has all columns, new addresses get the setting, and it is deleted by name or identity."""
    name = fresh("address")
    made = node.create(ADDRESS, name, prefix=f"/{name}.", distribution="multicast")
    assert made.attributes == {
        "name": name, "identity": made.identity, "type": PREFIX + ADDRESS, "prefix": name, "pattern": None,
        "distribution": "multicast", "waypoint": False, "ingressPhase": 0, "egressPhase": 0, "priority": -1,
        "fallback": False,
    }  # fmt: skip
    assert int(made.identity) > 0
    assert node.read(ADDRESS, name=name).attributes == made.attributes
    assert node.read(ADDRESS, identity=made.identity).attributes == made.attributes
    connection = client(shared_router)
    connection.create_receiver(f"{name}/a")
    row = poll(lambda: node.rows("router.address", key=f"M0{name}/a"), "the address shows")[0]
    assert row["distribution"] == "multicast"
    connection.close()
    node.delete(ADDRESS, name=name)
    assert refused(node.read, ADDRESS, identity=made.identity) == (404, "Not Found")
    assert refused(node.delete, ADDRESS, identity=made.identity) == (404, "Not Found")
    again = node.create(ADDRESS, name, pattern=f"{name}/#")
    assert (again.pattern, again.prefix, again.distribution) == (f"{name}/#", None, "balanced")
    node.delete(ADDRESS, identity=again.identity)


def test_address_with_phases_is_created(node: ManagementNode, fresh: Fresh) -> None:
    name = fresh("phases")
    made = node.create(ADDRESS, name, prefix=name, ingressPhase=2, egressPhase="3", priority=7)
    assert (made.ingressPhase, made.egressPhase, made.priority, made.waypoint) == (2, 3, 7, False)
    made.delete()
    made = node.create(ADDRESS, name, prefix=name, waypoint=True)
    assert (made.ingressPhase, made.egressPhase, made.waypoint) == (0, 1, True)
    made.delete()


@pytest.mark.parametrize("attribute", ["fallback", "enableFallback"])
def test_address_with_fallback_is_created(attribute: str, node: ManagementNode, fresh: Fresh) -> None:
    name = fresh("fall")
    made = node.create(ADDRESS, name, prefix=name, **{attribute: True})
    assert made.fallback is True
    made.delete()


def test_address_without_name_is_created(node: ManagementNode, fresh: Fresh) -> None:
    """The name is null; a name in the body is ignored."""
    body = {"prefix": fresh("nameless"), "name": "ignored", "distribution": "nonsense"}
    made = node.call(node.request(body, operation="CREATE", type=PREFIX + ADDRESS), 201).body
    assert made["name"] is None
    assert made["distribution"] == "balanced"
    node.delete(ADDRESS, identity=made["identity"])


def test_address_with_unknown_attribute_is_refused(node: ManagementNode, fresh: Fresh) -> None:
    """1.19 ignores an unknown attribute."""
    text = f"Unknown attribute 'bogus' for '{PREFIX}{ADDRESS}'"
    assert refused(node.create, ADDRESS, prefix=fresh("odd"), bogus=1) == (400, text)


PHASES = "Phase values must be between 0 and 9"


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({}, "Either a 'prefix' or 'pattern' attribute must be provided"),
        ({"prefix": "a", "pattern": "b"}, "Cannot specify both a 'prefix' and a 'pattern' attribute"),
        (
            {"prefix": "f", "fallback": True, "waypoint": True},
            "Fallback cannot be specified with waypoint or non-zero ingress and egress phases",
        ),
        ({"prefix": ""}, "Prefix must be a non-empty string type"),
        ({"prefix": 7}, "Prefix must be a non-empty string type"),
        ({"pattern": ""}, "Pattern must be a non-empty string type"),
        ({"prefix": "/./"}, "Prefix invalid - no tokens"),
        ({"pattern": "..."}, "Pattern invalid - no tokens"),
        ({"prefix": "p", "ingressPhase": 10, "egressPhase": 0}, PHASES),
        ({"prefix": "p", "ingressPhase": -3, "egressPhase": 0}, PHASES),
        ({"prefix": "p", "ingressPhase": 1}, PHASES),
        ({"prefix": "p", "egressPhase": 1}, PHASES),
        ({"prefix": "p", "priority": 10}, "Priority value, if present, must be between 0 and QDR_MAX_PRIORITY"),
        ({"prefix": "closest"}, "Already exists"),
        ({"pattern": "closest/#"}, "Already exists"),
        ({"pattern": "closest.#"}, "Already exists"),
    ],
)
def test_invalid_address_is_refused(attributes: dict[str, Any], said: str, node: ManagementNode) -> None:
    before = len(node.rows(ADDRESS))
    request = node.request(attributes, operation="CREATE", type=PREFIX + ADDRESS)
    answer: Any = node.client.call(request)
    assert answer.properties["statusCode"] == 400
    assert answer.properties["statusDescription"] == said
    assert answer.body is None
    assert len(node.rows(ADDRESS)) == before


def test_address_names_are_unique(node: ManagementNode, fresh: Fresh) -> None:
    name = fresh("unique")
    node.create(ADDRESS, name, prefix=name)
    answer = refused(node.create, ADDRESS, name, prefix=fresh("other"))
    assert answer == (400, "Name conflicts with an existing entity")
    node.delete(ADDRESS, name=name)


@pytest.mark.parametrize("kind", [ADDRESS, EXCHANGE, BINDING])
def test_body_other_than_map_is_refused(kind: str, node: ManagementNode) -> None:
    request = node.request(["x"], operation="CREATE", type=PREFIX + kind, name="n")
    assert refused(node.call, request) == (400, "Body of request must be a map")


# --- exchange and binding -----------------------------------------------------------------------------------------


@pytest.fixture
def exchange(node: ManagementNode, fresh: Fresh) -> Iterator[Any]:
    """Exchange with an alternate address; deleted after the test."""
    name = fresh("exchange")
    yield node.create(EXCHANGE, name, address=f"{name}/in", alternateAddress=f"{name}/other", matchMethod="mqtt")
    if node.rows(EXCHANGE, name=name):
        node.delete(EXCHANGE, name=name)


def test_exchange_deletion_removes_bindings(node: ManagementNode, exchange: Any) -> None:
    assert exchange.attributes == {
        "name": exchange.name, "identity": exchange.identity, "address": f"{exchange.name}/in", "phase": 0,
        "alternateAddress": f"{exchange.name}/other", "alternatePhase": 0, "matchMethod": "mqtt", "bindingCount": 0,
        "receivedCount": 0, "droppedCount": 0, "forwardedCount": 0, "divertedCount": 0,
    }  # fmt: skip
    first = node.create(BINDING, f"{exchange.name}-1", exchangeName=exchange.name, nextHopAddress="hop")
    assert first.attributes == {
        "name": f"{exchange.name}-1", "identity": first.identity, "exchangeName": exchange.name, "bindingKey": "#",
        "nextHopAddress": "hop", "nextHopPhase": 0, "matchedCount": 0,
    }  # fmt: skip
    node.create(BINDING, None, exchangeName=exchange.name, bindingKey="a/+", nextHopAddress="hop", nextHopPhase=1)
    assert node.one(EXCHANGE, name=exchange.name)["bindingCount"] == 2
    assert refused(node.read, BINDING, name="none") == (404, "Not Found")
    assert refused(node.delete, BINDING, name="none") == (404, "Not Found")
    node.delete(BINDING, name=first.name)
    assert [row["name"] for row in node.rows(BINDING, exchangeName=exchange.name)] == [None]
    node.delete(EXCHANGE, name=exchange.name)
    assert node.rows(BINDING, exchangeName=exchange.name) == []


@pytest.mark.parametrize(
    ("name", "attributes", "said"),
    [
        (None, {"address": "a"}, "exchange requires a unique name"),
        ("x", {}, "exchange address is mandatory"),
        ("x", {"address": "NAME/in"}, "duplicate exchange address"),
        ("NAME", {"address": "a"}, "duplicate exchange name"),
        ("x", {"address": "a", "matchMethod": "regexp"}, "Exchange matchMethod must be either 'amqp' or 'mqtt'"),
        ("x", {"address": "a", "phase": 10}, "phase must be in the range 0-9"),
        ("x", {"address": "a", "alternateAddress": "b", "alternatePhase": -1}, "phase must be in the range 0-9"),
    ],
)
def test_invalid_exchange_is_refused(
    name: str | None, attributes: dict[str, Any], said: str, node: ManagementNode, exchange: Any
) -> None:
    filled = {key: str(value).replace("NAME", exchange.name) if "Phase" not in key and key != "phase" else value
              for key, value in attributes.items()}  # fmt: skip
    name = name and name.replace("NAME", exchange.name)
    assert refused(node.create, EXCHANGE, name, **filled) == (400, said)
    assert len(node.rows(EXCHANGE)) == 1


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"nextHopAddress": "h"}, "Binding configuration requires an exchange"),
        ({"exchangeName": "none", "nextHopAddress": "h"}, "Named exchange does not exist"),
        ({"exchangeName": "NAME"}, "No next hop specified"),
        ({"exchangeName": "NAME", "bindingKey": "a/#/b", "nextHopAddress": "h"}, "The binding key pattern is invalid"),
        ({"exchangeName": "NAME", "nextHopAddress": "h", "nextHopPhase": 10}, "phase must be in the range 0-9"),
        ({"exchangeName": "NAME", "nextHopAddress": "h", "name": "hop"}, "Duplicate next hop name"),
        ({"exchangeName": "NAME", "nextHopAddress": "hop"}, "Next hop for key already exists"),
    ],
)
def test_invalid_binding_is_refused(attributes: dict[str, Any], said: str, node: ManagementNode, exchange: Any) -> None:
    node.create(BINDING, "hop", exchangeName=exchange.name, nextHopAddress="hop")
    body = dict(attributes)
    name = body.pop("name", None)
    if body.get("exchangeName") == "NAME":
        body["exchangeName"] = exchange.name
    assert refused(node.create, BINDING, name, **body) == (400, said)
    assert len(node.rows(BINDING)) == 1


@pytest.mark.timeout(60)
def test_exchange_counters_match_traffic(node: ManagementNode, exchange: Any, shared_router: RouterProcess) -> None:
    """An exchange created at run time counts received, forwarded, diverted, dropped and matched messages."""
    node.create(BINDING, f"{exchange.name}-b", exchangeName=exchange.name, bindingKey="a/+", nextHopAddress="ex/hop")
    connection = client(shared_router)
    hop = connection.create_receiver("ex/hop", credit=10)
    other = connection.create_receiver(f"{exchange.name}/other", credit=10)
    sender = connection.create_sender(f"{exchange.name}/in", options=AtMostOnce())
    for subject, receiver in [("a/b", hop), ("a/c", hop), ("b", other)]:
        sender.send(Message(subject=subject, body=subject))
        assert receiver.receive(timeout=10).body == subject

    def counted() -> bool:
        row = node.one(EXCHANGE, name=exchange.name)
        counts = [row[f"{what}Count"] for what in ("received", "forwarded", "diverted", "dropped")]
        return counts == [3, 3, 1, 0] and node.one(BINDING, name=f"{exchange.name}-b")["matchedCount"] == 2

    poll(counted, f"counters of the exchange: {node.one(EXCHANGE, name=exchange.name)}")
    connection.close()


# --- operations that a core type does not have --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "operation", "status"),
    [
        ("router", "READ", 403), ("router", "CREATE", 403), ("router", "UPDATE", 501), ("router", "DELETE", 403),
        ("router.address", "CREATE", 501), ("router.address", "UPDATE", 501), ("router.address", "DELETE", 501),
        ("router.link", "CREATE", 501), ("router.link", "DELETE", 501),
        ("connection", "CREATE", 501), ("connection", "DELETE", 403),
        (ADDRESS, "UPDATE", 501), (EXCHANGE, "UPDATE", 501), (BINDING, "UPDATE", 501),
        ("router.config.linkRoute", "UPDATE", 501), ("router.config.autoLink", "UPDATE", 501),
        ("router.connection.linkRoute", "UPDATE", 501),
        ("console", "CREATE", 403), ("console", "READ", 403), ("console", "UPDATE", 403), ("console", "DELETE", 403),
    ],
)  # fmt: skip
def test_unsupported_operation_is_refused(kind: str, operation: str, status: int, node: ManagementNode) -> None:
    identity = node.rows(kind)[0]["identity"] if kind in ("router", "router.link", "connection") else "1"
    request = node.request({"metadata": "x"}, operation=operation, type=PREFIX + kind, identity=identity)
    code, text = refused(node.call, request)
    assert code == status
    if status == 403:
        assert text == "Forbidden"


@pytest.mark.parametrize("kind", ["address", "exchange", "linkRoute", "autoLink"])
def test_delete_without_name_is_refused(kind: str, node: ManagementNode) -> None:
    assert refused(node.delete, f"router.config.{kind}") == (400, "No name or identity provided")
    assert refused(node.delete, f"router.config.{kind}", name="none") == (404, "Not Found")


def test_binding_delete_without_name_is_refused(node: ManagementNode) -> None:
    assert refused(node.delete, BINDING) == (400, "No binding name or identity provided")


def test_lower_case_query_reads_store(node: ManagementNode) -> None:
    """Only the five operation names in capitals select live state; others select the store."""
    request = node.node_request({}, operation="query", entityType=PREFIX + "router.link")
    answer = node.call(request).body
    assert answer["results"] == []


# --- links --------------------------------------------------------------------------------------------------------


def test_link_update_changes_nothing(node: ManagementNode) -> None:
    """Any adminStatus is accepted and changes nothing."""
    link = node.rows("router.link")[0]
    answer = node.update({"adminStatus": "disabled"}, "router.link", identity=link["identity"])
    assert set(answer.attributes) == set(link)
    assert answer.adminStatus == "enabled"
    assert refused(node.update, {}, "router.link", identity=link["identity"]) == (400, "Bad Request")
    assert refused(node.update, {"adminStatus": "enabled"}, "router.link") == (400, "Bad Request")
    assert refused(node.update, {"adminStatus": "x"}, "router.link", identity="999999") == (404, "Not Found")


# --- connections --------------------------------------------------------------------------------------------------


def identity_of(node: ManagementNode, container: str) -> str:
    """Return the identity of the connection of a container."""
    return str(node.one("connection", container=container)["identity"])


def test_deleted_connection_is_force_closed(node: ManagementNode, shared_router: RouterProcess, fresh: Fresh) -> None:
    """adminStatus deleted closes with amqp:connection:forced and removes the row; the log names the requester."""
    container = fresh("victim")
    connection = client(shared_router, container_id=container)
    receiver = connection.create_receiver("balanced/victim")
    identity = identity_of(node, container)
    before = len(shared_router.lines)
    answer = node.update({"adminStatus": "deleted"}, "connection", identity=identity)
    assert set(answer.attributes) == set(KINDS["connection"].column_names)
    assert (answer.adminStatus, answer.operStatus, answer.identity) == ("deleted", "closing", identity)
    with pytest.raises(ConnectionException, match="amqp:connection:forced.*closed by management request"):
        receiver.receive(timeout=10)
    poll(lambda: not node.rows("connection", container=container), "the closed connection is gone")
    assert not node.rows("router.link", connectionId=identity)
    shared_router.wait_log(
        rf"\[C{identity}\] Connection force-closed by request from connection \[C\d+\]", after=before
    )


def test_invalid_connection_update_is_refused(node: ManagementNode, shared_router: RouterProcess, fresh: Fresh) -> None:
    container = fresh("kept")
    connection = client(shared_router, container_id=container)
    identity = identity_of(node, container)
    assert node.update({"adminStatus": "enabled"}, "connection", identity=identity).operStatus == "up"
    for body, where in [
        ({"adminStatus": "gone"}, identity),
        ({"adminStatus": "deleted"}, "999999"),
        ({"adminStatus": "deleted"}, None),
        ({}, identity),
        (["adminStatus"], identity),
    ]:
        assert refused(node.update, body, "connection", identity=where) == (400, "Bad Request")
    assert identity_of(node, container) == identity
    connection.close()


def test_protocol_trace_of_connection_takes_effect(
    node: ManagementNode, shared_router: RouterProcess, fresh: Fresh
) -> None:
    """enableProtocolTrace takes effect at once, whatever the log level of PROTOCOL is."""
    node.update({"enable": "none"}, "log", identity="log/PROTOCOL")
    container = fresh("traced")
    connection = client(shared_router, container_id=container)
    identity = identity_of(node, container)
    assert node.one("connection", container=container)["enableProtocolTrace"] is False
    answer = node.update({"enableProtocolTrace": True}, "connection", identity=identity)
    assert answer.enableProtocolTrace is True
    frame = re.compile(rf"PROTOCOL .*\[C{identity}\]:FRAME: \d+ <- @attach\(18\)")

    def traced() -> bool:
        # The first attach may arrive before the worker has received the change.
        connection.create_receiver("balanced/traced", name=fresh("traced"))
        return frame.search(shared_router.log) is not None

    poll(traced, "frames of the connection are in the log")
    assert node.update({"enableProtocolTrace": False}, "connection", identity=identity).enableProtocolTrace is False
    node.update({"enable": "default"}, "log", identity="log/PROTOCOL")
    connection.close()


def test_connection_row_shows_client_properties(
    node: ManagementNode, shared_router: RouterProcess, fresh: Fresh
) -> None:
    """The row shows the client's open frame, with and without SASL."""
    container = fresh("plain")
    connection = client(
        shared_router,
        container_id=container,
        properties={"text": "täxt", symbol("number"): 6451, "flag": True, "big": 2**40},
    )
    row = node.one("connection", container=container)
    assert (row["role"], row["dir"], row["protocol"], row["tenant"]) == ("normal", "in", "amqp", None)
    assert (row["sasl"], row["isAuthenticated"], row["isEncrypted"], row["ssl"]) == (None, False, False, False)
    assert (row["sslProto"], row["sslCipher"], row["sslSsf"]) == (None, None, 0)
    assert (row["opened"], row["active"], row["adminStatus"], row["operStatus"]) == (True, True, "enabled", "up")
    assert row["properties"]["text"] == "täxt"
    assert row["properties"]["number"] == 6451
    assert row["properties"].get("big", 2**40) == 2**40
    assert row["lastDlvSeconds"] is None
    assert row["name"] == f"connection/{row['host']}"
    assert row["host"].startswith("127.0.0.1:")
    connection.close()
    container = fresh("sasl")
    connection = client(shared_router, container, sasl=True, allowed_mechs="ANONYMOUS")
    row = node.one("connection", container=container)
    assert (row["sasl"], row["isAuthenticated"], row["user"]) == ("ANONYMOUS", True, "anonymous")
    connection.close()
    poll(lambda: not node.rows("connection", container=container), "the closed connection is gone")
