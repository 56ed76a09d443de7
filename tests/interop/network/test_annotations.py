"""Router annotations between routers, and their removal for clients (inter-router.md 10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.network.conftest import MiddleNetwork
from tests.interop.network.net import router_annotations
from tests.peer import frames, message
from tests.peer.codec import decode
from tests.peer.links import PeerReceiver
from tests.peer.router19 import message_head
from tests.peer.router19.message_head import compose
from tests.peer.router19.router import Router19Consumer
from tests.peer.types import Byte, Int, Symbol, UInt

Fresh = Callable[..., str]
BODY = message.value("body")


def remote_consumer(middle: MiddleNetwork, address: str, phase: int = 0, **keywords: Any) -> Router19Consumer:
    """Attach a consumer at R and wait until S knows it."""
    consumer = middle.right.consumer(address, phase=phase, **keywords)
    middle.s.wait_remote(consumer.key, "R")
    return consumer


def client_receiver(middle: MiddleNetwork, address: str, listener: str = "plain", **fields: Any) -> PeerReceiver:
    """Attach a receiver of a client of S and wait until L knows it."""
    receiver = middle.s.client(listener).receiver(address, credit=50, **fields)
    prefix = "M1" if address.startswith("wp") else "M0"
    middle.left.wait_key(prefix + address, "S")
    return receiver


def annotations_section(octets: bytes) -> bytes:
    """Return the octets of the message-annotations section."""
    for code, at, end in split_sections(octets):
        if code == message.MESSAGE_ANNOTATIONS:
            return octets[at:end]
    return b""


def split_sections(octets: bytes) -> list[tuple[int, int, int]]:
    """Return (code, begin, end) of each section."""
    found, at = [], 0
    while at < len(octets):
        item, end = decode(octets, at)
        found.append((int(item.descriptor), at, end))
        at = end
    return found


def equal_messages(found: bytes, expected: bytes) -> bool:
    """Assert that messages are equal: annotations by value, type and order, other sections octet for octet."""
    shown = []
    for octets in (found, expected):
        parts = split_sections(octets)
        given = [message.sections(octets[at:end])[0] for code, at, end in parts if code == message.MESSAGE_ANNOTATIONS]
        others = [octets[at:end] for code, at, end in parts if code != message.MESSAGE_ANNOTATIONS]
        shown.append(([code for code, _at, _end in parts], repr(given), others))
    assert shown[0] == shown[1]
    return True


def last_payload(middle: MiddleNetwork) -> bytes:
    """Return the last delivery from S to R on a data link, as it was on the wire."""
    with middle.world.lock:
        connection = middle.right.engine.nodes["S"].connection
        transfers = [frame for frame, _octets in connection.frames if frame.name == "transfer" and frame.channel]
        return bytes(transfers[-1].payload)


def test_targeted_link_sets_to_annotation(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh()
    consumer = remote_consumer(middle, address)
    sender = middle.s.client().sender(address)
    sender.send(BODY)
    consumer.next()
    assert equal_messages(last_payload(middle), compose([], to=address, ingress="0/S", trace=["0/S"]) + BODY)


def test_address_annotation_keeps_client_form(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh()
    consumer = remote_consumer(middle, address)
    middle.s.client().sender("amqp:/" + address).send(BODY)
    consumer.next()
    assert equal_messages(
        annotations_section(last_payload(middle)), compose([], to="amqp:/" + address, ingress="0/S", trace=["0/S"])
    )


def test_anonymous_link_sets_no_to_annotation(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh()
    consumer = remote_consumer(middle, address)
    middle.s.client().sender().send(message.message("body", to=address))
    consumer.next()
    assert equal_messages(annotations_section(last_payload(middle)), compose([], ingress="0/S", trace=["0/S"]))


def test_user_annotations_come_first_in_order(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh()
    consumer = remote_consumer(middle, address)
    user: list[tuple[Any, Any]] = [
        (Symbol("x-user"), "u1"),
        (Symbol("zz"), 5),
        (Symbol("aa"), Int(5)),
        ("x-opt-qd.to", "a string key is a user's"),
        (Symbol("nested"), {Symbol("k"): [Byte(1), None, b"octets"]}),
    ]
    middle.s.client().sender(address).send(message.annotations(user) + BODY)
    consumer.next()
    assert equal_messages(last_payload(middle), compose(user, to=address, ingress="0/S", trace=["0/S"]) + BODY)


def test_large_annotations_are_forwarded(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh()
    consumer = remote_consumer(middle, address)
    user: list[tuple[Any, Any]] = [(Symbol(f"key{number}"), "x" * 50) for number in range(40)]
    middle.s.client().sender(address).send(message.annotations(user) + BODY)
    consumer.next()
    assert equal_messages(last_payload(middle), compose(user, to=address, ingress="0/S", trace=["0/S"]) + BODY)


def test_router_annotations_of_clients_are_dropped(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh()
    consumer = remote_consumer(middle, address)
    forged = {"x-opt-qd.ingress": "0/X", "x-opt-qd.trace": ["0/X"], "x-opt-qd.to": "x", "x-opt-qd.phase": Int(3)}
    middle.s.client().sender(address).send(message.annotations(forged) + BODY)
    consumer.next()
    assert equal_messages(
        annotations_section(last_payload(middle)), compose([], to=address, ingress="0/S", trace=["0/S"])
    )


def test_router_annotations_are_kept_without_stripping(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh()
    consumer = remote_consumer(middle, address)
    given = {"x-opt-qd.to": address, "x-opt-qd.ingress": "0/L"}
    middle.s.client("plain").sender().send(message.annotations(given) + message.message("x", to="elsewhere"))
    consumer.next()
    assert equal_messages(
        annotations_section(last_payload(middle)), compose([], to=address, ingress="0/L", trace=["0/S"])
    )


@pytest.mark.parametrize("listener", ["", "plain"])
def test_client_receives_annotations_unless_stripped(middle: MiddleNetwork, fresh: Fresh, listener: str) -> None:
    address = fresh()
    receiver = client_receiver(middle, address, listener)
    user: list[tuple[Any, Any]] = [(Symbol("x-user"), "u1")]
    middle.left.send(address, message.annotations(user) + BODY)
    expected = message.annotations(user)
    if listener == "plain":
        expected = compose(user, to=address, ingress="0/L", trace=["0/L", "0/S"])
    assert equal_messages(receiver.next().payload, expected + BODY)


def test_stripped_section_disappears_when_empty(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh()
    receiver = client_receiver(middle, address, "")
    middle.left.send(address, BODY)
    assert equal_messages(receiver.next().payload, BODY)


def test_message_in_transit_keeps_other_sections(middle: MiddleNetwork, fresh: Fresh) -> None:
    """The router forwards all sections but the annotations octet for octet, in their places."""
    address = fresh()
    consumer = middle.right.consumer(address)
    middle.left.wait_key(consumer.key, "R")
    middle.s.wait_remote(consumer.key, "R")
    before = message.header(durable=True, priority=4, ttl=1000) + message.section(
        message.DELIVERY_ANNOTATIONS, {Symbol("da"): 1}
    )
    rest = (
        message.properties(message_id="m", user_id=b"u", to="not here", subject="s", group_sequence=7)
        + message.application_properties({"k": "v", "n": UInt(3)})
        + message.data(b"one")
        + message.data(b"two")
        + message.section(message.FOOTER, {Symbol("f"): 1})
    )
    user: list[tuple[Any, Any]] = [(Symbol("u"), "1")]
    middle.left.send(address, before + message.annotations(user) + rest)
    consumer.next()
    expected = compose(user, to=address, ingress="0/L", trace=["0/L", "0/S"])
    assert equal_messages(last_payload(middle), before + expected + rest)


def test_phase_travels_with_address(middle: MiddleNetwork, fresh: Fresh) -> None:
    """A waypoint at R takes messages of phase 0; its output of phase 1 reaches a client of S."""
    address = fresh("wp")
    intake = remote_consumer(middle, address)
    middle.s.client().sender(address).send(BODY)
    assert intake.next().body == "body"
    assert equal_messages(
        annotations_section(last_payload(middle)), compose([], to=address, ingress="0/S", trace=["0/S"])
    )
    receiver = client_receiver(middle, address)
    middle.left.send(address, BODY, phase=1)
    assert equal_messages(
        annotations_section(receiver.next().payload),
        compose([], phase=1, to=address, ingress="0/L", trace=["0/L", "0/S"]),
    )


def test_waypoint_sender_sets_later_phase(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh("wp")
    consumer = remote_consumer(middle, address, phase=1)
    sender = middle.s.client().sender(target=frames.target(address, capabilities="qd.waypoint"))
    sender.send(BODY)
    assert consumer.next().body == "body"
    assert equal_messages(
        annotations_section(last_payload(middle)), compose([], phase=1, to=address, ingress="0/S", trace=["0/S"])
    )


def link_to_s(middle: MiddleNetwork) -> Any:
    """Return L's data link for priority 4."""
    return middle.left.engine.nodes["S"].connection.data_link(4)


@pytest.mark.parametrize(
    ("given", "description"),
    [
        ({"x-opt-qd.to": Symbol("x")}, "to-override not a valid string type"),
        ({"x-opt-qd.to": 7}, "to-override not a valid string type"),
        ({"x-opt-qd.trace": "0/L"}, "trace annotation is not a list"),
        ({"x-opt-qd.trace": [1]}, "trace list contains non-string entries"),
        ({"x-opt-qd.ingress": 7}, "ingress router not a string type"),
    ],
)
def test_annotations_of_wrong_type_are_rejected(middle: MiddleNetwork, given: dict[str, Any], description: str) -> None:
    sent = middle.left.send_on(link_to_s(middle), message.annotations(given) + message.message("x", to="balanced/x"))
    assert sent.outcome() == "rejected"
    assert sent.state is not None
    assert frames.error_of(sent.state.value[0]) == ("amqp:invalid-field", description)


def test_message_without_address_is_rejected(middle: MiddleNetwork) -> None:
    octets = compose([], ingress="0/L", trace=["0/L"]) + BODY
    sent = middle.left.send_on(link_to_s(middle), octets)
    assert sent.outcome() == "rejected"
    assert sent.state is not None
    assert frames.error_of(sent.state.value[0]) == (
        "amqp:precondition-failed",
        "Routing failure: no address present",
    )


@pytest.mark.parametrize(("entries", "outcome"), [(2, "accepted"), (3, "released"), (40, "released")])
def test_hop_limit_is_radius_plus_one(middle: MiddleNetwork, fresh: Fresh, entries: int, outcome: str) -> None:
    """Router S reaches both others in one hop, so its radius is 1."""
    address = fresh()
    remote_consumer(middle, address)
    trace = [f"0/far{number}" for number in range(entries)]
    octets = compose([], to=address, ingress="0/L", trace=trace) + BODY
    sent = middle.left.send_on(link_to_s(middle), octets)
    assert sent.outcome() == outcome


def test_obsolete_annotations_are_dropped(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh()
    consumer = remote_consumer(middle, address)
    pairs: list[tuple[Any, Any]] = [
        (Symbol("u"), "1"),
        (Symbol("x-opt-qd.class"), 7),
        (Symbol("x-opt-qd."), "x"),
        (message_head.TO, address),
        (message_head.INGRESS, "0/L"),
        (message_head.TRACE, ["0/L"]),
    ]
    middle.left.send_on(link_to_s(middle), message.annotations(pairs) + BODY)
    consumer.next()
    expected = compose([(Symbol("u"), "1")], to=address, ingress="0/L", trace=["0/L", "0/S"])
    assert equal_messages(annotations_section(last_payload(middle)), expected)


def test_message_without_annotations_gets_local_ingress(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh()
    consumer = remote_consumer(middle, address)
    middle.left.send_on(link_to_s(middle), message.message("x", to=address))
    consumer.next()
    assert router_annotations(last_payload(middle)) == {"ingress": "0/S", "trace": ["0/S"]}


def test_stream_annotation_is_kept(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh()
    consumer = remote_consumer(middle, address)
    head = compose([], stream=True, to=address, ingress="0/L", trace=["0/L"])
    middle.left.send_on(link_to_s(middle), head + BODY)
    consumer.next()
    expected = compose([], stream=True, to=address, ingress="0/L", trace=["0/L", "0/S"])
    assert equal_messages(annotations_section(last_payload(middle)), expected)


def test_data_links_carry_any_address(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh()
    receiver = client_receiver(middle, address)
    octets = compose([], to=address, ingress="0/L", trace=["0/L"]) + BODY
    connection = middle.left.engine.nodes["S"].connection
    assert connection is not None
    for link in list(connection.data_out[:10]):
        middle.left.send_on(link, octets)
    for delivery in receiver.receive(10):
        assert message.body(delivery.payload) == "body"
