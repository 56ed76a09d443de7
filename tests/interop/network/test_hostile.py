"""Malformed control messages and misbehaving routers, which must harm neither the router nor the connection.

All messages go to one router. After each, their sender is still its neighbour, on the same connection.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.interop.network.net import CONVERGE, QUICK, Sluice
from tests.interop.network.scripted import ScriptedRouter, ScriptedRouterView
from tests.peer import frames, message
from tests.peer.peer import AmqpPeer
from tests.peer.router19 import control
from tests.peer.router19.encoding import list32, map32, section
from tests.peer.router19.loop import Router19Loop
from tests.peer.router19.router import Router19
from tests.peer.types import Int, Long, Map, Raw, Symbol
from tests.system.router import poll

ScriptedRouterFactory = Callable[..., ScriptedRouter]
Fresh = Callable[..., str]
HELLO, RA, LSU = control.HELLO_TO, control.ALL_TO, control.router_to("S")
MOBILE = control.ALL_MOBILE_TO
HUGE = (1 << 63) - 1


@pytest.fixture(scope="module")
def hostile(router19_loop: Router19Loop, _solo: Sluice) -> Iterator[ScriptedRouter]:
    """Scripted neighbour that sends the malformed messages."""
    neighbour = ScriptedRouter(router19_loop, _solo, "villain").wait_adjacent()
    yield neighbour
    neighbour.stop()


def check_neighbour_kept(neighbour: ScriptedRouter) -> None:
    """Wait until S answers a request on the same connection and lists the neighbour, possibly again."""

    def listed() -> bool:
        before = len(neighbour.received("LSU"))
        neighbour.lsr()
        try:
            answer = neighbour.wait("LSU", before, timeout=0.5)
        except AssertionError:
            return False
        return neighbour.id in answer.body["ls"]["peers"]

    poll(listed, f"S answers and lists {neighbour.id}", CONVERGE)
    assert not neighbour.connection.lost


def envelope(opcode: str, to: str, pairs: dict[Any, Any] | list[tuple[Any, Any]]) -> bytes:
    """Return a control message of the hostile neighbour with any body."""
    items = list(pairs.items()) if isinstance(pairs, dict) else pairs
    return control.envelope("villain", to, opcode, map32(items))


def common_body(**more: Any) -> dict[str, Any]:
    """Return a body with id, pv, area, instance, and the given members."""
    return {"id": "villain", "pv": Int(1), "area": "0", "instance": Int(5), **more}


def lsu_body(**inner: Any) -> dict[str, Any]:
    """Return the body of an LSU, with the given changes of the inner map."""
    return common_body(
        ls_seq=Int(9), ls={"id": "villain", "area": "0", "ls_seq": Int(9), "peers": {"S": Int(1)}, **inner}
    )


def nested_lists(depth: int) -> Raw:
    """Return lists nested `depth` levels deep."""
    octets = b"\x45"
    for _ in range(depth):
        octets = struct.pack("!BII", 0xD0, len(octets) + 4, 1) + octets
    return Raw(octets)


BODIES: dict[str, tuple[str, str, Any]] = {
    "HELLO without id": ("HELLO", HELLO, {"pv": Int(1), "seen": []}),
    "HELLO without seen": ("HELLO", HELLO, common_body()),
    "HELLO with seen a string": ("HELLO", HELLO, common_body(seen="S")),
    "HELLO with numbers seen": ("HELLO", HELLO, common_body(seen=[1, 2, None])),
    "HELLO with binary id": ("HELLO", HELLO, {**common_body(seen=["S"]), "id": b"villain"}),
    "HELLO with number id": ("HELLO", HELLO, {**common_body(seen=["S"]), "id": 7}),
    "HELLO with empty id": ("HELLO", HELLO, {**common_body(seen=[]), "id": ""}),
    "HELLO with a slash in its id": ("HELLO", HELLO, {**common_body(seen=[]), "id": "a/b/c"}),
    "HELLO of a later version": ("HELLO", HELLO, {**common_body(seen=["S"]), "pv": Int(2)}),
    "HELLO with text version": ("HELLO", HELLO, {**common_body(seen=["S"]), "pv": "1"}),
    "HELLO with boolean instance": ("HELLO", HELLO, {**common_body(seen=["S"]), "instance": True}),
    "HELLO with keys of no type": ("HELLO", HELLO, [(1, 2), (None, None), ("id", "villain")]),
    "HELLO with ten thousand seen": ("HELLO", HELLO, common_body(seen=[f"r{number}" for number in range(10_000)])),
    "HELLO with a deep value": ("HELLO", HELLO, common_body(seen=[], more=nested_lists(5000))),
    "RA without sequences": ("RA", RA, common_body()),
    "RA with text sequences": ("RA", RA, common_body(ls_seq="1", mobile_seq="1")),
    "RA with a negative sequence": ("RA", RA, common_body(ls_seq=Int(-1), mobile_seq=Int(-1))),
    "RA with nothing": ("RA", RA, {}),
    "LSR without id": ("LSR", LSU, {"pv": Int(1)}),
    "LSU without ls": ("LSU", LSU, common_body(ls_seq=Int(9))),
    "LSU with ls a list": ("LSU", LSU, common_body(ls_seq=Int(9), ls=[1])),
    "LSU without peers": ("LSU", LSU, common_body(ls_seq=Int(9), ls={"id": "villain", "ls_seq": Int(9)})),
    "LSU with peers a list": ("LSU", LSU, lsu_body(peers=["S"])),
    "LSU with number peers": ("LSU", LSU, lsu_body(peers={1: Int(1)})),
    "LSU with text costs": ("LSU", LSU, lsu_body(peers={"S": "1"})),
    "LSU with null cost": ("LSU", LSU, lsu_body(peers={"S": None})),
    "LSU with negative cost": ("LSU", LSU, lsu_body(peers={"S": Int(-5), "neg": Int(-5)}, ls_seq=Int(100))),
    "LSU with no cost": ("LSU", LSU, lsu_body(peers={"S": Int(0), "zero": Int(0)}, ls_seq=Int(101))),
    "LSU with huge cost": ("LSU", LSU, lsu_body(peers={"S": Int(1), "huge": Long(HUGE)}, ls_seq=Int(102))),
    "LSU with itself as peer": ("LSU", LSU, lsu_body(peers={"S": Int(1), "villain": Int(1)}, ls_seq=Int(103))),
    "LSU with an empty peer": ("LSU", LSU, lsu_body(peers={"S": Int(1), "": Int(1)}, ls_seq=Int(104))),
    "LSU with doubled peers": ("LSU", LSU, lsu_body(peers=Map([("S", Int(1)), ("S", Int(2))]), ls_seq=Int(105))),
    "LSU of another id inside": ("LSU", LSU, lsu_body(id="other", ls_seq=Int(106))),
    "MAR without sequence": ("MAR", control.router_to("S", mobile=True), common_body()),
    "MAR with text sequence": ("MAR", control.router_to("S", mobile=True), common_body(have_seq="x")),
    "MAR from the future": ("MAR", control.router_to("S", mobile=True), common_body(have_seq=Long(HUGE))),
    "MAU with number keys": ("MAU", MOBILE, common_body(mobile_seq=Long(1), add=[1, None], **{"del": [2]})),
    "MAU with empty keys": ("MAU", MOBILE, common_body(mobile_seq=Long(1), add=["", "M", "M0"], **{"del": ["", "M"]})),
    "MAU of no class": (
        "MAU",
        MOBILE,
        common_body(mobile_seq=Long(1), add=["Lqdhello", "Tqdrouter", "RS", "Q1", "L$management"], **{"del": []}),
    ),
    "MAU with our services": ("MAU", MOBILE, common_body(mobile_seq=Long(1), add=["M0$management"], **{"del": []})),
    "MAU with bad hints": (
        "MAU",
        MOBILE,
        common_body(mobile_seq=Long(1), add=["M0hint"], hints=[Int(-7)], **{"del": []}),
    ),
    "MAU with huge hints": (
        "MAU",
        MOBILE,
        common_body(mobile_seq=Long(1), add=["M0hint"], hints=[Long(HUGE)], **{"del": []}),
    ),
    "MAU with bad patterns": (
        "MAU",
        MOBILE,
        common_body(mobile_seq=Long(1), add=["E#.#.*", "E", "C", "F*.", "D.#"], **{"del": []}),
    ),
    "MAU with long keys": ("MAU", MOBILE, common_body(mobile_seq=Long(1), add=["M0" + "x" * 100_000], **{"del": []})),
    "MAU with many keys": (
        "MAU",
        MOBILE,
        common_body(mobile_seq=Long(1000), exist=[f"M0many/{number}" for number in range(20_000)]),
    ),
    "MAU that takes them back": ("MAU", MOBILE, common_body(mobile_seq=Long(1001), exist=[])),
    "MAU of the last sequence": ("MAU", MOBILE, common_body(mobile_seq=Long(HUGE), exist=[])),
    "unknown opcode": ("FOO", HELLO, common_body()),
    "empty opcode": ("", HELLO, common_body()),
}


@pytest.mark.parametrize("name", BODIES)
def test_malformed_body_keeps_neighbour(hostile: ScriptedRouter, solo: Sluice, name: str) -> None:
    opcode, to, body = BODIES[name]
    hostile.send(envelope(opcode, to, body))
    check_neighbour_kept(hostile)


def compose_message(to: str | None, properties: bytes = b"", value: bytes = b"", before: bytes = b"") -> bytes:
    """Return a message composed of sections."""
    address = section(message.PROPERTIES, list32([None, None, to])) if to is not None else b""
    return before + address + properties + value


def opcode_section(value: Any) -> bytes:
    """Return application properties with an opcode."""
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
    "no address": compose_message(None, opcode_section("HELLO"), section(message.VALUE, map32([("id", "x")]))),
    "address of nobody": compose_message("amqp:/_topo/0/nobody/qdrouter", opcode_section("LSR")),
    "address of another area": compose_message("amqp:/_topo/7/S/qdrouter", opcode_section("LSR")),
    "address of a client": compose_message("balanced/control", b"", message.value("not for here")),
    "management on a control link": compose_message("amqp:/_topo/0/S/$management", b"", message.value("x")),
    "no properties": compose_message(HELLO, b"", section(message.VALUE, map32([("id", "x")]))),
    "no body": compose_message(HELLO, opcode_section("HELLO")),
    "body a text": compose_message(HELLO, opcode_section("HELLO"), message.value("text")),
    "body of octets": compose_message(HELLO, opcode_section("HELLO"), message.data(b"octets")),
    "body a list": compose_message(HELLO, opcode_section("HELLO"), message.value([1, 2])),
    "opcode a number": compose_message(HELLO, opcode_section(7), message.value({})),
    "annotations no map": compose_message(HELLO, before=section(message.MESSAGE_ANNOTATIONS, "x")),
    "trace no list": compose_message(RA, before=message.annotations({"x-opt-qd.trace": "0/villain"}))
    + ADVERTISEMENT[-80:],
    "trace of numbers": compose_message(RA, before=message.annotations({"x-opt-qd.trace": [1, 2, 3]})),
    "ingress a number": compose_message(RA, before=message.annotations({"x-opt-qd.ingress": 5})),
    "to-override a symbol": compose_message(RA, before=message.annotations({"x-opt-qd.to": Symbol("x")})),
    "a long trace": control.router_advertisement("villain", 5, 1, 0, trace=[f"r{number}" for number in range(5000)]),
    "a trace with ourselves": control.router_advertisement("villain", 5, 1, 0, trace=["villain", "S", "villain"]),
    "sections in disorder": message.value(1) + message.properties(to=HELLO) + message.header(durable=True),
    "an unknown section": section(0x99, [1, 2]) + GOOD,
    "a megabyte": compose_message(HELLO, opcode_section("HELLO"), message.data(bytes(1_000_000))),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_malformed_message_keeps_neighbour(hostile: ScriptedRouter, solo: Sluice, name: str) -> None:
    octets = MESSAGES[name]
    assert hostile.connection.control_out is not None
    hostile.router.send_on(hostile.connection.control_out, octets or b"\x00", settled=True)
    check_neighbour_kept(hostile)


def test_changed_octets_keep_neighbour(hostile: ScriptedRouter, solo: Sluice) -> None:
    for original in (ADVERTISEMENT, control.mobile_update("villain", 1, [("M0x", 3)], [])):
        for at in range(0, len(original), 3):
            changed = bytearray(original)
            changed[at] ^= 0xFF
            hostile.send(bytes(changed))
    check_neighbour_kept(hostile)


def test_unsettled_control_messages_are_settled(hostile: ScriptedRouter, solo: Sluice) -> None:
    assert hostile.connection.control_out is not None
    octets = control.link_state_request("villain", "S")
    before = len(hostile.received("LSU"))
    sent = hostile.router.send_on(hostile.connection.control_out, octets)
    assert sent.outcome() is not None
    hostile.wait("LSU", before)


def test_control_messages_on_data_link_are_released(hostile: ScriptedRouter, solo: Sluice) -> None:
    link = hostile.connection.data_link(4)
    assert link is not None
    for to in ("amqp:/_local/qdhello", "amqp:/_topo/0/S/qdrouter", "amqp:/_topo/0/S/qdrouter.ma"):
        sent = hostile.router.send_on(link, message.message("x", to=to))
        assert sent.outcome() == "released", to
    check_neighbour_kept(hostile)


def test_messages_with_own_id_change_nothing(hostile: ScriptedRouter, solo: Sluice, view: ScriptedRouterView) -> None:
    before = sorted(view.neighbours())
    hostile.send(control.router_advertisement("S", 1, 10_000, 10_000, trace=["villain"]))
    hostile.send(control.link_state_update("S", "S", 1, 10_000, {"nowhere": 1}, trace=["villain"]))
    hostile.send(control.mobile_update("S", 1, [("M0mine", 3)], ["M0mine"], trace=["villain"]))
    check_neighbour_kept(hostile)
    assert sorted(view.neighbours()) == before
    assert "nowhere" not in view.nodes()


def test_unknown_routers_are_forgotten_after_withdrawal(
    hostile: ScriptedRouter, solo: Sluice, view: ScriptedRouterView
) -> None:
    peers = {"S": 1, **{f"ghost{number}": 1 for number in range(400)}}
    hostile.ra(10_000)
    hostile.lsu(10_000, peers)
    check_neighbour_kept(hostile)
    hostile.ra(10_001)
    hostile.lsu(10_001, {"S": 1})
    for number in range(0, 400, 57):
        view.wait_gone(f"ghost{number}")


def test_neighbour_without_credit_does_not_block_others(
    scripted_router: ScriptedRouterFactory, view: ScriptedRouterView, hostile: ScriptedRouter
) -> None:
    """A neighbour that grants no credit on its control link does not delay messages to others."""
    with AmqpPeer.opened(view.sluice.ports["ir"], container_id="mean") as peer:
        session = peer.begin()
        capability = frames.source(capabilities="qd.router"), frames.target(capabilities="qd.router")
        session.receiver(source=capability[0], target=capability[1])
        sender = session.sender(source=capability[0], target=capability[1])
        sender.send(control.hello("mean", 5, ["S"]), settled=True)
        view.wait_neighbour("mean")
        neighbour = scripted_router().wait_adjacent()
        neighbour.lsr()
        neighbour.wait("LSU")
        check_neighbour_kept(hostile)


def test_routers_sharing_id_do_no_harm(
    router19_loop: Router19Loop, solo: Sluice, view: ScriptedRouterView, fresh: Fresh
) -> None:
    twins = [Router19(router19_loop, "twin", QUICK, instance=number) for number in (1, 2)]
    try:
        for twin in twins:
            twin.connect(solo.ports["ir"])
        view.wait_neighbour("twin")
        witness = ScriptedRouter(router19_loop, solo, "witness").wait_adjacent()
        check_neighbour_kept(witness)
        witness.stop()
    finally:
        for twin in twins:
            twin.stop()
    view.wait_no_neighbour("twin", CONVERGE)


def test_noise_at_router_port_does_no_harm(hostile: ScriptedRouter, solo: Sluice) -> None:
    for _ in range(50):
        with AmqpPeer(solo.ports["ir"]) as peer:
            peer.raw(b"AMQP\x03\x01\x00\x00" + b"\xff" * 64)
    check_neighbour_kept(hostile)
