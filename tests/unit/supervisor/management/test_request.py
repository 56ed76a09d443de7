"""Management requests with parts that are missing, malformed or of another type (management.md 5.2)."""

import re
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.supervisor.management.request import decode
from sluice.supervisor.management.response import StatusError
from tests.peer import message
from tests.peer.codec import encode
from tests.peer.types import (
    Byte,
    Described,
    Float,
    Int,
    Long,
    Raw,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)  # fmt: skip
from tests.unit.supervisor.management.managed_router import ManagedRouter, request


def decoded(octets: bytes):
    return decode(0, 7, octets)


def test_request_with_all_parts_is_decoded():
    parsed = decoded(
        message.header(durable=True)
        + message.annotations({"x-opt-qd.ingress": "a"})
        + request({"operation": "QUERY", "type": Symbol("listener"), "name": "n", "identity": "i"}, {"a": 1}, to="t")
    )
    assert (parsed.worker, parsed.connection, parsed.fault) == (0, 7, None)
    assert (parsed.operation, parsed.text("type"), parsed.name, parsed.identity) == ("QUERY", "listener", "n", "i")
    assert (parsed.to, parsed.reply_to, parsed.body()) == ("t", "amqp:/_topo/0/QDR/temp.x", {"a": 1})


@pytest.mark.parametrize("kind", [UByte, UShort, UInt, ULong, Byte, Short, Int, Long, str])
def test_numbers_of_any_width_are_decoded(kind):
    assert decoded(request({"count": kind(5)})).number("count") == 5


def test_negative_and_non_numeric_properties_are_decoded():
    parsed = decoded(request({"a": Long(-3), "b": "-12", "c": None, "d": Float(2.5), "e": True, "f": " 7 "}))
    assert [parsed.number(key) for key in "abcdefg"] == [-3, -12, None, None, None, 7, None]


@pytest.mark.parametrize("text", ["x", "1.5", "0x10", "", "--1", "٣", "9" * 30])
def test_non_numeric_text_is_refused(text):
    with pytest.raises(StatusError) as raised:
        decoded(request({"count": text})).number("count")
    assert raised.value.status == 400


CORRELATIONS = [
    "text", ULong(2**63), ULong(1), uuid.UUID(int=5), b"\x00\xff", "", Int(-1), Symbol("s"), Timestamp(3), True,
]  # fmt: skip


@pytest.mark.parametrize("value", CORRELATIONS, ids=repr)
def test_correlation_id_is_returned_unchanged(value):
    """The correlation-id keeps type and value, to the octet."""
    (answer,) = ManagedRouter().raw(request({"operation": "GET-TYPES"}, correlation_id=Raw(encode(value))))
    fields = message.section_of(answer.payload, message.PROPERTIES)
    assert (type(fields[5]), fields[5]) == (type(value), value)


def test_answer_without_correlation_id_has_none():
    (answer,) = ManagedRouter().raw(request({"operation": "GET-TYPES"}, correlation_id=None, message_id="m"))
    fields = message.section_of(answer.payload, message.PROPERTIES)
    assert fields == [None, None, "amqp:/_topo/0/QDR/temp.x", None, None, None]


# management.md 5.12.
def test_answer_layout_matches_dispatch():
    (answer,) = ManagedRouter().raw(request({"operation": "GET-ANNOTATIONS"}))
    (header, first), (properties, second), (application, third), (body, fourth) = message.sections(answer.payload)
    assert (header, properties, application, body) == (0x70, 0x73, 0x74, 0x77)
    assert (first, len(second), fourth) == ([False], 6, {})
    assert third == {"statusCode": 200, "statusDescription": "OK"}
    assert isinstance(third["statusCode"], Int)


DROPPED = [
    b"",
    b"\x00",
    b"\xff" * 40,
    message.value("no properties at all"),
    message.properties(correlation_id="1") + message.application_properties({"operation": "GET-TYPES"}),
    message.properties(reply_to=Raw(encode(5))) + message.application_properties({"operation": "GET-TYPES"}),
    message.properties(reply_to="") + message.application_properties({"operation": "GET-TYPES"}),
    encode(Described(ULong(0x73), {"reply-to": "x"})),
    b"\x00\x53\x73\xd0\x7f\xff\xff\xff\x00\x00\x00\x06",
]


@pytest.mark.parametrize("octets", DROPPED)
def test_request_without_reply_to_gets_no_answer(octets):
    assert ManagedRouter().raw(octets) == []


BROKEN = [
    b"",
    message.value({}),
    encode(Described(ULong(0x74), ["operation", "QUERY"])),
    encode(Described(ULong(0x74), "operation")),
    b"\x00\x53\x74\xd1\x00\x00\x00\xff\x00\x00\x00\x02\xa1\x01",
    b"\x00\x53\x74\xc1\x03\x01\xa1\x00",
    message.application_properties({"type": "listener"}),
    message.application_properties({"operation": 5}),
    message.application_properties({"operation": None}),
    message.application_properties({"operation": ""}),
    encode(Described(ULong(0x74), {ULong(1): "operation", b"operation": "QUERY"})),
    b"\x00" * 300,
    b"\x00\x53\x74\xc1\x05\x02" + b"\x00" * 100,
]


@pytest.mark.parametrize("octets", BROKEN)
def test_malformed_request_is_refused(octets):
    (answer,) = ManagedRouter().raw(message.properties(reply_to="r", correlation_id="c") + octets)
    assert answer.status == 400
    assert message.section_of(answer.payload, message.PROPERTIES)[5] == "c"
    assert answer.body == {}


def test_request_without_operation_is_quoted_in_answer():
    answer = ManagedRouter().ask(None, name="n")
    assert answer.status == 400
    assert answer.description.startswith("No 'operation' property: Message(")


@pytest.mark.parametrize(
    "body",
    [b"", message.data(b"x"), b"\x00\x53\x77", b"\x00\x53\x77\xd1\xff", message.value("text"), message.value([1])],
    ids=["none", "data", "cut", "broken", "text", "list"],
)
def test_query_ignores_unreadable_body(body):
    octets = message.properties(reply_to="r") + message.application_properties(
        {"operation": "QUERY", "entityType": "org.apache.qpid.dispatch.router"}
    )
    (answer,) = ManagedRouter().raw(octets + body)
    assert (answer.status, len(answer.body["attributeNames"])) == (200, 33)


def test_symbolic_descriptors_are_accepted():
    octets = encode(Described(Symbol("amqp:properties:list"), [None, None, None, None, "r"])) + encode(
        Described(Symbol("amqp:application-properties:map"), {"operation": "GET-ANNOTATIONS"})
    )
    (answer,) = ManagedRouter().raw(octets)
    assert answer.status == 200


def test_deep_nesting_is_refused():
    deep = b"\x45"
    for _ in range(200):
        deep = b"\xd0" + (len(deep) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + deep
    octets = message.properties(reply_to="r") + b"\x00\x53\x74" + deep
    assert [answer.status for answer in ManagedRouter().raw(octets)] == [400]


ROUTER = ManagedRouter()
WHOLE = request({"operation": "QUERY", "entityType": "org.apache.qpid.dispatch.router"}, {"attributeNames": ["id"]})


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.integers(0, len(WHOLE)), st.integers(0, len(WHOLE)))
def test_arbitrary_octets_get_one_answer(octets, cut, end):
    """Arbitrary octets lead to at most one answer, and never to an internal error."""
    answers = ROUTER.raw(WHOLE[:cut] + octets + WHOLE[end:])
    assert len(answers) <= 1
    assert all(answer.status != 500 for answer in answers)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8) | st.binary(max_size=5)
    | st.uuids() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
KEYS = st.sampled_from(["type", "name", "identity", "entityType", "offset", "count", "limit", "indent", "start", "x"])
KINDS = st.sampled_from(["listener", "log", "connection", "org.apache.qpid.dispatch.router.link", "dummy", "self"])
OPERATIONS = st.sampled_from(
    ["QUERY", "READ", "CREATE", "UPDATE", "DELETE", "query", "GET-LOG", "GET-TYPES", "GET-JSON-SCHEMA", "PROFILE"]
)


TARGETS = {"type", "entityType", "name", "identity"}


def has_unusable_number(operation, properties):
    """Return True if the operation takes a number and gets an unusable value (management.md 5.11)."""
    given = properties.get({"GET-LOG": "limit", "GET-JSON-SCHEMA": "indent"}.get(operation))
    if isinstance(given, str) and re.fullmatch(r"[+-]?[0-9]+", given.strip()):
        given = int(given)
    if isinstance(given, int) and not isinstance(given, bool):
        return operation == "GET-JSON-SCHEMA" and not -1 <= given <= 100
    return given is not None


@settings(max_examples=400, deadline=None)
@given(OPERATIONS, st.dictionaries(KEYS, VALUES | KINDS, max_size=4), VALUES)
def test_arbitrary_values_get_one_answer(operation, properties, body):
    """Known operations with properties and bodies of any type get one answer, with status 500 only where 1.19 has it
    too."""
    properties.pop("operation", None)
    (answer,) = ROUTER.raw(request({"operation": operation, **properties}, body))
    if answer.status == 500:
        assert has_unusable_number(operation, properties)
    else:
        assert answer.status in (200, 201, 204, 400, 403, 404, 501)
        # The target of a request is looked up first, and may not exist.
        assert properties.keys() & TARGETS or not has_unusable_number(operation, properties)
