"""Scripted WebSocket: the client's or the server's side, over a connected socket.

It has the socket methods that `Wire` uses, so a `Peer` can speak AMQP over it. Frames are built by hand, so that tests
can also make invalid ones.
"""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import struct
from typing import Self

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
KEY = "x3JJHMbDL1EzLkh9GBhXDw=="
ACCEPT = "HSmrc0sMlYUkAGmm5OPpG2HaGWk="


def frame(opcode: int, payload: bytes = b"", *, final: bool = True, mask: bytes | None = b"\x01\x7f\x80\xfe") -> bytes:
    """Return a frame. mask: None for an unmasked frame."""
    size = len(payload)
    length = bytes((size,)) if size < 126 else struct.pack("!BH" if size < 65536 else "!BQ", 126 + (size > 65535), size)
    head = bytes((opcode | 0x80 * final, length[0] | 0x80 * (mask is not None))) + length[1:]
    if mask is None:
        return head + payload
    return head + mask + bytes(octet ^ mask[at % 4] for at, octet in enumerate(payload))


def closing(code: int, reason: bytes = b"") -> bytes:
    """Return the payload of a close frame."""
    return struct.pack("!H", code) + reason


def request(path: str = "/", protocol: str | None = "amqp", **headers: str | None) -> bytes:
    """Return a WebSocket request. A header with value None is omitted. In header names, _ stands for -."""
    lines: dict[str, str | None] = {
        "Host": "localhost", "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Version": "13", "Sec-WebSocket-Protocol": protocol,
    }  # fmt: skip
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value is not None)
    return f"GET {path} HTTP/1.1\r\n{text}\r\n".encode("latin-1")


def read_head(raw: socket.socket) -> bytes:
    """Read an HTTP head and nothing behind it; less if the stream ends."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        octet = raw.recv(1)
        if not octet:
            break
        head += octet
    return head


class WebSocket:
    """WebSocket over `raw`, after the handshake."""

    def __init__(self, raw: socket.socket, *, server: bool = False, piece: int = 1 << 30) -> None:
        """piece: most octets of payload in a frame."""
        self.raw = raw
        self.server = server
        self.piece = piece
        self.closed: bytes | None = None  # payload of the received close frame
        self.pongs: list[bytes] = []
        self._received = b""

    @classmethod
    def connected(cls, raw: socket.socket, *, protocol: str = "amqp", path: str = "/", piece: int = 1 << 30) -> Self:
        """Run a client's handshake."""
        raw.sendall(request(path, protocol))
        head = read_head(raw)
        assert head.startswith(b"HTTP/1.1 101 "), head
        assert f"Sec-WebSocket-Accept: {ACCEPT}\r\n".encode() in head
        assert f"Sec-WebSocket-Protocol: {protocol}\r\n".encode() in head
        assert b"Sec-WebSocket-Extensions" not in head
        return cls(raw, piece=piece)

    @classmethod
    def accepted(cls, raw: socket.socket) -> tuple[Self, bytes]:
        """Run a server's handshake. Return the WebSocket and the received request."""
        head = read_head(raw)
        key = next(line for line in head.split(b"\r\n") if line.startswith(b"Sec-WebSocket-Key: "))[19:]
        digest = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11", usedforsecurity=False).digest()
        raw.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
            b"Sec-WebSocket-Protocol: amqp\r\nSec-WebSocket-Accept: " + base64.b64encode(digest) + b"\r\n\r\n"
        )
        return cls(raw, server=True), head

    def send_frame(self, opcode: int, payload: bytes = b"", final: bool = True) -> None:
        """Send a valid frame."""
        self.raw.sendall(frame(opcode, payload, final=final, mask=None if self.server else os.urandom(4)))

    def read_frame(self) -> tuple[int, bytes] | None:
        """Return opcode and payload of the next frame; None at the end of the stream."""
        head = self._read(2)
        if head is None:
            return None
        assert head[0] & 0x80, "the router makes no fragments"
        assert bool(head[1] & 0x80) == self.server, "clients mask, servers do not"
        size = head[1] & 0x7F
        if size > 125:
            size = int.from_bytes(self._exactly(2 if size == 126 else 8), "big")
        mask = self._exactly(4) if self.server else bytes(4)
        payload = self._exactly(size)
        return head[0] & 0x0F, bytes(octet ^ mask[at % 4] for at, octet in enumerate(payload)) if any(mask) else payload

    def _exactly(self, count: int) -> bytes:
        octets = self._read(count)
        assert octets is not None, "the stream ended within a frame"
        return octets

    def _read(self, count: int) -> bytes | None:
        octets = b""
        while len(octets) < count:
            piece = self.raw.recv(count - len(octets))
            if not piece:
                assert not octets, "the stream ended within a frame"
                return None
            octets += piece
        return octets

    # -- socket interface

    def sendall(self, octets: bytes) -> None:
        for at in range(0, len(octets), self.piece):
            self.send_frame(BINARY, octets[at : at + self.piece])

    def recv(self, size: int) -> bytes:
        while not self._received:
            found = self.read_frame()
            if found is None:
                return b""
            opcode, payload = found
            if opcode == BINARY:
                self._received = payload
            elif opcode == CLOSE:
                self.closed = payload
                return b""
            elif opcode == PONG:
                self.pongs.append(payload)
        octets, self._received = self._received[:size], self._received[size:]
        return octets

    def settimeout(self, seconds: float | None) -> None:
        self.raw.settimeout(seconds)

    def setsockopt(self, *option: int) -> None:
        self.raw.setsockopt(*option)

    def fileno(self) -> int:
        return self.raw.fileno()

    def close(self) -> None:
        self.raw.close()
