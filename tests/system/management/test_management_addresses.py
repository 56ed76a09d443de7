"""Addresses of the management agent and of its replies (management.md 5.1, 5.2)."""

import itertools

import pytest

from tests.peer import message
from tests.peer.management import PREFIX, Management, ManagementReply
from tests.peer.wire import PeerTimeout
from tests.system.fixtures import CAPACITY, Connect, Fresh

FORMS = [
    "$management",
    "_local/$management",
    "_topo/0/QDR/$management",
    "_topo/all/QDR/$management",
    "_edge/QDR/$management",
]
PREFIXES = ["", "amqp:/", "amqp://anything/", "amqp://host:5672/", "/"]
TARGETS = list(itertools.product(PREFIXES, FORMS))
UNREACHABLE = ["_topo/0/NOPE/$management", "_topo/1/QDR/$management", "_edge/NOPE/$management"]


def id_request(reply_to: str, correlation_id: object = "c", **fields: object) -> bytes:
    """Return a request for the router's id."""
    return (
        message.properties(reply_to=reply_to, correlation_id=correlation_id, **fields)
        + message.application_properties({"operation": "QUERY", "entityType": PREFIX + "router"})
        + message.value({"attributeNames": ["id"]})
    )


@pytest.mark.parametrize(("prefix", "form"), TARGETS)
def test_request_to_each_agent_address_is_answered(connect: Connect, prefix: str, form: str) -> None:
    management = Management(connect(), prefix + form)
    assert management.sender.credit == CAPACITY
    assert management.query("router", "id") == [{"id": "QDR"}]


@pytest.mark.parametrize(("prefix", "form"), TARGETS)
def test_anonymous_request_to_each_agent_address_is_answered(connect: Connect, prefix: str, form: str) -> None:
    peer = connect()
    replies = peer.receiver(dynamic=True, credit=1)
    assert peer.sender(None).request(id_request(replies.address, to=prefix + form)).name == "accepted"
    assert ManagementReply.of(replies.next().payload).body["results"] == [["QDR"]]


@pytest.mark.parametrize("address", UNREACHABLE)
def test_unreachable_agent_grants_no_credit(connect: Connect, address: str) -> None:
    sender = connect().sender(address, credit=False)
    with pytest.raises(PeerTimeout):
        sender.wait_credit(timeout=0.3)


def test_request_with_another_to_field_goes_to_the_target(connect: Connect) -> None:
    management = Management(connect())
    answer = management.exchange(id_request(management.replies.address, to="_topo/0/NOPE/$management"))
    assert answer.body["results"] == [["QDR"]]


def test_reply_arrives_settled(management: Management) -> None:
    management.send(management.request({"operation": "GET-ANNOTATIONS"}))
    assert management.replies.next().settled


def test_reply_to_mobile_address_is_delivered(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    receivers = [connect().receiver(address, 10) for _ in range(1)]
    sender = connect().sender("$management")
    assert sender.request(id_request(address)).name == "accepted"
    assert ManagementReply.of(receivers[0].next().payload).body["results"] == [["QDR"]]


def test_reply_to_unreachable_address_is_dropped(connect: Connect, management: Management) -> None:
    sender = connect().sender("$management")
    for reply_to in ("nobody/at/all", "amqp:/_topo/0/QDR/temp.nobody", "_topo/0/NOPE/x", "$management", "", "/" * 300):
        assert sender.request(id_request(reply_to)).name == "accepted"
    assert management.query("router", "id") == [{"id": "QDR"}]


def test_clients_with_equal_correlation_ids_get_their_own_replies(connect: Connect) -> None:
    """Clients of all workers send requests at the same time with equal correlation-ids."""
    clients = [Management(connect()) for _ in range(9)]
    for number, client in enumerate(clients):
        given = {"operation": "READ", "type": PREFIX + "connection", "identity": identity_of(client)}
        client.send(client.request(given, correlation_id=1, to=f"client {number}"))
    for client in clients:
        assert client.next().body["identity"] == identity_of(client)


def identity_of(client: Management) -> str:
    """Return the identity of the client's connection."""
    opened = client.peer.remote_open
    assert opened is not None
    return str(int(opened.properties["qd.conn-id"]))


def test_requests_in_flight_are_all_answered(management: Management) -> None:
    """Replies may arrive in any order; the correlation-id of each names its request."""
    numbers = list(range(150))
    for number in numbers:
        management.send(management.request({"operation": "GET-ANNOTATIONS"}, correlation_id=number))
    found = [message.section_of(management.next().payload, message.PROPERTIES)[5] for _ in numbers]
    assert sorted(found) == numbers
