"""Clients that cost a router more than they use: `python -m loadtests.storm KIND PORT COUNT [FILE]`.

KIND: `connects` (five ways to leave, in turn), `half-open` (connections that stay until standard input ends),
`receivers` (dynamic ones, all attached at once), `bursts` (dynamic receivers; each connection attaches all of its own
at once, and all connections leave at once: first by a close, then by a reset), `attaches` (attach and detach of a
sender each), `logins` (by SCRAM, all at once, as USER with PASSWORD of this module), `token-logins` (by OAUTHBEARER
with the token in FILE), `certificate-logins` (by EXTERNAL over TLS 1.3, with the certificate and key in FILE). The
last output is a line of JSON: kind, count, and the seconds it took.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sluice.router.amqp.codec import (
    decode,
    described_list,
    encode_binary,
    encode_described,
    encode_string,
    encode_symbol,
    encode_uint,
)
from sluice.router.sasl import scram
from sluice.router.sasl.bearer import OAuthBearerClient
from sluice.router.sasl.verifiers import salted_password

HOST = "127.0.0.1"
HOSTS = 250  # loopback addresses with equal first three octets
PATIENCE = 60.0  # seconds for an answer
AT_ONCE = 32  # connections that are opened together
LINKS = 1000  # links of one connection
BATCH = 100  # attaches that are sent together

NULL, TRUE, FALSE = b"\x40", b"\x41", b"\x42"
OPEN, BEGIN, ATTACH, DETACH, CLOSE = 0x10, 0x11, 0x12, 0x16, 0x18
INIT, CHALLENGE, RESPONSE, OUTCOME = 0x41, 0x42, 0x43, 0x44  # performatives of SASL
SOURCE, TARGET = 0x28, 0x29
AMQP, SASL = b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00"
HEADER = 8  # octets of a frame header, and of a protocol header
MECHANISM, USER, PASSWORD = "SCRAM-SHA-256", "storm", "secret"  # credentials of clients that log in


def frame(code: int, *fields: bytes, sasl: bool = False) -> bytes:
    """Encode a frame on channel 0."""
    body: bytes = encode_described(code, list(fields))
    return struct.pack(">IBBH", HEADER + len(body), 2, sasl, 0) + body


OPENED = AMQP + frame(OPEN, encode_string("storm"))
WITH_SASL = SASL + frame(INIT, encode_symbol("ANONYMOUS"), sasl=True) + OPENED
BEGUN = OPENED + frame(BEGIN, NULL, encode_uint(0), encode_uint(1000), encode_uint(1000))
CLOSED = frame(CLOSE)


def attach(handle: int, receives: bool) -> bytes:
    """Encode the attach of a receiver from a dynamic source, or of a sender to an address of its own."""
    fields = [encode_string(f"l{handle}"), encode_uint(handle), TRUE if receives else FALSE, NULL, NULL]
    if receives:
        fields += [encode_described(SOURCE, [NULL, NULL, NULL, NULL, TRUE]), encode_described(TARGET, [])]
    else:
        target = encode_described(TARGET, [encode_string(f"storm/{handle}")])
        fields += [encode_described(SOURCE, []), target, NULL, NULL, encode_uint(0)]
    return frame(ATTACH, *fields)


class StormClient:
    """Blocking connection. number: connect from a loopback address of its own, as a host of its own."""

    def __init__(self, port: int, number: int | None = None) -> None:
        source = None if number is None else (f"127.0.{2 + number // HOSTS}.{1 + number % HOSTS}", 0)
        self.socket = socket.create_connection((HOST, port), PATIENCE, source)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""

    def send(self, octets: bytes) -> None:
        self.socket.sendall(octets)

    def receive(self) -> bytes:
        """Return the next octets; empty at the end of the stream."""
        return self.socket.recv(65536)

    def wait(self, code: int, count: int = 1) -> None:
        """Read until `count` frames with performative `code` have arrived. Raises EOFError."""
        for _ in range(count):
            self.read(code)

    def read(self, code: int) -> bytes:
        """Return the body of the next frame with performative `code`. Raises EOFError."""
        while True:
            while len(self._rest) < HEADER or len(self._rest) < self._length():
                octets = self.receive()
                if not octets:
                    raise EOFError(f"the router has closed a connection that waited for 0x{code:x}")
                self._rest += octets
            at = HEADER if self._rest.startswith(b"AMQP") else self._length()
            body, self._rest = self._rest[HEADER:at], self._rest[at:]
            if body[:3] == bytes((0, 0x53, code)):
                return body

    def _length(self) -> int:
        return HEADER if self._rest.startswith(b"AMQP") else int.from_bytes(self._rest[:4], "big")

    def reset(self) -> None:
        """Close the socket by a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        self.socket.close()


def leave_in_order(client: StormClient) -> None:
    client.send(CLOSED)
    client.wait(CLOSE)
    client.close()


def leave_by_reset(client: StormClient) -> None:
    client.wait(OPEN)
    client.reset()


#: Octets that a client sends, and the way it leaves.
WAYS: tuple[tuple[bytes, Callable[[StormClient], None]], ...] = (
    (WITH_SASL, leave_in_order),
    (OPENED, leave_in_order),  # without the SASL layer
    (OPENED, leave_by_reset),
    (AMQP[:4], StormClient.close),  # half a header
    (OPENED[:-3], StormClient.close),  # half an open
)


def connects(port: int, count: int) -> None:
    """Open connections, AT_ONCE at a time; each leaves in the next way."""
    for first in range(0, count, AT_ONCE):
        crowd = []
        for number in range(first, min(first + AT_ONCE, count)):
            octets, leave = WAYS[number % len(WAYS)]
            client = StormClient(port)
            client.send(octets)
            crowd.append((client, leave))
        for client, leave in crowd:
            leave(client)


def half_open(port: int, count: int) -> None:
    crowd = []
    for _ in range(count):
        crowd.append(StormClient(port))
        crowd[-1].send(AMQP[:4])
    sys.stdin.read()
    for client in crowd:
        client.close()


def receivers(port: int, count: int) -> None:
    crowd = []
    for first in range(0, count, LINKS):
        client = StormClient(port)
        crowd.append(client)
        client.send(BEGUN)
        links = min(LINKS, count - first)
        for start in range(0, links, BATCH):
            batch = range(start, min(start + BATCH, links))
            client.send(b"".join(attach(handle, receives=True) for handle in batch))
            client.wait(ATTACH, len(batch))
    for client in crowd:
        leave_in_order(client)


def crowd_at_once(port: int, count: int) -> list[StormClient]:
    """Attach `count` dynamic receivers, LINKS on each connection. No connection waits for another."""
    crowd = []
    links = min(LINKS, count)
    for _ in range(0, count, links):
        crowd.append(StormClient(port))
        crowd[-1].send(BEGUN)
        crowd[-1].wait(BEGIN)
    octets = b"".join(attach(handle, receives=True) for handle in range(links))
    for client in crowd:
        client.send(octets)
    for client in crowd:
        client.wait(ATTACH, links)
    return crowd


def bursts(port: int, count: int) -> None:
    crowd = crowd_at_once(port, count // 2)
    for client in crowd:
        client.send(CLOSED)
    for client in crowd:
        client.wait(CLOSE)
        client.close()
    for client in crowd_at_once(port, count // 2):
        client.reset()


def attaches(port: int, count: int) -> None:
    client = StormClient(port)
    client.send(BEGUN)
    attached = b"".join(attach(handle, receives=False) for handle in range(BATCH))
    detached = b"".join(frame(DETACH, encode_uint(handle), TRUE) for handle in range(BATCH))
    for _ in range(0, count, BATCH):
        client.send(attached)
        client.wait(ATTACH, BATCH)
        client.send(detached)
        client.wait(DETACH, BATCH)
    leave_in_order(client)


def field(body: bytes, number: int) -> Any:
    """Decode a field of a performative, by its index."""
    return decode(described_list(body)[1][number])[0]


def logins(port: int, count: int) -> None:
    """Log in with SCRAM; all clients take each step before the next one begins.

    Each client is a host of its own, because the router limits the logins of a host. All clients are one user, whose
    key is computed once, as in clients that keep it. The exchange then costs mostly the router.
    """
    with patch.object(scram, "salted_password", cache(salted_password)):
        log_in(port, count)


def log_in(port: int, count: int) -> None:
    crowd = []
    for number in range(count):
        client, exchange = StormClient(port, number), scram.ScramClient(MECHANISM, USER, PASSWORD)
        init = frame(INIT, encode_symbol(MECHANISM), encode_binary(exchange.response), sasl=True)
        client.send(SASL + init)
        crowd.append((client, exchange))
    for client, exchange in crowd:
        response = exchange.step(field(client.read(CHALLENGE), 0))
        client.send(frame(RESPONSE, encode_binary(response), sasl=True))
    for client, exchange in crowd:
        exchange.finish(field(accepted(client), 1))
    enter_and_leave([client for client, _ in crowd])


def accepted(client: StormClient) -> bytes:
    """Wait for the outcome of a login, which must be OK; return its body."""
    outcome = client.read(OUTCOME)
    if field(outcome, 0) != 0:
        raise ValueError("a client could not log in")
    return outcome


def enter_and_leave(crowd: Sequence[StormClient]) -> None:
    for client in crowd:
        client.send(OPENED)
    for client in crowd:
        leave_in_order(client)


def token_logins(port: int, count: int, file: Path) -> None:
    """Log in with a token; all at once, because the token is in the first frame."""
    response = encode_binary(OAuthBearerClient(file.read_text()).response)
    init = SASL + frame(INIT, encode_symbol("OAUTHBEARER"), response, sasl=True)
    crowd = [StormClient(port, number) for number in range(count)]
    for client in crowd:
        client.send(init)
    for client in crowd:
        accepted(client)
    enter_and_leave(crowd)


class EncryptedClient(StormClient):
    """Connection over TLS. `begin` and `finish` do the handshake, so that many can be in progress together."""

    def __init__(self, port: int, number: int, context: ssl.SSLContext) -> None:
        super().__init__(port, number)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=HOST)

    def begin(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self.socket.sendall(self._out.read())

    def finish(self) -> None:
        while True:
            self._read()
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                continue
            self.socket.sendall(self._out.read())
            return

    def send(self, octets: bytes) -> None:
        self._tls.write(octets)
        self.socket.sendall(self._out.read())

    def receive(self) -> bytes:
        while True:
            try:
                return self._tls.read(65536)
            except ssl.SSLWantReadError:
                if not self._read():
                    return b""

    def _read(self) -> bytes:
        octets = self.socket.recv(65536)
        self._in.write(octets)
        return octets


def certificate_logins(port: int, count: int, file: Path) -> None:
    """Log in with a certificate; all clients take each step before the next one begins."""
    context = ssl.create_default_context(cafile=str(file))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(file)
    init = SASL + frame(INIT, encode_symbol("EXTERNAL"), encode_binary(b""), sasl=True)
    crowd = [EncryptedClient(port, number, context) for number in range(count)]
    for client in crowd:
        client.begin()
    for client in crowd:
        client.finish()
        client.send(init)
    for client in crowd:
        accepted(client)
    enter_and_leave(crowd)


KINDS: dict[str, Callable[[int, int], None]] = {
    "connects": connects,
    "half-open": half_open,
    "receivers": receivers,
    "bursts": bursts,
    "attaches": attaches,
    "logins": logins,
}
#: Kinds that read a file.
KINDS_WITH_FILE: dict[str, Callable[[int, int, Path], None]] = {
    "token-logins": token_logins,
    "certificate-logins": certificate_logins,
}


def main() -> int:
    kind, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    begun = time.monotonic()
    if kind in KINDS_WITH_FILE:
        KINDS_WITH_FILE[kind](port, count, Path(sys.argv[4]))
    else:
        KINDS[kind](port, count)
    print(json.dumps({"kind": kind, "count": count, "seconds": time.monotonic() - begun}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
