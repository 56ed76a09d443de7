"""Message annotations and stripAnnotations (routing-semantics.md 11.1, 11.3, 11.4)."""

from typing import Any

import pytest

from tests.peer import message
from tests.peer.frames import target
from tests.peer.message import annotations_of
from tests.peer.types import Int, Map, Symbol, UInt
from tests.system.fixtures import Connect, Fresh, pair
from tests.system.router import Section, listener

STRIPS = ("both", "in", "out", "no")
SECTIONS: list[Section] = [listener(f"strip_{how}", stripAnnotations=how) for how in STRIPS]
INGRESS, TRACE, TO = Symbol("x-opt-qd.ingress"), Symbol("x-opt-qd.trace"), Symbol("x-opt-qd.to")
USER: list[tuple[Any, Any]] = [(Symbol("first"), Int(1)), (Symbol("second"), "two")]


def pairs_of(payload: bytes) -> list[tuple[Any, Any]]:
    """Return the annotations in order of arrival; an empty list without the section."""
    found = annotations_of(payload)
    return [] if found is None else found.pairs


@pytest.mark.parametrize("out", STRIPS)
@pytest.mark.parametrize("into", STRIPS)
def test_annotations_follow_strip_settings(connect: Connect, fresh: Fresh, into: str, out: str) -> None:
    address = fresh()
    sender, receiver = pair(connect, address, into=f"strip_{into}", out=f"strip_{out}")
    given = [*USER, (TO, "elsewhere"), (INGRESS, "0/FAR"), (TRACE, ["0/FAR"])]
    sender.send(message.annotations(given) + message.message("x"), settled=True)
    found = pairs_of(receiver.next().payload)
    kept = into in ("out", "no")
    if out in ("both", "out"):
        assert found == USER
    else:
        assert found[:2] == USER
        expected = [
            (TO, address),
            (INGRESS, "0/FAR" if kept else "0/QDR"),
            (TRACE, ["0/FAR", "0/QDR"] if kept else ["0/QDR"]),
        ]
        assert found[2:] == expected
        assert all(type(key) is Symbol for key, _value in found)


@pytest.mark.parametrize("out", STRIPS)
@pytest.mark.parametrize("into", STRIPS)
def test_message_without_annotations_gets_router_annotations(
    connect: Connect, fresh: Fresh, into: str, out: str
) -> None:
    address = fresh()
    sender, receiver = pair(connect, address, into=f"strip_{into}", out=f"strip_{out}")
    payload = message.header(priority=5) + message.message("x", subject="s")
    sender.send(payload, settled=True)
    got = receiver.next().payload
    if out in ("both", "out"):
        assert got == payload
    else:
        assert pairs_of(got) == [(TO, address), (INGRESS, "0/QDR"), (TRACE, ["0/QDR"])]
        codes = [code for code, _value in message.sections(got)]
        assert codes == [message.HEADER, message.MESSAGE_ANNOTATIONS, message.PROPERTIES, message.VALUE]


def test_target_spelling_is_kept_in_to_annotation(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    receiver = connect("strip_no").receiver(address, 5)
    connect().sender(f"amqp://host/{address}/").send(message.message("x"), settled=True)
    assert message.annotation(receiver.next().payload, TO) == f"amqp://host/{address}/"


def test_anonymous_message_has_no_to_annotation(connect: Connect, fresh: Fresh) -> None:
    receiver = connect("strip_no").receiver(fresh(), 5)
    connect().sender().send(message.message("x", to=receiver.address), settled=True)
    assert pairs_of(receiver.next().payload) == [(INGRESS, "0/QDR"), (TRACE, ["0/QDR"])]
    override = message.annotations({"x-opt-qd.to": receiver.address})
    connect("strip_no").sender().send(override + message.message("x", to="ignored"), settled=True)
    assert message.annotation(receiver.next().payload, TO) == receiver.address


def test_dynamic_target_shows_its_generated_address(connect: Connect) -> None:
    sender = connect().sender(target=target(None, dynamic=True), credit=False)
    address = sender.target["address"]
    receiver = connect("strip_no").receiver(address, 5)
    sender.wait_credit()
    sender.send(message.message("x"), settled=True)
    assert message.annotation(receiver.next().payload, TO) == address


@pytest.mark.parametrize(
    ("wrong", "description"),
    [
        ({"x-opt-qd.to": 5}, "to-override not a valid string type"),
        ({"x-opt-qd.trace": "0/X"}, "trace annotation is not a list"),
        ({"x-opt-qd.trace": ["0/X", 7]}, "trace list contains non-string entries"),
        ({"x-opt-qd.ingress": 5}, "ingress router not a string type"),
    ],
    ids=["to", "trace", "trace-entry", "ingress"],
)
@pytest.mark.parametrize("anonymous", [True, False], ids=["anonymous", "targeted"])
def test_invalid_router_annotations_are_rejected(
    connect: Connect, fresh: Fresh, anonymous: bool, wrong: dict[str, Any], description: str
) -> None:
    receiver = connect().receiver(fresh(), 50)
    payload = message.annotations({"user": 1, **wrong}) + message.message("x", to=receiver.address)
    checked = connect("strip_no").sender(None if anonymous else receiver.address)
    outcome = checked.request(payload)
    assert outcome.error == ("amqp:invalid-field", description)
    assert outcome.settled
    unchecked = connect("strip_in").sender(None if anonymous else receiver.address)
    unchecked.send(payload, settled=True)
    assert message.body(receiver.next().payload) == "x"
    assert len(receiver.deliveries) == 1


def test_annotations_section_without_map_is_rejected(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    sender, _receiver = pair(connect, address, into="strip_no")
    outcome = sender.request(message.section(message.MESSAGE_ANNOTATIONS, ["no", "map"]) + message.message("x"))
    assert outcome.error is not None
    assert outcome.error[0] == "amqp:decode-error"


@pytest.mark.parametrize("into", ["both", "no"])
@pytest.mark.parametrize("out", ["both", "no"])
def test_string_keys_are_user_annotations(connect: Connect, fresh: Fresh, into: str, out: str) -> None:
    sender, receiver = pair(connect, fresh(), into=f"strip_{into}", out=f"strip_{out}")
    section = message.annotations([("x-opt-qd.to", 7), ("x-opt-qd.ingress", "text")])
    sender.send(section + message.message("x"), settled=True)
    found = pairs_of(receiver.next().payload)
    assert found[:2] == [("x-opt-qd.to", 7), ("x-opt-qd.ingress", "text")]
    assert [type(key) for key, _value in found[:2]] == [str, str]


@pytest.mark.parametrize("into", STRIPS)
@pytest.mark.parametrize("out", ["both", "no"])
def test_user_annotations_after_router_annotations_are_kept(
    connect: Connect, fresh: Fresh, into: str, out: str
) -> None:
    """The order of user annotations is kept wherever they appear (routing-semantics.md M-4)."""
    sender, receiver = pair(connect, fresh(), into=f"strip_{into}", out=f"strip_{out}")
    mixed = [USER[0], (INGRESS, "0/FAR"), (Symbol("third"), [1, "x"]), (TRACE, ["0/FAR"]), USER[1]]
    sender.send(message.annotations(mixed) + message.message("x"), settled=True)
    found = pairs_of(receiver.next().payload)
    user = [(key, value) for key, value in found if not str(key).startswith("x-opt-qd.")]
    assert user == [USER[0], (Symbol("third"), [1, "x"]), USER[1]]
    assert len([key for key, _value in found if key == INGRESS]) == (1 if out == "no" else 0)


def test_empty_annotations_map_is_dropped(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh())
    sender.send(message.annotations({}) + message.message("x"), settled=True)
    assert receiver.next().payload == message.message("x")


def test_router_annotations_alone_leave_no_section(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh())
    sender.send(message.annotations({"x-opt-qd.ingress": "0/X"}) + message.message("x"), settled=True)
    assert receiver.next().payload == message.message("x")


def test_obsolete_annotations_are_dropped(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh(), into="strip_no", out="strip_no")
    section = message.annotations([(Symbol("x-opt-qd.class"), "c"), (Symbol("x-opt-qd."), Map([])), *USER])
    sender.send(section + message.message("x"), settled=True)
    found = pairs_of(receiver.next().payload)
    assert found[:2] == USER
    assert {str(key) for key, _value in found[2:]} == {str(TO), str(INGRESS), str(TRACE)}


def test_user_annotation_types_are_kept(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh(), out="strip_no")
    values: list[tuple[Any, Any]] = [
        (Symbol("long" * 80), Map([(Symbol("k"), UInt(7)), ("s", [None, True, b"\x00"])])),
        (Symbol("text"), "x" * 400),
        (UInt(5), 1.5),
    ]
    sender.send(message.annotations(values) + message.message("x"), settled=True)
    found = pairs_of(receiver.next().payload)
    assert found[:3] == values
    assert [type(value) for _key, value in found[:3]] == [Map, str, float]


def test_remaining_sections_are_relayed_unchanged(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh(), credit=20)
    payloads = [
        message.header(durable=True, priority=200, ttl=5, first_acquirer=True, delivery_count=9)
        + message.section(message.DELIVERY_ANNOTATIONS, {Symbol("d"): 1})
        + message.properties(message_id=b"id", user_id=b"user", to="t", reply_to="r", group_sequence=4)
        + message.application_properties({"a": 1, "b": None})
        + message.data(b"one")
        + message.data(b"two")
        + message.section(message.FOOTER, {Symbol("f"): "end"}),
        message.section(message.SEQUENCE, [1, 2]) + message.section(message.SEQUENCE, [3]),
        message.value({"map": [1, 2.5, {"deep": True}]}),
        message.value(None),
    ]
    for payload in payloads:
        sender.send(payload, settled=True)
    assert [one.payload for one in receiver.receive(len(payloads))] == payloads
