"""Clients that cost a router more than they use: `python -m loadtests.storm KIND PORT COUNT`.

KIND: `connects` (five ways to leave, in turn), `half-open` (they stay until standard input ends), `receivers` (dynamic
ones, all there at once), `attaches` (attach and detach of a sender each). Ends with a line of JSON: what was done, and
the seconds that it took.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
from collections.abc import Callable

from router.amqp.codec import encode_described, encode_string, encode_symbol, encode_uint

HOST = "127.0.0.1"
PATIENCE = 60.0  # seconds for an answer
AT_ONCE = 32  # connections that come together
LINKS = 1000  # of one connection
BATCH = 100  # attaches that are sent together

NULL, TRUE, FALSE = b"\x40", b"\x41", b"\x42"
OPEN, BEGIN, ATTACH, DETACH, CLOSE, MECHANISMS, INIT = 0x10, 0x11, 0x12, 0x16, 0x18, 0x40, 0x41
SOURCE, TARGET = 0x28, 0x29
AMQP, SASL = b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00"
HEADER = 8  # octets of a frame's header, and of a protocol's


def frame(code: int, *fields: bytes, sasl: bool = False) -> bytes:
    """A frame on channel 0."""
    body: bytes = encode_described(code, list(fields))
    return struct.pack(">IBBH", HEADER + len(body), 2, sasl, 0) + body


OPENED = AMQP + frame(OPEN, encode_string("storm"))
WITH_SASL = SASL + frame(INIT, encode_symbol("ANONYMOUS"), sasl=True) + OPENED
BEGUN = OPENED + frame(BEGIN, NULL, encode_uint(0), encode_uint(1000), encode_uint(1000))
CLOSED = frame(CLOSE)


def attach(handle: int, receives: bool) -> bytes:
    """A receiver from a dynamic source, or a sender to an address of its own."""
    fields = [encode_string(f"l{handle}"), encode_uint(handle), TRUE if receives else FALSE, NULL, NULL]
    if receives:
        fields += [encode_described(SOURCE, [NULL, NULL, NULL, NULL, TRUE]), encode_described(TARGET, [])]
    else:
        target = encode_described(TARGET, [encode_string(f"storm/{handle}")])
        fields += [encode_described(SOURCE, []), target, NULL, NULL, encode_uint(0)]
    return frame(ATTACH, *fields)


class Client:
    """A connection that blocks."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port), PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""

    def send(self, octets: bytes) -> None:
        self.socket.sendall(octets)

    def wait(self, code: int, count: int = 1) -> None:
        """Read until so many frames of a kind have come. Raises EOFError."""
        while count:
            while len(self._rest) < HEADER or len(self._rest) < self._length():
                octets = self.socket.recv(65536)
                if not octets:
                    raise EOFError(f"the router has closed a connection that waited for 0x{code:x}")
                self._rest += octets
            at = HEADER if self._rest.startswith(b"AMQP") else self._length()
            if at > HEADER:
                count -= self._rest[HEADER : HEADER + 3] == bytes((0, 0x53, code))
            self._rest = self._rest[at:]

    def _length(self) -> int:
        return HEADER if self._rest.startswith(b"AMQP") else int.from_bytes(self._rest[:4], "big")

    def reset(self) -> None:
        """Leave without a word."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        self.socket.close()


def leave_in_order(client: Client) -> None:
    client.send(CLOSED)
    client.wait(CLOSE)
    client.close()


def leave_by_reset(client: Client) -> None:
    client.wait(OPEN)
    client.reset()


#: What a client says, and how it leaves.
WAYS: tuple[tuple[bytes, Callable[[Client], None]], ...] = (
    (WITH_SASL, leave_in_order),
    (OPENED, leave_in_order),  # without the SASL layer
    (OPENED, leave_by_reset),
    (AMQP[:4], Client.close),  # half a header
    (OPENED[:-3], Client.close),  # half an open
)


def connects(port: int, count: int) -> None:
    """Many at a time, each in the next way."""
    for first in range(0, count, AT_ONCE):
        crowd = []
        for number in range(first, min(first + AT_ONCE, count)):
            octets, leave = WAYS[number % len(WAYS)]
            client = Client(port)
            client.send(octets)
            crowd.append((client, leave))
        for client, leave in crowd:
            leave(client)


def half_open(port: int, count: int) -> None:
    crowd = []
    for _ in range(count):
        crowd.append(Client(port))
        crowd[-1].send(AMQP[:4])
    sys.stdin.read()
    for client in crowd:
        client.close()


def receivers(port: int, count: int) -> None:
    crowd = []
    for first in range(0, count, LINKS):
        client = Client(port)
        crowd.append(client)
        client.send(BEGUN)
        links = min(LINKS, count - first)
        for start in range(0, links, BATCH):
            batch = range(start, min(start + BATCH, links))
            client.send(b"".join(attach(handle, receives=True) for handle in batch))
            client.wait(ATTACH, len(batch))
    for client in crowd:
        leave_in_order(client)


def attaches(port: int, count: int) -> None:
    client = Client(port)
    client.send(BEGUN)
    attached = b"".join(attach(handle, receives=False) for handle in range(BATCH))
    detached = b"".join(frame(DETACH, encode_uint(handle), TRUE) for handle in range(BATCH))
    for _ in range(0, count, BATCH):
        client.send(attached)
        client.wait(ATTACH, BATCH)
        client.send(detached)
        client.wait(DETACH, BATCH)
    leave_in_order(client)


KINDS: dict[str, Callable[[int, int], None]] = {
    "connects": connects,
    "half-open": half_open,
    "receivers": receivers,
    "attaches": attaches,
}


def main() -> int:
    kind, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    begun = time.monotonic()
    KINDS[kind](port, count)
    print(json.dumps({"kind": kind, "count": count, "seconds": time.monotonic() - begun}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
