"""Malformed and hostile requests: a correct status or silence, and the agent stays available (management.md 5.2,
5.3)."""

import random
import uuid

import pytest

from tests.peer import message
from tests.peer.codec import encode
from tests.peer.management import PREFIX, Management
from tests.peer.types import Described, Map, Raw, Symbol, ULong
from tests.system.fixtures import Connect
from tests.system.router import RouterProcess
from tests.unit.supervisor.management.test_any_attribute import BASE, HOSTS, KINDS, TEXTS, VALUES

pytestmark = pytest.mark.adversarial

SILENT = {
    "empty": b"",
    "no sections": b"\xff\xff\xff",
    "only a body": message.value("x"),
    "no reply-to": message.properties(correlation_id="c") + message.application_properties({"operation": "GET-TYPES"}),
    "reply-to a number": message.properties(reply_to=Raw(encode(ULong(7)))) + message.application_properties({}),
    "properties a map": encode(Described(ULong(0x73), {"reply-to": "x"})),
}
REFUSED = {
    "no application-properties": b"",
    "list instead of a map": encode(Described(ULong(0x74), ["operation", "GET-TYPES"])),
    "cut": message.application_properties({"operation": "GET-TYPES"})[:-3],
    "no operation": message.application_properties({"type": "listener"}),
    "operation of another type": message.application_properties({"operation": [1, 2]}),
    "map as key": encode(Described(ULong(0x74), Map([([1], "x")]))),
    "odd map": b"\x00\x53\x74\xc1\x03\x01\xa1\x00",
}


@pytest.mark.parametrize("name", SILENT)
def test_request_without_reply_to_gets_silence(management: Management, name: str) -> None:
    management.send(SILENT[name])
    management.send(management.request({"operation": "GET-ANNOTATIONS"}, correlation_id="after"))
    answer = management.next()
    assert message.section_of(answer.payload, message.PROPERTIES)[5] == "after"


@pytest.mark.parametrize("name", REFUSED)
def test_request_with_bad_properties_is_refused(management: Management, name: str) -> None:
    answer = management.exchange(
        message.properties(reply_to=management.replies.address, correlation_id=uuid.UUID(int=7)) + REFUSED[name]
    )
    assert answer.status == 400
    assert message.section_of(answer.payload, message.PROPERTIES)[5] == uuid.UUID(int=7)


def test_query_with_symbols_and_numeric_strings_is_answered(management: Management) -> None:
    answer = management.ask(
        "QUERY", {"attributeNames": [Symbol("name")]}, entityType=Symbol("log"), offset="1", count=ULong(2)
    )
    assert answer.outcome == (200, "OK")
    assert len(answer.body["results"]) == 2


LARGE = [
    {"attributeNames": ["x" * 100_000]},
    {"attributeNames": ["name"] * 5000},
    {"k" * 1000: ["v"] * 1000},
    {str(number): number for number in range(5000)},
]


@pytest.mark.parametrize("body", LARGE, ids=["long name", "many names", "large value", "many keys"])
@pytest.mark.parametrize("operation", ["QUERY", "CREATE", "UPDATE"])
def test_request_with_large_body_is_answered(management: Management, operation: str, body: object) -> None:
    answer = management.ask(operation, body, type="listener", name="x", entityType="listener")
    assert answer.status in (200, 400, 404, 501)


def test_attributes_of_any_value_cause_no_internal_error(router: RouterProcess, management: Management) -> None:
    """Any attribute value gets an answer that is not an internal error, and the router keeps running."""
    chance = random.Random(11)
    for _ in range(200):
        kind = chance.choice(KINDS)
        # Leave out attributes that would create a file or resolve a name.
        name = chance.choice([name for name in kind.attributes if name not in ("outputFile", "host")])
        body = {**BASE.get(kind.name, {}), name: chance.choice(VALUES + TEXTS)}
        answer = management.ask("CREATE", body, type=kind.long_name)
        assert answer.status in (201, 400, 403, 501), (kind.name, name, body[name], answer.outcome)
        if answer.status == 201:
            target = {"type": kind.long_name, "identity": str(answer.body["identity"])}
            assert management.ask("UPDATE", {"adminStatus": "x", **body}, **target).status in (400, 501)
            assert management.ask("DELETE", **target).status == 204
    assert management.one("router")["id"] == "QDR"
    assert router.alive


@pytest.mark.parametrize("host", [host for host in HOSTS if not host.isascii() or len(host) > 60 or "." in host[:2]])
def test_listener_with_invalid_host_is_refused(management: Management, host: str) -> None:
    answer = management.ask("CREATE", {"host": host, "port": "0"}, type="listener")
    assert answer.status == 400
    assert "is neither a name nor an address: " in answer.description


def test_requests_with_changed_octets_cause_no_internal_error(
    router: RouterProcess, connect: Connect, management: Management
) -> None:
    """Requests with randomly changed octets cause no internal error, and the router keeps running."""
    chance = random.Random(4)
    whole = management.request({"operation": "QUERY", "entityType": PREFIX + "router"}, {"attributeNames": ["id"]})
    sender = connect().sender("$management")
    for _ in range(400):
        octets = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            octets[chance.randrange(len(octets))] = chance.randrange(256)
        sender.wait_credit()
        sender.send(bytes(octets), settled=chance.random() < 0.5)
    assert management.query("log", "module")
    assert "Traceback" not in router.log


def test_client_without_reply_credit_does_not_block_others(connect: Connect, management: Management) -> None:
    """A client without credit for replies does not stop the agent for other clients."""
    greedy = connect()
    replies = greedy.receiver(dynamic=True, credit=0)
    sender = greedy.sender("$management")
    request = (
        message.properties(reply_to=replies.address)
        + message.application_properties({"operation": "GET-SCHEMA"})
        + message.value({})
    )
    for _ in range(300):
        if not sender.send_some(request, 0.2):
            break
    assert management.query("log", "module")


def test_log_after_hostile_requests_has_no_critical_line(router: RouterProcess, management: Management) -> None:
    assert management.query("router", "id") == [{"id": "QDR"}]
    assert not [line for line in router.lines if "(critical)" in line]
