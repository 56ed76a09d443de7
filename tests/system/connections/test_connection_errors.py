"""Errors that close the connection (routing-semantics.md 1.5)."""

from typing import Any

import pytest

from tests.peer import frames, message
from tests.peer.frames import frame_octets
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Connect, Fresh
from tests.system.router import Section, listener

pytestmark = pytest.mark.adversarial

SECTIONS: list[Section] = [listener("few", maxSessions=4, maxFrameSize=512)]


def expect_error(peer: AmqpPeer, condition: str, description: str | None = None) -> None:
    """Expect a close with this condition and description, followed by the end of the stream."""
    error = peer.expect_close()
    assert error is not None, "closed without an error"
    assert error[0] == condition, error
    if description is not None:
        assert error[1] == description


# brokers-and-edge.md W-7.
def test_channel_above_channel_max_is_framing_error(connect: Connect) -> None:
    peer = connect("few")
    peer.frame("begin", channel=9, next_outgoing_id=0, incoming_window=10, outgoing_window=10)
    expect_error(peer, "amqp:connection:framing-error", "remote channel 9 is above negotiated channel_max 3.")


def test_frame_above_max_frame_size_is_framing_error(connect: Connect) -> None:
    peer = connect("few")
    sender = peer.sender()
    peer.raw(sender.session.transfer_octets(bytes(600), handle=0, delivery_id=0, delivery_tag=b"x"))
    expect_error(peer, "amqp:connection:framing-error")


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("attach", {"name": "x", "handle": 0, "role": True, "source": frames.source("q")}),
        ("flow", {"next_incoming_id": 0, "incoming_window": 1, "next_outgoing_id": 0, "outgoing_window": 1}),
        ("transfer", {"handle": 0, "delivery_id": 0, "delivery_tag": b"x"}),
        ("disposition", {"role": True, "first": 0}),
        ("detach", {"handle": 0}),
        ("end", {}),
    ],
)
def test_unknown_channel_is_not_allowed(connect: Connect, name: str, fields: dict[str, Any]) -> None:
    peer = connect()
    peer.frame(name, channel=5, **fields)
    expect_error(peer, "amqp:not-allowed", "no such channel: 5")


@pytest.mark.parametrize("name", ["flow", "transfer", "detach"])
def test_unknown_handle_is_invalid_field(connect: Connect, name: str) -> None:
    peer = connect()
    session = peer.begin()
    if name == "flow":
        session.flow(handle=7, link_credit=1, delivery_count=0)
    elif name == "transfer":
        session.frame("transfer", handle=7, delivery_id=0, delivery_tag=b"x")
    else:
        session.frame("detach", handle=7)
    expect_error(peer, "amqp:invalid-field", "no such handle: 7")


def test_attached_link_name_is_invalid_field(connect: Connect, fresh: Fresh) -> None:
    peer = connect()
    peer.receiver(fresh(), name="twice")
    peer.receiver(fresh(), name="twice", wait=False)
    expect_error(peer, "amqp:invalid-field", "link name already attached: twice")


def test_link_name_in_other_direction_or_session_is_accepted(connect: Connect, fresh: Fresh) -> None:
    peer, address = connect(), fresh()
    peer.receiver(address, name="shared")
    peer.sender(address, name="shared")
    peer.begin().receiver(address, name="shared")


def test_delivery_id_out_of_sequence_is_invalid_field(connect: Connect) -> None:
    peer = connect()
    sender = peer.sender()
    sender.send(message.message(to="x"))
    sender.session.frame("transfer", message.message(to="x"), handle=0, delivery_id=5, delivery_tag=b"x")
    expect_error(peer, "amqp:session:invalid-field", "sequencing error, expected delivery-id 1, got 5")


def test_channel_in_use_closes_connection(connect: Connect) -> None:
    peer = connect()
    session = peer.begin()
    peer.frame("begin", channel=session.channel, next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    error = peer.expect_close()
    assert error is not None
    assert error[0].startswith("amqp:")


def test_handle_in_use_ends_session_or_connection(connect: Connect, fresh: Fresh) -> None:
    peer = connect()
    first = peer.receiver(fresh())
    peer.session.receiver(fresh(), handle=first.handle, wait=False)
    peer.until(lambda: peer.take("end") or peer.take("close"), "end or close with an error")
    ended = [frame for frame in peer.frames if frame.name in ("end", "close")]
    assert frames.error_of(ended[0].error) is not None


# brokers-and-edge.md W-8.
def test_close_is_answered_with_empty_close(connect: Connect) -> None:
    assert connect().close().error is None


def test_close_with_error_is_answered_with_empty_close(connect: Connect) -> None:
    peer = connect()
    peer.frame("close", error=frames.error("amqp:internal-error", "mine"))
    assert peer.expect("close").error is None
    peer.expect_end()


def test_error_of_one_connection_spares_others(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    receiver = connect().receiver(address, 5)
    sender = connect().sender(address)
    guilty = connect()
    guilty.raw(frame_octets(b"\xff\xff"))
    guilty.expect_end()
    sender.send(message.message("still"), settled=True)
    assert message.body(receiver.next().payload) == "still"
