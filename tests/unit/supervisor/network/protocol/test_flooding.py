"""Flooding: which messages are relayed, to whom, and how often (inter-router.md 11.1, 11.2;
inter-router-protocol.md 5.9)."""

import pytest

from sluice.router.amqp import codec
from sluice.supervisor.network.protocol import messages
from sluice.supervisor.network.protocol.annotations import originated_head
from sluice.supervisor.network.protocol.local_router import node_id
from sluice.supervisor.network.protocol.timers import ProtocolLimits
from tests.unit.supervisor.network.protocol.driven_engine import DrivenEngine


def star(ours: bool = False) -> DrivenEngine:
    """Return router A with neighbours B, C and D."""
    a = DrivenEngine()
    for link, peer in ((1, "B"), (2, "C"), (3, "D")):
        a.neighbour(link, peer, ours=ours)
        a.link_state(link, peer, 1, {"A": 1})
    a.run(0.5)
    a.clear()
    return a


RA = messages.encode_advertisement("B", 50, 1, 0)


def test_flooded_message_is_relayed_except_along_trace() -> None:
    a = star()
    a.receive(1, RA, "B")
    assert [(sent.link, sent.ingress, sent.trace) for sent in a.sent] == [(2, "B", ["B", "A"]), (3, "B", ["B", "A"])]
    assert all(octets.endswith(RA) for _, octets in a.octets)
    a.clear()
    a.receive(1, messages.encode_advertisement("C", 50, 1, 5), ["C", "B"])
    assert [sent.link for sent in a.sent if sent.ingress == "C"] == [3]


def test_copies_are_not_relayed() -> None:
    a = star()
    a.receive(1, RA, "B")
    a.clear()
    a.receive(2, RA, ["B", "C"])
    assert a.sent == []
    a.run(2.5)
    a.clear()
    a.receive(1, RA, "B")  # the next one, equal to the last
    assert [sent.link for sent in a.sent] == [2, 3]


def test_copy_by_shorter_path_is_relayed() -> None:
    a = star()
    other = messages.encode_advertisement("B", 50, 1, 0)
    a.receive(2, other, ["B", "C"])
    a.clear()
    a.receive(1, other, "B")
    assert [(sent.link, sent.trace) for sent in a.sent] == [(2, ["B", "A"]), (3, ["B", "A"])]


def test_echo_is_dropped() -> None:
    a = star()
    a.receive(1, messages.encode_advertisement("A", 100, 9, 9), ["A", "B"])
    assert (a.sent, a.changes) == ([], [])


def test_unknown_opcodes_are_relayed() -> None:
    a = star()
    a.receive(1, RA.replace(b"\xa1\x02RA", b"\xa1\x02XX"), "B")
    assert [sent.link for sent in a.sent] == [2, 3]


def test_hop_limit_is_radius_plus_one() -> None:
    a = star()
    a.receive(1, messages.encode_mobile_change("B", 7, {}, []), ["B", "X", "Y"])
    assert [sent for sent in a.sent if sent.ingress == "B"] == []
    a = star(ours=True)  # Sluice neighbours recognise copies, so the trace alone need not stop a message there.
    a.receive(1, messages.encode_mobile_change("B", 7, {}, []), ["B", "X", "Y"])
    assert [sent.link for sent in a.sent if sent.ingress == "B"] == [2, 3]


def test_message_for_other_router_goes_to_next_hop() -> None:
    a = star()
    tail = messages.encode_link_state_request("B", messages.to_router_ls("C"))
    a.receive(1, tail, "B")
    assert [(sent.link, sent.to, sent.ingress, sent.trace) for sent in a.sent] == [
        (2, "amqp:/_topo/0/C/qdrouter", "B", ["B", "A"])
    ]
    a.clear()
    a.receive(1, messages.encode_link_state_request("B", messages.to_router_ls("X")), "B")
    a.receive(1, tail, ["B", "X", "Y"])
    assert a.sent == []


@pytest.mark.parametrize(
    "address",
    [
        "amqp:/_topo/0/A/qdrouter",
        "_topo/0/A/qdrouter",
        "amqp://host:1/_topo/all/A/qdrouter",
        "/_local/qdrouter",
        "//h/_local/qdrouter",
    ],
)
def test_equivalent_forms_of_own_address_are_accepted(address: str) -> None:
    a = star()
    a.receive(1, messages.encode_link_state_request("B", address), "B")
    assert [sent.message and sent.message.id for sent in a.sent] == ["A"]


def test_annotation_to_decides_destination() -> None:
    a = star()
    entries = [codec.encode_symbol("x-opt-qd.to"), codec.encode_string("_topo/0/C/qdrouter")]
    tail = messages.encode_link_state_request("B", messages.to_router_ls("A"))
    a.engine.receive(1, b"\0\x53\x72" + codec.encode_map(entries) + tail, a.now)
    a.settle()
    assert [sent.link for sent in a.sent] == [2]


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"\0\x53\x70\x45",
        b"nonsense",
        originated_head(node_id("B")),
        originated_head(node_id("B")) + RA[:-3],
        originated_head(node_id("B")) + messages.encode_hello("B", 1, []).replace(b"HELLO", b"LSUUU")[:-9],
    ],
)
def test_malformed_message_is_dropped_and_logged(octets: bytes) -> None:
    a = star()
    a.engine.receive(1, octets, a.now)
    a.settle()
    assert (a.sent, a.changes) == ([], [])
    assert [line.text.startswith("Control message from B dropped: ") for line in a.log] == [True]


def test_oversized_messages_and_unknown_versions_are_refused() -> None:
    a = DrivenEngine(limits=ProtocolLimits(message_octets=1000))
    a.neighbour(1)
    a.clear()
    a.receive(1, messages.encode_mobile_change("B", 1, dict.fromkeys(map(str, range(500)), 1), []), "B")
    assert ["octets, and at most" in line.text for line in a.log] == [True]
    a.engine.receive(99, b"x", a.now)
    for _ in range(2):
        a.receive(1, RA.replace(b"\xa1\x02pv\x54\x01", b"\xa1\x02pv\x54\x02"), "B")
    assert [line.text for line in a.log][1:] == ["Messages of router B are ignored: protocol version 2 is unknown"]
