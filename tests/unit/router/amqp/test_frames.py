"""Transfer, flow and disposition: the fast codec agrees with the general codec."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.router.amqp.errors import RemoteError
from sluice.router.testing.frames import (
    build_disposition,
    build_short_transfer,
    build_transfer,
    disposition_dict,
    flow_dict,
    transfer_dict,
)
from tests.peer.codec import encode
from tests.peer.frames import ACCEPTED, REJECTED, Performative, modified, parse_frame, rejected

HEAD = 3  # octets of the descriptor before the list
uint = st.one_of(st.integers(0, 300), st.integers(0, 0xFFFFFFFF))
flag = st.sampled_from([None, False, True])
state = st.sampled_from([None, ACCEPTED, REJECTED, rejected("a:b", "x" * 300), modified(True, False)])
octets = st.binary(max_size=300)


def optional(strategy):
    return st.one_of(st.none(), strategy)


def encoded(value):
    return None if value is None else encode(value)


@given(uint, optional(uint), optional(st.binary(max_size=32)), optional(uint), flag, flag, flag, state, octets)
def test_transfer_decoding_equals_general_codec(
    handle, delivery_id, tag, message_format, settled, more, aborted, outcome, payload
):
    frame = Performative(
        "transfer",
        handle=handle,
        delivery_id=delivery_id,
        delivery_tag=tag,
        message_format=message_format,
        settled=settled,
        more=more,
        aborted=aborted,
        state=outcome,
    )
    assert transfer_dict(frame.encode()[HEAD:] + payload) == {
        "handle": handle,
        "delivery_id": delivery_id,
        "tag": tag,
        "message_format": message_format or 0,
        "settled": settled,
        "more": bool(more),
        "aborted": bool(aborted),
        "state": encoded(outcome),
        "payload": payload,
    }


@given(optional(uint), uint, uint, uint, optional(uint), optional(uint), optional(uint), flag, flag)
def test_flow_decoding_equals_general_codec(
    next_incoming, window, next_outgoing, outgoing, handle, count, credit, drain, echo
):
    frame = Performative(
        "flow",
        next_incoming_id=next_incoming,
        incoming_window=window,
        next_outgoing_id=next_outgoing,
        outgoing_window=outgoing,
        handle=handle,
        delivery_count=count,
        link_credit=credit,
        drain=drain,
        echo=echo,
    )
    assert flow_dict(frame.encode()[HEAD:]) == {
        "next_incoming_id": next_incoming,
        "incoming_window": window,
        "next_outgoing_id": next_outgoing,
        "outgoing_window": outgoing,
        "handle": handle,
        "delivery_count": count,
        "link_credit": credit,
        "drain": bool(drain),
        "echo": bool(echo),
    }


@given(st.booleans(), uint, optional(uint), flag, state)
def test_disposition_decoding_equals_general_codec(role, first, last, settled, outcome):
    frame = Performative("disposition", role=role, first=first, last=last, settled=settled, state=outcome)
    assert disposition_dict(frame.encode()[HEAD:]) == {
        "role": role,
        "first": first,
        "last": first if last is None else last,
        "settled": bool(settled),
        "state": encoded(outcome),
    }


@given(uint, uint, st.binary(min_size=1, max_size=32), uint, st.booleans(), st.booleans(), st.booleans(), octets)
def test_encoded_transfer_is_decoded_unchanged(
    handle, delivery_id, tag, message_format, settled, more, aborted, payload
):
    frame = parse_frame(
        build_transfer(7, handle, delivery_id, tag, message_format, settled, more, aborted, b"", payload)
    )
    assert (frame.channel, frame.name, frame.payload) == (7, "transfer", payload)
    assert (frame.handle, frame.delivery_id, frame.delivery_tag) == (handle, delivery_id, tag)
    assert (bool(frame.settled), bool(frame.more), bool(frame.aborted)) == (settled, more, aborted)
    assert frame.message_format == message_format


@given(uint, uint, st.binary(min_size=8, max_size=8), uint, st.booleans(), octets)
def test_short_transfer_has_octets_of_general_encoder(handle, delivery_id, tag, message_format, settled, payload):
    short = build_short_transfer(7, handle, delivery_id, tag, message_format, settled, payload)
    assert short == build_transfer(7, handle, delivery_id, tag, message_format, settled, False, False, b"", payload)


@given(st.booleans(), uint, uint, st.booleans(), state)
def test_encoded_disposition_is_decoded_unchanged(role, first, last, settled, outcome):
    frame = parse_frame(build_disposition(3, role, first, last, settled, encoded(outcome) or b""))
    assert (frame.channel, frame.name, frame.role, frame.first) == (3, "disposition", role, first)
    assert (first if frame.last is None else frame.last, bool(frame.settled)) == (last, settled)
    assert encoded(frame.state) == encoded(outcome)


NUMBERS = [(b"\x43", 0), (b"\x52\x07", 7), (b"\x70\x00\x00\x01\x00", 256), (b"\x60\x01\x02", 258)]
TAGS = [(b"\xa0\x00", b""), (b"\xa0\x02ab", b"ab"), (b"\xb0\x00\x00\x00\x01c", b"c")]
TRUTHS = [(b"\x41", True), (b"\x42", False), (b"\x56\x01", True)]


@pytest.mark.parametrize("handle", NUMBERS)
@pytest.mark.parametrize("delivery_id", [*NUMBERS, (b"\x40", None)])
@pytest.mark.parametrize("tag", [*TAGS, (b"\x40", None)])
def test_transfer_in_any_encoding_is_decoded_alike(handle, delivery_id, tag):
    for version, settled, more in itertools.product(NUMBERS, [*TRUTHS, (b"\x40", None)], TRUTHS):
        fields = [handle, delivery_id, tag, version, settled, more]
        encoded = b"".join(field[0] for field in fields)
        body = bytes([0xC0, len(encoded) + 1, 6]) + encoded
        found = transfer_dict(body + b"payload")
        assert [found["handle"], found["delivery_id"], found["tag"], found["message_format"]] == [
            field[1] for field in fields[:4]
        ]
        assert (found["settled"], found["more"], found["payload"]) == (settled[1], more[1], b"payload")
    for end in range(len(encoded)):  # a list that is too short for its field count or its size
        with pytest.raises(RemoteError):
            transfer_dict(bytes([0xC0, end + 1, 6]) + encoded[:end])
