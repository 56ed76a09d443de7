"""Input from a WebSocket peer: frames in pieces, compared with a naive reader, and the handshake."""

from __future__ import annotations

from random import Random
from typing import Any

from sluice.router.testing.websocket import WebSocketReader, frame
from sluice.router.websocket.handshake import Upgrade, answer_upgrade, check_upgrade_response, requests_websocket
from sluice.router.websocket.http import HeadError
from sluice.router.websocket.origins import OriginPolicy
from tests.peer import websocket as peer
from tests.peer.damage import spoil
from tests.unit.router.websocket.naive import NaiveFrameReader

Case = dict[str, Any]
CODES = (0, 999, 1000, 1002, 1004, 1005, 1006, 1011, 1015, 3000, 5000)


def stream(rng: Random) -> Case:
    """Return frames of a client or a server, mostly damaged, cut into pieces."""
    masked = rng.random() < 0.7
    octets = b"".join(_frame(rng, masked) for _ in range(rng.randrange(1, 12)))
    if rng.random() < 0.6:
        octets = spoil(rng, octets)
    cuts = sorted(rng.randrange(len(octets) + 1) for _ in range(rng.choice((0, 1, 3, 20, 200))))
    return {"octets": octets.hex(), "masked": masked, "cuts": cuts}


def _frame(rng: Random, masked: bool) -> bytes:
    opcode = rng.choice((0, 0, 2, 2, 2, 2, 2, 8, 9, 9, 10, rng.randrange(16)))
    size = rng.choice((0, 1, 5, 125, 126, 300, 65535, 65536)) if rng.random() < 0.3 else rng.randrange(40)
    payload = rng.randbytes(size if opcode < 8 else min(size, 125))
    if opcode == peer.CLOSE and rng.random() < 0.8:
        payload = peer.closing(rng.choice(CODES), rng.choice((b"", b"bye", b"\xff")))
    return peer.frame(opcode, payload, final=rng.random() < 0.7, mask=rng.randbytes(4) if masked else None)


def run_stream(case: Case) -> None:
    """The compiled reader agrees with the naive one for any split."""
    octets = bytes.fromhex(case["octets"])
    naive = NaiveFrameReader(octets, case["masked"])
    reader = WebSocketReader(case["masked"])
    payload = b""
    for start, end in zip([0, *case["cuts"]], [*case["cuts"], len(octets)], strict=True):
        payload += reader.feed(octets[start:end])
    assert (payload, reader.fault, reader.closed) == (naive.payload, naive.fault, naive.closed)
    assert reader.take_ping() == naive.ping
    mask = b"mask" if case["masked"] else None
    again = WebSocketReader(case["masked"])
    assert again.feed(frame(peer.BINARY, payload, mask)) == payload


def head(rng: Random) -> Case:
    """Return a request or an answer, mostly damaged."""
    octets = peer.request() if rng.random() < 0.7 else ANSWER
    return {"octets": (spoil(rng, octets) if rng.random() < 0.9 else octets).hex()}


ANSWER = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
    b"Sec-WebSocket-Protocol: amqp\r\nSec-WebSocket-Accept: " + peer.ACCEPT.encode() + b"\r\n\r\n"
)


def run_head(case: Case) -> None:
    octets = bytes.fromhex(case["octets"])
    assert isinstance(requests_websocket(octets), bool)
    found = answer_upgrade(octets, OriginPolicy("localhost", ("https://app.example",), "127.0.0.1"))
    assert isinstance(found, Upgrade)
    assert found.accepted == (found.octets.startswith(b"HTTP/1.1 101 ") and found.octets.endswith(b"\r\n\r\n"))
    try:
        check_upgrade_response(octets, peer.KEY)
    except HeadError:
        return
    assert peer.ACCEPT.encode() in octets
