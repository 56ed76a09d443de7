"""WebSocket frames: refused frames and their codes, payload in any pieces, and the router's own frames."""

import pytest

from sluice.router.testing.websocket import WebSocketReader, frame
from tests.peer import websocket as peer
from tests.peer.websocket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, closing

MASK = b"\x11\x22\x33\x44"


def client_frame(opcode, payload=b"", **more):
    return peer.frame(opcode, payload, **{"mask": MASK, **more})


def length(octets):
    """Return a client's binary frame with these octets as its length."""
    return b"\x82" + bytes((0x80 | octets[0],)) + octets[1:] + MASK


@pytest.mark.parametrize(
    ("octets", "fault"),
    [
        pytest.param(client_frame(BINARY, b"x", mask=None), 1002, id="not masked"),
        pytest.param(client_frame(TEXT, b"x"), 1003, id="text"),
        pytest.param(
            client_frame(BINARY, b"x", final=False) + client_frame(BINARY, b"x"), 1002, id="message in a message"
        ),
        pytest.param(client_frame(CONTINUATION, b"x"), 1002, id="continuation of nothing"),
        pytest.param(client_frame(PING, b"x", final=False), 1002, id="fragment of a ping"),
        pytest.param(b"\x89\xfe", 1002, id="long ping"),
        pytest.param(client_frame(3), 1002, id="unknown opcode"),
        pytest.param(client_frame(11), 1002, id="unknown control opcode"),
        pytest.param(b"\xc2\x80", 1002, id="compressed"),
        pytest.param(b"\xa2\x80", 1002, id="reserved 2"),
        pytest.param(b"\x92\x80", 1002, id="reserved 3"),
        pytest.param(length(b"\x7e\x00\x7d"), 1002, id="125 in two octets"),
        pytest.param(length(b"\x7f" + (65535).to_bytes(8, "big")), 1002, id="65535 in eight octets"),
        pytest.param(length(b"\x7f" + (1 << 63).to_bytes(8, "big")), 1002, id="2^63"),
        pytest.param(length(b"\x7f" + ((1 << 64) - 1).to_bytes(8, "big")), 1002, id="2^64 - 1"),
        pytest.param(length(b"\x7f" + (1 << 32).to_bytes(8, "big")), 1009, id="2^32"),
        pytest.param(client_frame(CLOSE, b"\x03"), 1002, id="half a close code"),
        *(
            pytest.param(client_frame(CLOSE, closing(code)), 1002, id=f"close {code}")
            for code in (0, 999, 1004, 1005, 1006)
        ),
        *(pytest.param(client_frame(CLOSE, closing(code)), 1002, id=f"close {code}") for code in (1015, 2999, 5000)),
        pytest.param(client_frame(CLOSE, closing(1000, b"\xc3\x28")), 1007, id="close reason"),
    ],
)
def test_invalid_frame_is_refused_with_code(octets, fault):
    """The AMQP frame before the fault is read, the one behind it is not. Input is whole, or octet by octet."""
    before, behind = client_frame(BINARY, b"AMQP"), client_frame(BINARY, b"more")
    whole = WebSocketReader(True)
    found = whole.feed(before + octets + behind)
    assert found[:4] == b"AMQP"
    assert b"more" not in found
    assert (whole.fault, whole.closed) == (fault, 0)
    single = WebSocketReader(True)
    assert b"".join(single.feed(bytes((octet,))) for octet in before + octets + behind) == found
    assert single.fault == fault
    assert single.feed(behind) == b""


def test_server_frames_are_not_masked():
    reader = WebSocketReader(False)
    assert reader.feed(client_frame(BINARY, b"plain", mask=None)) == b"plain"
    reader.feed(client_frame(BINARY, b"masked"))
    assert reader.fault == 1002


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 100_000])
@pytest.mark.parametrize("piece", [1, 3, 8191])
def test_payload_of_any_length_is_read(size, piece):
    payload = bytes(at % 251 for at in range(size))
    octets = client_frame(BINARY, payload) + client_frame(BINARY, b"next")
    reader = WebSocketReader(True)
    assert b"".join(reader.feed(octets[at : at + piece]) for at in range(0, len(octets), piece)) == payload + b"next"
    assert reader.fault == 0


def test_control_frames_may_interrupt_fragments():
    reader = WebSocketReader(True)
    octets = (
        client_frame(BINARY, b"one", final=False)
        + client_frame(PING, b"first")
        + client_frame(CONTINUATION, b"two", final=False)
    )
    octets += (
        client_frame(PING, b"second")
        + client_frame(PONG, b"unasked")
        + client_frame(CONTINUATION, b"three")
        + client_frame(BINARY, b"four")
    )
    assert reader.feed(octets) == b"onetwothreefour"
    assert reader.take_ping() == b"second"
    assert reader.take_ping() is None


@pytest.mark.parametrize(("payload", "code"), [(b"", 1005), (closing(1000), 1000), (closing(4999, b"bye"), 4999)])
def test_close_frame_ends_payload(payload, code):
    reader = WebSocketReader(True)
    assert (
        reader.feed(client_frame(BINARY, b"last") + client_frame(CLOSE, payload) + client_frame(BINARY, b"lost"))
        == b"last"
    )
    assert (reader.closed, reader.fault) == (code, 0)


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536])
def test_frames_made_by_router_are_readable(size):
    payload = bytes(size)
    assert frame(BINARY, payload) == peer.frame(BINARY, payload, mask=None)
    assert frame(BINARY, payload, MASK) == peer.frame(BINARY, payload, mask=MASK)
