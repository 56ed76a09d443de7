"""Format of management answers, and answers to malformed requests."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from proton import Message, Timeout, symbol, ulong
from proton.reactor import AtMostOnce
from proton.utils import BlockingConnection

from tests.interop.dispatch.node import PREFIX, ManagementNode
from tests.system.router import RouterProcess

GET_TYPES = {"operation": "GET-TYPES", "name": "self", "type": "org.amqp.management"}


class RawRequester:
    """Requester with full control over the message."""

    def __init__(self, shared_router: RouterProcess) -> None:
        self.connection = BlockingConnection(f"127.0.0.1:{shared_router.port}", sasl_enabled=False, timeout=10)
        self.replies = self.connection.create_receiver(None, dynamic=True, credit=20)
        self.sender = self.connection.create_sender("$management")
        self.address = self.replies.link.remote_source.address

    def ask(self, **fields: Any) -> Any:
        """Send a request with these message fields and return the answer."""
        fields.setdefault("reply_to", self.address)
        self.sender.send(Message(**fields))
        return self.answer()

    def answer(self) -> Any:
        """Return the next answer, which has to be presettled."""
        message = self.replies.receive(timeout=10)
        fetcher: Any = self.replies.fetcher
        assert not fetcher.unsettled
        return message


@pytest.fixture
def requester(shared_router: RouterProcess) -> Iterator[RawRequester]:
    """Requester connected to the shared router."""
    requester = RawRequester(shared_router)
    yield requester
    requester.connection.close()


@pytest.mark.parametrize(
    "identifier", ["text", ulong(7), uuid.UUID(int=5), b"binary", None], ids=lambda value: type(value).__name__
)
@pytest.mark.parametrize("kind", ["listener", "router"])
def test_answer_has_expected_properties(identifier: Any, kind: str, requester: RawRequester) -> None:
    """The answer has the request's correlation-id, and its reply-to as `to`; it is not durable and has nothing else."""
    answer = requester.ask(
        correlation_id=identifier,
        id="message-id",
        subject="subject",
        properties={"operation": "QUERY", "entityType": PREFIX + kind, "name": "self", "type": "org.amqp.management"},
        body={},
    )
    given = answer.correlation_id
    assert (bytes(given) if isinstance(given, memoryview) else given) == identifier
    assert answer.address == requester.address
    assert answer.durable is False
    assert (answer.id, answer.subject, answer.reply_to, answer.user_id) == (None, None, None, b"")
    assert answer.properties == {"statusCode": 200, "statusDescription": "OK"}
    assert set(answer.body) == {"attributeNames", "results"}


@pytest.mark.parametrize("operation", ["GET-TYPES", "QUERY", "READ", "CREATE", "UPDATE", "DELETE", "FROB"])
def test_request_without_usable_reply_to_is_harmless(operation: str, requester: RawRequester) -> None:
    """The request is accepted and gets no answer; the next request works."""
    requester.sender.send(Message(properties={**GET_TYPES, "operation": operation}, body={}))
    requester.sender.send(Message(properties={**GET_TYPES, "operation": operation}, body={}, reply_to="nobody/there"))
    requester.sender.send(
        Message(properties={**GET_TYPES, "operation": operation}, body={}, reply_to="amqp:/_topo/0/X/t")
    )
    assert requester.ask(properties=GET_TYPES, correlation_id="after").correlation_id == "after"


NASTY: dict[str, dict[str, Any]] = {
    "no application properties": {"body": {}},
    "empty application properties": {"properties": {}, "body": {}},
    "operation is a number": {"properties": {**GET_TYPES, "operation": 7}},
    "operation is long": {"properties": {**GET_TYPES, "operation": "x" * 70000}},
    "type is a number": {"properties": {**GET_TYPES, "type": 7}},
    "type is empty": {"properties": {**GET_TYPES, "type": ""}},
    "name is a number": {"properties": {"operation": "READ", "type": PREFIX + "listener", "name": 7}},
    "entity type is a number": {"properties": {**GET_TYPES, "entityType": 7}},
    "query with a list": {"properties": {**GET_TYPES, "operation": "QUERY"}, "body": ["a"]},
    "query with text": {"properties": {**GET_TYPES, "operation": "QUERY", "entityType": PREFIX + "log"}, "body": "a"},
    "names are numbers": {
        "properties": {**GET_TYPES, "operation": "QUERY", "entityType": PREFIX + "log"},
        "body": {"attributeNames": [1, None, {}, []]},
    },
    "very many names": {
        "properties": {**GET_TYPES, "operation": "QUERY", "entityType": PREFIX + "router.address"},
        "body": {"attributeNames": ["name"] * 2000},
    },
    "offset is text": {"properties": {**GET_TYPES, "operation": "QUERY", "offset": "many"}, "body": {}},
    "offset is huge": {"properties": {**GET_TYPES, "operation": "QUERY", "offset": ulong(2**64 - 1)}, "body": {}},
    "count is a list": {"properties": {**GET_TYPES, "operation": "QUERY", "count": "[]"}, "body": {}},
    "create with nulls": {
        "properties": {"operation": "CREATE", "type": PREFIX + "dummy", "name": None},
        "body": {"num1": [1], "arg1": {"a": 1}},
    },
    "deep body": {
        "properties": {"operation": "CREATE", "type": PREFIX + "dummy"},
        "body": {"arg1": [[[[[[[["a"]]]]]]]]},
    },
    "update of self": {"properties": {"operation": "UPDATE", "identity": "self"}, "body": {}},
    "binary body": {"properties": {**GET_TYPES, "operation": "QUERY"}, "body": b"\x00" * 100},
    "large body": {"properties": {**GET_TYPES, "operation": "QUERY"}, "body": {"x": "y" * 200000}},
    "log limit is a map": {"properties": {**GET_TYPES, "operation": "GET-LOG", "limit": "{}"}},
}


@pytest.mark.parametrize("name", NASTY)
def test_malformed_request_is_answered_with_status(
    name: str, requester: RawRequester, shared_router: RouterProcess
) -> None:
    """The answer has a status code and a description; the next request works."""
    answer = requester.ask(correlation_id=name, **NASTY[name])
    assert answer.correlation_id == name
    assert answer.properties["statusCode"] in (200, 201, 400, 404, 500, 501)
    assert answer.properties["statusDescription"]
    if answer.properties["statusCode"] == 201:
        made = {"operation": "DELETE", "type": PREFIX + "dummy", "identity": answer.body["identity"]}
        assert requester.ask(properties=made).properties["statusCode"] == 204
    assert requester.ask(properties=GET_TYPES).properties["statusCode"] == 200
    assert "Traceback" not in shared_router.log


def test_request_without_application_properties_is_refused(requester: RawRequester) -> None:
    answer = requester.ask(body={})
    assert answer.properties["statusCode"] == 400
    assert answer.properties["statusDescription"].startswith("No 'operation' property")


def test_concurrent_requests_get_matching_answers(requester: RawRequester, shared_router: RouterProcess) -> None:
    """Each of three clients gets the answers to its own requests, a hundred in all."""
    others = [requester, RawRequester(shared_router), RawRequester(shared_router)]
    for number in range(34):
        for index, each in enumerate(others):
            operation = "QUERY" if number % 2 else "GET-OPERATIONS"
            each.sender.link.send(
                Message(
                    reply_to=each.address,
                    correlation_id=f"{index}-{number}",
                    properties={**GET_TYPES, "operation": symbol(operation), "entityType": PREFIX + "listener"},
                    body={},
                )
            )
    for index, each in enumerate(others):
        found = set()
        for number in range(34):
            if number == 17:
                each.replies.link.flow(34)
            found.add(each.answer().correlation_id)
        assert found == {f"{index}-{number}" for number in range(34)}
    for each in others[1:]:
        each.connection.close()


def test_large_answer_arrives_whole(shared_router: RouterProcess, node: ManagementNode) -> None:
    """An answer larger than a frame arrives in one message and in pages.

    Receivers alternate with senders: proton cannot read more than 65,535 values in one message (PROTON-1846), and the
    row of an outgoing link has 156.
    """
    connection = BlockingConnection(f"127.0.0.1:{shared_router.port}", sasl_enabled=False, timeout=10)
    count = 300
    for number in range(count):
        connection.create_receiver(f"balanced/large/r{number}")
        connection.create_sender(f"balanced/large/s{number}")
    rows = node.query("router.address", ["name"])
    names = {row[0] for row in rows.results}
    assert {f"M0balanced/large/{kind}{number}" for number in range(count) for kind in "rs"} <= names
    assert len(rows.results) == len(names)
    links = node.rows("router.link")
    for direction, kind in (("out", "r"), ("in", "s")):
        found = [row for row in links if str(row["owningAddr"]).startswith(f"M0balanced/large/{kind}")]
        assert len(found) == count
        assert {row["linkDir"] for row in found} == {direction}
    assert len(node.page("router.link", ["identity"], 0, 0).results) >= 2 * count
    connection.close()


def test_sender_to_unknown_router_gets_no_credit(shared_router: RouterProcess) -> None:
    connection = BlockingConnection(f"127.0.0.1:{shared_router.port}", sasl_enabled=False, timeout=1)
    sender = connection.create_sender("_topo/0/NOPE/$management")
    assert sender.link.credit == 0
    with pytest.raises(Timeout):
        sender.send(Message(properties=GET_TYPES), timeout=0.3)
    connection.close()


def test_traffic_continues_during_queries(
    shared_router: RouterProcess, node: ManagementNode, fresh: Callable[[str], str]
) -> None:
    """Messages arrive in order while the management node answers queries."""
    address = fresh("balanced/traffic")
    connection = BlockingConnection(f"127.0.0.1:{shared_router.port}", sasl_enabled=False, timeout=10)
    receiver = connection.create_receiver(address, credit=100)

    def send() -> None:
        source = BlockingConnection(f"127.0.0.1:{shared_router.port}", sasl_enabled=False, timeout=10)
        sender = source.create_sender(address, options=AtMostOnce())
        for number in range(50):
            sender.send(Message(body=number))
        source.close()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(send)
        for _ in range(20):
            node.query("router.address")
        done.result()
    assert [receiver.receive(timeout=10).body for _ in range(50)] == list(range(50))
    connection.close()
