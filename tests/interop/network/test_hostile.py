"""Control messages that are wrong, and routers that misbehave: neither the router nor the connection may suffer.

All go to one router; after each the neighbour that sent it is still one, on the same connection.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.interop.network.net import CONVERGE, QUICK, Sluice
from tests.interop.network.scripted import Scripted, View
from tests.peer import frames, message
from tests.peer.peer import AmqpPeer
from tests.peer.router19 import control
from tests.peer.router19.encoding import list32, map32, section
from tests.peer.router19.loop import Router19Loop
from tests.peer.router19.router import Router19
from tests.peer.types import Int, Long, Map, Raw, Symbol
from tests.system.router import poll

Script = Callable[..., Scripted]
Fresh = Callable[..., str]
HELLO, RA, LSU = control.HELLO_TO, control.ALL_TO, control.router_to("S")
MOBILE = control.ALL_MOBILE_TO
HUGE = (1 << 63) - 1


@pytest.fixture(scope="module")
def villain(world: Router19Loop, _solo: Sluice) -> Iterator[Scripted]:
    """The neighbour that sends all of it."""
    one = Scripted(world, _solo, "villain").adjacent()
    yield one
    one.stop()


def still_there(one: Scripted) -> None:
    """S goes on, on the same connection: it answers a request, and lists the neighbour (or takes it again)."""

    def listed() -> bool:
        before = len(one.got("LSU"))
        one.lsr()
        try:
            answer = one.wait("LSU", before, timeout=0.5)
        except AssertionError:
            return False
        return one.id in answer.body["ls"]["peers"]

    poll(listed, f"S answers and lists {one.id}", CONVERGE)
    assert not one.connection.lost


def body_of(opcode: str, to: str, pairs: dict[Any, Any] | list[tuple[Any, Any]]) -> bytes:
    """A message of the villain with any body."""
    items = list(pairs.items()) if isinstance(pairs, dict) else pairs
    return control.envelope("villain", to, opcode, map32(items))


def common(**more: Any) -> dict[str, Any]:
    """A body with id, pv, area and instance, and more."""
    return {"id": "villain", "pv": Int(1), "area": "0", "instance": Int(5), **more}


def state(**inner: Any) -> dict[str, Any]:
    """The body of an LSU, with these changes of the inner map."""
    return common(ls_seq=Int(9), ls={"id": "villain", "area": "0", "ls_seq": Int(9), "peers": {"S": Int(1)}, **inner})


def nested(depth: int) -> Raw:
    """A list in a list in a list."""
    octets = b"\x45"
    for _ in range(depth):
        octets = struct.pack("!BII", 0xD0, len(octets) + 4, 1) + octets
    return Raw(octets)


BODIES: dict[str, tuple[str, str, Any]] = {
    "HELLO without id": ("HELLO", HELLO, {"pv": Int(1), "seen": []}),
    "HELLO without seen": ("HELLO", HELLO, common()),
    "HELLO with seen a string": ("HELLO", HELLO, common(seen="S")),
    "HELLO with numbers seen": ("HELLO", HELLO, common(seen=[1, 2, None])),
    "HELLO with binary id": ("HELLO", HELLO, {**common(seen=["S"]), "id": b"villain"}),
    "HELLO with number id": ("HELLO", HELLO, {**common(seen=["S"]), "id": 7}),
    "HELLO with empty id": ("HELLO", HELLO, {**common(seen=[]), "id": ""}),
    "HELLO with a slash in its id": ("HELLO", HELLO, {**common(seen=[]), "id": "a/b/c"}),
    "HELLO of a later version": ("HELLO", HELLO, {**common(seen=["S"]), "pv": Int(2)}),
    "HELLO with text version": ("HELLO", HELLO, {**common(seen=["S"]), "pv": "1"}),
    "HELLO with boolean instance": ("HELLO", HELLO, {**common(seen=["S"]), "instance": True}),
    "HELLO with keys of no type": ("HELLO", HELLO, [(1, 2), (None, None), ("id", "villain")]),
    "HELLO with ten thousand seen": ("HELLO", HELLO, common(seen=[f"r{number}" for number in range(10_000)])),
    "HELLO with a deep value": ("HELLO", HELLO, common(seen=[], more=nested(5000))),
    "RA without sequences": ("RA", RA, common()),
    "RA with text sequences": ("RA", RA, common(ls_seq="1", mobile_seq="1")),
    "RA with a negative sequence": ("RA", RA, common(ls_seq=Int(-1), mobile_seq=Int(-1))),
    "RA with nothing": ("RA", RA, {}),
    "LSR without id": ("LSR", LSU, {"pv": Int(1)}),
    "LSU without ls": ("LSU", LSU, common(ls_seq=Int(9))),
    "LSU with ls a list": ("LSU", LSU, common(ls_seq=Int(9), ls=[1])),
    "LSU without peers": ("LSU", LSU, common(ls_seq=Int(9), ls={"id": "villain", "ls_seq": Int(9)})),
    "LSU with peers a list": ("LSU", LSU, state(peers=["S"])),
    "LSU with number peers": ("LSU", LSU, state(peers={1: Int(1)})),
    "LSU with text costs": ("LSU", LSU, state(peers={"S": "1"})),
    "LSU with null cost": ("LSU", LSU, state(peers={"S": None})),
    "LSU with negative cost": ("LSU", LSU, state(peers={"S": Int(-5), "neg": Int(-5)}, ls_seq=Int(100))),
    "LSU with no cost": ("LSU", LSU, state(peers={"S": Int(0), "zero": Int(0)}, ls_seq=Int(101))),
    "LSU with huge cost": ("LSU", LSU, state(peers={"S": Int(1), "huge": Long(HUGE)}, ls_seq=Int(102))),
    "LSU with itself as peer": ("LSU", LSU, state(peers={"S": Int(1), "villain": Int(1)}, ls_seq=Int(103))),
    "LSU with an empty peer": ("LSU", LSU, state(peers={"S": Int(1), "": Int(1)}, ls_seq=Int(104))),
    "LSU with doubled peers": ("LSU", LSU, state(peers=Map([("S", Int(1)), ("S", Int(2))]), ls_seq=Int(105))),
    "LSU of another id inside": ("LSU", LSU, state(id="other", ls_seq=Int(106))),
    "MAR without sequence": ("MAR", control.router_to("S", mobile=True), common()),
    "MAR with text sequence": ("MAR", control.router_to("S", mobile=True), common(have_seq="x")),
    "MAR from the future": ("MAR", control.router_to("S", mobile=True), common(have_seq=Long(HUGE))),
    "MAU with number keys": ("MAU", MOBILE, common(mobile_seq=Long(1), add=[1, None], **{"del": [2]})),
    "MAU with empty keys": ("MAU", MOBILE, common(mobile_seq=Long(1), add=["", "M", "M0"], **{"del": ["", "M"]})),
    "MAU of no class": (
        "MAU",
        MOBILE,
        common(mobile_seq=Long(1), add=["Lqdhello", "Tqdrouter", "RS", "Q1", "L$management"], **{"del": []}),
    ),
    "MAU with our services": ("MAU", MOBILE, common(mobile_seq=Long(1), add=["M0$management"], **{"del": []})),
    "MAU with bad hints": (
        "MAU",
        MOBILE,
        common(mobile_seq=Long(1), add=["M0hint"], hints=[Int(-7)], **{"del": []}),
    ),
    "MAU with huge hints": (
        "MAU",
        MOBILE,
        common(mobile_seq=Long(1), add=["M0hint"], hints=[Long(HUGE)], **{"del": []}),
    ),
    "MAU with bad patterns": (
        "MAU",
        MOBILE,
        common(mobile_seq=Long(1), add=["E#.#.*", "E", "C", "F*.", "D.#"], **{"del": []}),
    ),
    "MAU with long keys": ("MAU", MOBILE, common(mobile_seq=Long(1), add=["M0" + "x" * 100_000], **{"del": []})),
    "MAU with many keys": (
        "MAU",
        MOBILE,
        common(mobile_seq=Long(1000), exist=[f"M0many/{number}" for number in range(20_000)]),
    ),
    "MAU that takes them back": ("MAU", MOBILE, common(mobile_seq=Long(1001), exist=[])),
    "MAU of the last sequence": ("MAU", MOBILE, common(mobile_seq=Long(HUGE), exist=[])),
    "unknown opcode": ("FOO", HELLO, common()),
    "empty opcode": ("", HELLO, common()),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies(villain: Scripted, solo: Sluice, name: str) -> None:
    opcode, to, body = BODIES[name]
    villain.send(body_of(opcode, to, body))
    still_there(villain)


def whole(to: str | None, properties: bytes = b"", value: bytes = b"", before: bytes = b"") -> bytes:
    """A message put together from sections."""
    address = section(message.PROPERTIES, list32([None, None, to])) if to is not None else b""
    return before + address + properties + value


def opcode_of(value: Any) -> bytes:
    """Application properties with an opcode."""
    return section(message.APPLICATION_PROPERTIES, map32([("opcode", value)]))


GOOD = control.hello("villain", 5, ["S"])
ADVERTISEMENT = control.router_advertisement("villain", 5, 1, 0)
MESSAGES: dict[str, bytes] = {
    "empty": b"",
    "noise": bytes(range(256)),
    "zeros": bytes(64),
    "cut in the header": GOOD[:9],
    "cut in the annotations": GOOD[:40],
    "cut in the body": GOOD[:-7],
    "more after the end": GOOD + b"\x00",
    "no address": whole(None, opcode_of("HELLO"), section(message.VALUE, map32([("id", "x")]))),
    "address of nobody": whole("amqp:/_topo/0/nobody/qdrouter", opcode_of("LSR")),
    "address of another area": whole("amqp:/_topo/7/S/qdrouter", opcode_of("LSR")),
    "address of a client": whole("balanced/control", b"", message.value("not for here")),
    "management on a control link": whole("amqp:/_topo/0/S/$management", b"", message.value("x")),
    "no properties": whole(HELLO, b"", section(message.VALUE, map32([("id", "x")]))),
    "no body": whole(HELLO, opcode_of("HELLO")),
    "body a text": whole(HELLO, opcode_of("HELLO"), message.value("text")),
    "body of octets": whole(HELLO, opcode_of("HELLO"), message.data(b"octets")),
    "body a list": whole(HELLO, opcode_of("HELLO"), message.value([1, 2])),
    "opcode a number": whole(HELLO, opcode_of(7), message.value({})),
    "annotations no map": whole(HELLO, before=section(message.MESSAGE_ANNOTATIONS, "x")),
    "trace no list": whole(RA, before=message.annotations({"x-opt-qd.trace": "0/villain"})) + ADVERTISEMENT[-80:],
    "trace of numbers": whole(RA, before=message.annotations({"x-opt-qd.trace": [1, 2, 3]})),
    "ingress a number": whole(RA, before=message.annotations({"x-opt-qd.ingress": 5})),
    "to-override a symbol": whole(RA, before=message.annotations({"x-opt-qd.to": Symbol("x")})),
    "a long trace": control.router_advertisement("villain", 5, 1, 0, trace=[f"r{number}" for number in range(5000)]),
    "a trace with ourselves": control.router_advertisement("villain", 5, 1, 0, trace=["villain", "S", "villain"]),
    "sections in disorder": message.value(1) + message.properties(to=HELLO) + message.header(durable=True),
    "an unknown section": section(0x99, [1, 2]) + GOOD,
    "a megabyte": whole(HELLO, opcode_of("HELLO"), message.data(bytes(1_000_000))),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages(villain: Scripted, solo: Sluice, name: str) -> None:
    octets = MESSAGES[name]
    assert villain.connection.control_out is not None
    villain.router.send_on(villain.connection.control_out, octets or b"\x00", settled=True)
    still_there(villain)


def test_every_octet_changed(villain: Scripted, solo: Sluice) -> None:
    for original in (ADVERTISEMENT, control.mobile_update("villain", 1, [("M0x", 3)], [])):
        for at in range(0, len(original), 3):
            changed = bytearray(original)
            changed[at] ^= 0xFF
            villain.send(bytes(changed))
    still_there(villain)


def test_unsettled_control_messages_are_settled(villain: Scripted, solo: Sluice) -> None:
    assert villain.connection.control_out is not None
    octets = control.link_state_request("villain", "S")
    before = len(villain.got("LSU"))
    sent = villain.router.send_on(villain.connection.control_out, octets)
    assert sent.outcome() is not None
    villain.wait("LSU", before)


def test_control_messages_on_a_data_link_are_released(villain: Scripted, solo: Sluice) -> None:
    link = villain.connection.data_link(4)
    assert link is not None
    for to in ("amqp:/_local/qdhello", "amqp:/_topo/0/S/qdrouter", "amqp:/_topo/0/S/qdrouter.ma"):
        sent = villain.router.send_on(link, message.message("x", to=to))
        assert sent.outcome() == "released", to
    still_there(villain)


def test_a_claim_to_be_us(villain: Scripted, solo: Sluice, view: View) -> None:
    before = sorted(view.own_peers())
    villain.send(control.router_advertisement("S", 1, 10_000, 10_000, trace=["villain"]))
    villain.send(control.link_state_update("S", "S", 1, 10_000, {"nowhere": 1}, trace=["villain"]))
    villain.send(control.mobile_update("S", 1, [("M0mine", 3)], ["M0mine"], trace=["villain"]))
    still_there(villain)
    assert sorted(view.own_peers()) == before
    assert "nowhere" not in view.nodes()


def test_many_unknown_routers_are_bounded(villain: Scripted, solo: Sluice, view: View) -> None:
    peers = {"S": 1, **{f"ghost{number}": 1 for number in range(400)}}
    villain.ra(10_000)
    villain.lsu(10_000, peers)
    still_there(villain)
    villain.ra(10_001)
    villain.lsu(10_001, {"S": 1})
    for number in range(0, 400, 57):
        view.wait_gone(f"ghost{number}")


def test_a_neighbour_that_gives_no_credit_is_not_waited_for(script: Script, view: View, villain: Scripted) -> None:
    """One whose control link takes nothing must not hold up the others."""
    with AmqpPeer.opened(view.sluice.ports["ir"], container_id="mean") as peer:
        session = peer.begin()
        capability = frames.source(capabilities="qd.router"), frames.target(capabilities="qd.router")
        session.receiver(source=capability[0], target=capability[1])
        sender = session.sender(source=capability[0], target=capability[1])
        sender.send(control.hello("mean", 5, ["S"]), settled=True)
        view.wait_neighbour("mean")
        one = script().adjacent()
        one.lsr()
        one.wait("LSU")
        still_there(villain)


def test_two_routers_of_one_name(world: Router19Loop, solo: Sluice, view: View, fresh: Fresh) -> None:
    twins = [Router19(world, "twin", QUICK, instance=number) for number in (1, 2)]
    try:
        for twin in twins:
            twin.connect(solo.ports["ir"])
        view.wait_neighbour("twin")
        witness = Scripted(world, solo, "witness").adjacent()
        still_there(witness)
        witness.stop()
    finally:
        for twin in twins:
            twin.stop()
    view.wait_no_neighbour("twin", CONVERGE)


def test_noise_at_the_router_port(villain: Scripted, solo: Sluice) -> None:
    for _ in range(50):
        with AmqpPeer(solo.ports["ir"]) as peer:
            peer.raw(b"AMQP\x03\x01\x00\x00" + b"\xff" * 64)
    still_there(villain)
