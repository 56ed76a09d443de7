"""Control messages as octets: captured ones, other accepted encodings, and malformed input.

inter-router.md 4.2 to 4.7, 16.3 to 16.9; inter-router-protocol.md 5.1.
"""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.router.amqp import codec
from sluice.supervisor.network.protocol import annotations, messages
from sluice.supervisor.network.protocol.annotations import ControlMessageError
from sluice.supervisor.network.protocol.messages import (
    Advertisement,
    Hello,
    LinkStateRequest,
    LinkStateUpdate,
    Message,
    MobileChange,
    MobileRequest,
    MobileState,
    Summary,
)

FILE = Path(__file__).resolve().parents[4] / "vectors" / "network" / "messages.txt"
KEYS = {"Clr": 4, "Dlr": 4, "Elp.*.x.#": 4, "M0wp.1": 3, "MFfb.1": 3, "M0cl.1": 2, "M0mc.1": 1, "M0bal.1": 3}


def vectors() -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for block in FILE.read_text("ascii").split("\n\n")[1:]:
        name, *octets = [line for line in block.splitlines() if not line.startswith("#")]
        found[name] = bytes.fromhex("".join(octets))
    return found


VECTORS = vectors()
A, B = codec.encode_string("0/A"), codec.encode_string("0/B")
# name -> (node id of the sender, address, message, tail as Sluice encodes it)
EXPECTED: dict[str, tuple[bytes, str, Message, bytes]] = {
    "hello-nobody-seen": (
        A,
        "amqp:/_local/qdhello",
        Hello("A", 1, 1795221189, ()),
        messages.encode_hello("A", 1795221189, []),
    ),
    "hello-a-seen": (
        B,
        "amqp:/_local/qdhello",
        Hello("B", 1, 1795221187, ("A",)),
        messages.encode_hello("B", 1795221187, ["A"]),
    ),
    "lsr": (
        A,
        "amqp:/_topo/0/B/qdrouter",
        LinkStateRequest("A", 1),
        messages.encode_link_state_request("A", messages.to_router_ls("B")),
    ),
    "lsu": (
        B,
        "amqp:/_topo/0/A/qdrouter",
        LinkStateUpdate("B", 1, 1795221187, 0, {"A": 5}),
        messages.encode_link_state("B", 1795221187, 0, [("A", 5)], messages.to_router_ls("A")),
    ),
    "ra": (
        A,
        "amqp:/_topo/0/all/qdrouter",
        Advertisement("A", 1, 1795221189, 1, 0),
        messages.encode_advertisement("A", 1795221189, 1, 0),
    ),
    "mau-differential": (
        A,
        "_topo/0/all/qdrouter.ma",
        MobileChange("A", 1, 1, dict(KEYS), ()),
        messages.encode_mobile_change("A", 1, KEYS, []),
    ),
    "mar": (
        B,
        "amqp:/_topo/0/A/qdrouter.ma",
        MobileRequest("B", 1, 0),
        messages.encode_mobile_request("B", 0, messages.to_router_mobile("A")),
    ),
    "mau-absolute": (
        A,
        "amqp:/_topo/0/B/qdrouter.ma",
        MobileState("A", 1, 1, dict(KEYS)),
        messages.encode_mobile_state("A", 1, dict(KEYS), messages.to_router_mobile("B")),
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_captured_messages_are_encoded_octet_for_octet(name: str) -> None:
    node, _, _, tail = EXPECTED[name]
    assert (annotations.originated_head(node) + tail).hex() == VECTORS[name].hex()


@pytest.mark.parametrize("name", VECTORS)
def test_captured_messages_are_decoded(name: str) -> None:
    node, to, message, tail = EXPECTED[name]
    envelope = annotations.read(VECTORS[name])
    assert (envelope.ingress, envelope.trace_ids(), envelope.tail()) == (node, [node[4:].decode()], tail)
    assert messages.address(VECTORS[name], envelope.tail_at) == to
    read = messages.decode(tail)
    assert read == message
    if isinstance(read, MobileChange):
        assert list(read.added) == list(KEYS)  # the order of events


def test_message_kinds_have_vectors() -> None:
    assert set(EXPECTED) == set(VECTORS)


def test_withdrawal_has_empty_lists_of_32_bits() -> None:
    tail = messages.encode_mobile_change("A", 2, {}, ["M0wp.1", "Clr"])
    assert tail.count(bytes.fromhex("d00000000400000000")) == 2
    assert messages.decode(tail) == MobileChange("A", 1, 2, {}, ("M0wp.1", "Clr"))


def test_large_numbers_are_encoded_wider() -> None:
    assert bytes.fromhex("81000000ffffffffff") in messages.encode_advertisement("A", 0xFFFFFFFFFF, 1, 2)
    assert bytes.fromhex("71000003e8") in messages.encode_advertisement("A", 1, 1000, 2)
    assert bytes.fromhex("8100000000000003e8") in messages.encode_mobile_change("A", 1000, {}, [])


def test_sluice_messages_round_trip() -> None:
    tail = messages.encode_summary("A", 7, {"A": (7, 1, 2), "B": (300, 4, 5)})
    assert messages.decode(tail) == Summary("A", 1, 7, {"A": (7, 1, 2), "B": (300, 4, 5)})
    tail = messages.encode_link_state("B", 7, 3, [("A", 1)], messages.TO_NEIGHBOUR_LS, 12)
    assert messages.decode(tail) == LinkStateUpdate("B", 1, 7, 3, {"A": 1}, 12)
    tail = messages.encode_mobile_state("B", 3, {"M0a": 1, "M0b": None}, messages.TO_NEIGHBOUR_MOBILE, 7)
    assert messages.decode(tail) == MobileState("B", 1, 3, {"M0a": None, "M0b": None}, 7)


# -- Encodings that 1.19 accepts (inter-router.md 4.1)


def tail_of(opcode: object, body: object, to: str = "_local/qdhello") -> bytes:
    """Return a tail with the smallest encodings instead of those of 1.19."""
    properties = codec.encode_list([b"\x40", b"\x40", codec.encode_string(to)])
    application = codec.encode_map([codec.encode_symbol("opcode"), codec.encode_value(opcode)])
    octets: bytes = b"\0\x53\x73" + properties + b"\0\x53\x74" + application + b"\0\x53\x77" + codec.encode_value(body)
    return octets


def test_symbols_longs_and_any_compound_encoding_are_accepted() -> None:
    symbol = codec.Symbol
    body = {symbol("id"): symbol("X"), symbol("instance"): 2**40, "seen": [symbol("A"), "B"], "extra": [1, None]}
    assert messages.decode(tail_of("HELLO", body)) == Hello("X", 0, 2**40, ("A", "B"))
    assert messages.decode(tail_of(symbol("HELLO"), {"id": "X", "seen": []})) == Hello("X", 0, 0, ())
    raw = tail_of("RA", {"id": "X", "ls_seq": 1, "mobile_seq": 2})
    for one in (b"\x55\x01", b"\x50\x01", b"\x52\x01", b"\x53\x01", b"\x60\x00\x01"):  # other widths and signs
        other = raw.replace(codec.encode_string("ls_seq") + b"\x54\x01", codec.encode_string("ls_seq") + one)
        body_at = other.index(b"\0\x53\x77") + 3
        other = other[: body_at + 1] + bytes((other[body_at + 1] + len(one) - 2,)) + other[body_at + 2 :]
        assert messages.decode(other) == Advertisement("X", 0, 0, 1, 2)


def test_missing_annotations_are_accepted() -> None:
    tail = VECTORS["ra"][VECTORS["ra"].index(b"\0\x53\x73") :]
    for before in (b"", bytes.fromhex("00537045"), bytes.fromhex("005370c00101" + "42")[:0] + b"\0\x53\x70\x45"):
        envelope = annotations.read(before + tail)
        assert (envelope.ingress, envelope.trace_count, envelope.tail()) == (None, 0, tail)
        assert messages.address(before + tail, envelope.tail_at) == "amqp:/_topo/0/all/qdrouter"
        assert annotations.relayed(envelope, A) == before + annotations.originated_head(A)[13:] + tail


@pytest.mark.parametrize(
    ("opcode", "body"),
    [
        ("HELLO", {"id": "X"}),
        ("HELLO", {"id": "X", "seen": "A"}),
        ("HELLO", {"id": "X", "seen": [1]}),
        ("HELLO", {"id": 1, "seen": []}),
        ("HELLO", {"id": "", "seen": []}),
        ("HELLO", {"id": "X", "seen": [], "instance": True}),
        ("HELLO", {"id": "X", "seen": [], "pv": None}),
        ("HELLO", [1]),
        ("RA", {"id": "X", "ls_seq": 1}),
        ("RA", {"id": "X", "ls_seq": True, "mobile_seq": 1}),
        ("RA", {"id": "X", "ls_seq": "1", "mobile_seq": 1}),
        ("LSR", {}),
        ("LSU", {"id": "X", "ls_seq": 1}),
        ("LSU", {"id": "X", "ls_seq": 1, "ls": {"id": "X", "ls_seq": 1}}),
        ("LSU", {"id": "X", "ls_seq": 1, "ls": {"ls_seq": 1, "peers": {}}}),
        ("LSU", {"id": "X", "ls_seq": 1, "ls": {"id": "X", "ls_seq": 1, "peers": {"A": 0}}}),
        ("LSU", {"id": "X", "ls_seq": 1, "ls": {"id": "X", "ls_seq": 1, "peers": {"A": -5}}}),
        ("LSU", {"id": "X", "ls_seq": 1, "ls": {"id": "X", "ls_seq": 1, "peers": {1: 1}}}),
        ("LSU", {"id": "X", "ls_seq": 1, "ls": {"id": "X", "ls_seq": 1, "peers": {"A": 2**31}}}),
        ("LSU", {"id": "X", "ls": {"id": "X", "ls_seq": 1, "peers": {}}}),
        ("MAR", {"id": "X"}),
        ("MAU", {"id": "X", "add": [], "del": []}),
        ("MAU", {"id": "X", "mobile_seq": 1}),
        ("MAU", {"id": "X", "mobile_seq": 1, "add": []}),
        ("MAU", {"id": "X", "mobile_seq": 1, "del": []}),
        ("MAU", {"id": "X", "mobile_seq": 1, "add": [], "del": {}}),
        ("MAU", {"id": "X", "mobile_seq": 1, "exist": [], "del": []}),
        ("MAU", {"id": "X", "mobile_seq": 1, "exist": [1]}),
        ("SUMMARY", {"id": "X", "routers": [["A", 1, 2]]}),
        ("SUMMARY", {"id": "X", "routers": [["A", 1, 2, "x"]]}),
        (7, {}),
    ],
)
def test_malformed_bodies_are_refused(opcode: object, body: object) -> None:
    with pytest.raises(ControlMessageError, match=r"\w"):
        messages.decode(tail_of(opcode, body))


def test_unknown_opcode_is_no_error() -> None:
    assert messages.decode(tail_of("FLUSH", {"id": "X"})) is None


def test_binary_id_is_refused() -> None:
    with pytest.raises(ControlMessageError, match="id is not a string"):
        messages.decode(tail_of("LSR", {"id": "X"}).replace(b"\xa1\x01X", b"\xa0\x01X"))


def test_mismatched_hints_are_ignored() -> None:
    body = {"id": "X", "mobile_seq": 1, "exist": ["M0a", "M0b"]}
    unknown = MobileState("X", 0, 1, {"M0a": None, "M0b": None})
    assert messages.decode(tail_of("MAU", body)) == unknown
    assert messages.decode(tail_of("MAU", {**body, "hints": [1]})) == unknown
    assert messages.decode(tail_of("MAU", {**body, "hints": "12"})) == unknown
    assert messages.decode(tail_of("MAU", {**body, "hints": [5, 0]})) == MobileState("X", 0, 1, {"M0a": None, "M0b": 0})


# -- Annotations (inter-router.md 10.2)


def test_relayed_message_matches_dispatch_octets() -> None:
    """The message is the RA of X3, relayed by X1 (16.6)."""
    tail = messages.encode_advertisement("X3", 5, 1, 0)
    envelope = annotations.read(annotations.originated_head(codec.encode_string("0/X3")) + tail)
    expected = bytes.fromhex(
        "005370d0000000050000000142005372c13804a310782d6f70742d71642e696e6772657373a104302f5833"
        "a30e782d6f70742d71642e7472616365c00d02a104302f5833a104302f5831"
    )
    assert annotations.relayed(envelope, codec.encode_string("0/X1")) == expected + tail


def test_user_annotations_precede_router_annotations() -> None:
    entries = [
        ("x-opt-qd.trace", codec.encode_list([codec.encode_string("0/A")])),
        ("mine", codec.encode_string("kept")),
        ("x-opt-qd.to", codec.encode_string("foo")),
        ("x-opt-qd.class", codec.encode_string("dropped")),
        ("x-opt-qd.phase", codec.encode_int(1)),
        ("x-opt-qd.ingress", codec.encode_string("0/A")),
    ]
    encoded = [part for key, value in entries for part in (codec.encode_symbol(key), value)]
    message = b"\0\x53\x70\x45" + b"\0\x53\x72" + codec.encode_map(encoded) + messages.encode_hello("A", 1, [])
    envelope = annotations.read(message)
    assert (envelope.to, envelope.ingress_id(), envelope.trace_ids()) == ("foo", "A", ["A"])
    out = annotations.relayed(envelope, B)
    value, end = codec.decode(out, 7)
    assert list(value.items()) == [
        ("mine", "kept"), ("x-opt-qd.phase", 1), ("x-opt-qd.to", "foo"), ("x-opt-qd.ingress", "0/A"),
        ("x-opt-qd.trace", ["0/A", "0/B"]),
    ]  # fmt: skip
    assert out[end:] == messages.encode_hello("A", 1, [])


def test_long_trace_uses_larger_list_and_map() -> None:
    message = annotations.originated_head(A) + VECTORS["ra"][-100:]
    message = annotations.originated_head(A) + messages.encode_hello("A", 1, [])
    for number in range(400):
        message = annotations.relayed(annotations.read(message), codec.encode_string(f"0/R{number}"))
    envelope = annotations.read(message)
    assert envelope.trace_ids() == ["A", *(f"R{number}" for number in range(400))]
    assert envelope.trace_count == 401
    assert codec.decode(message, 16)[0] == {
        "x-opt-qd.ingress": "0/A",
        "x-opt-qd.trace": ["0/A", *(f"0/R{number}" for number in range(400))],
    }


@pytest.mark.parametrize("key", ["x-opt-qd.ingress", "x-opt-qd.to", "x-opt-qd.trace"])
def test_router_annotations_of_wrong_type_are_refused(key: str) -> None:
    with pytest.raises(ControlMessageError):
        annotations.read(b"\0\x53\x72" + codec.encode_map([codec.encode_symbol(key), codec.encode_symbol("0/A")]))


# -- Malformed octets: a message is either read or refused


def read_all(octets: bytes) -> None:
    try:
        envelope = annotations.read(octets)
        envelope.ingress_id()
        envelope.trace_ids()
        messages.address(octets, envelope.tail_at)
        messages.decode(envelope.tail())
    except ControlMessageError:
        return
    # A message that has been read can be relayed, and reads the same afterwards.
    again = annotations.read(annotations.relayed(envelope, B))
    assert again.trace_ids() == [*envelope.trace_ids(), "B"]
    assert again.tail() == envelope.tail()


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_octets_are_read_or_refused(octets: bytes) -> None:
    read_all(octets)


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(sorted(VECTORS)), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4))
def test_damaged_octets_are_read_or_refused(name: str, damage: list[tuple[int, int]]) -> None:
    octets = bytearray(VECTORS[name])
    for at, octet in damage:
        octets[at % len(octets)] = octet
    read_all(bytes(octets))


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(VECTORS)), st.integers(0, 400))
def test_truncated_octets_are_read_or_refused(name: str, at: int) -> None:
    read_all(VECTORS[name][:at])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["id", "pv", "instance", "seen", "ls_seq", "ls", "peers", "mobile_seq", "add", "del", "exist", "hints", "routers"]
)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(["HELLO", "RA", "LSR", "LSU", "MAR", "MAU", "SUMMARY"]), st.dictionaries(NAMES, JSON))
def test_arbitrary_bodies_are_read_or_refused(opcode: str, body: dict[str, object]) -> None:
    read_all(tail_of(opcode, {"id": "X", **body}))
