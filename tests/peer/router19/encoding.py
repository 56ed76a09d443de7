"""Octets as written by 1.19: the wide compounds of its composers, and the opens and attaches of its router
connections.
"""

from __future__ import annotations

import random
import string
import struct
from collections.abc import Iterable
from typing import Any

from tests.peer.codec import encode
from tests.peer.frames import Performative
from tests.peer.types import Described, Int, Long, Raw, Symbol, UByte, UInt, ULong, UShort

PRODUCT, VERSION = "qpid-dispatch-router", "1.19.0"
ANNOTATIONS_VERSION = 1
#: Capabilities that both sides offer and desire.
CAPABILITIES = ("ANONYMOUS-RELAY", "qd.streaming-links")
CONTROL, DATA = Symbol("qd.router"), Symbol("qd.router-data")
#: Number of priorities: sessions and priority links in each direction.
PRIORITIES = 10
WINDOW = 2147483647
_NAME = string.ascii_letters + string.digits + "+_"


def compound32(code: int, items: Iterable[Any]) -> Raw:
    """Return a list32 (0xD0) or map32 (0xD1) of items, each in its shortest form."""
    encoded = [encode(item) for item in items]
    body = b"".join(encoded)
    return Raw(struct.pack("!BII", code, len(body) + 4, len(encoded)) + body)


def list32(items: Iterable[Any]) -> Raw:
    """Return a list32."""
    return compound32(0xD0, items)


def map32(pairs: Iterable[tuple[Any, Any]]) -> Raw:
    """Return a map32 of pairs in order."""
    return compound32(0xD1, (item for pair in pairs for item in pair))


def section(code: int, value: Any) -> bytes:
    """Return a message section."""
    return encode(Described(ULong(code), value))


def python_int(number: int) -> Int | Long:
    """Return an integer in the type that the Python part of 1.19 uses: int if 32 bits suffice, otherwise long."""
    return Int(number) if -(1 << 31) <= number < 1 << 31 else Long(number)


def fresh_name(prefix: str = "qdlink.") -> str:
    """Return a link name: the prefix and 15 random characters."""
    return prefix + "".join(random.choice(_NAME) for _ in range(15))


def _symbols32(items: Iterable[str]) -> Raw:
    """Return an array32 of sym32."""
    symbols = [struct.pack("!I", len(item)) + item.encode("ascii") for item in items]
    body = b"\xb3" + b"".join(symbols)
    return Raw(struct.pack("!BII", 0xF0, len(body) + 4, len(symbols)) + body)


def open_octets(
    router_id: str,
    number: int,
    hostname: str | None,
    cost: int = 1,
    idle_ms: int = 8000,
    failover: list[dict[str, str]] | None = None,
    frame_size: int = 16384,
) -> bytes:
    """Return the open of an inter-router connection. number: local number of the connection."""
    properties: list[tuple[str, Any]] = [("product", PRODUCT), ("version", VERSION), ("qd.conn-id", Int(number))]
    if cost > 1:
        properties.append(("qd.inter-router-cost", Int(cost)))
    properties.append(("qd.annotations-version", Int(ANNOTATIONS_VERSION)))
    if failover:
        servers = [map32((Symbol(key), value) for key, value in server.items()) for server in failover]
        properties.append(("failover-server-list", list32(servers)))
    fields = [
        router_id,
        hostname,
        UInt(frame_size),
        UShort(32767),
        UInt(idle_ms),
        None,
        None,
        _symbols32(CAPABILITIES),
        _symbols32(CAPABILITIES),
        map32((Symbol(key), value) for key, value in properties),
    ]
    return encode(Described(ULong(0x10), fields))


def begin_octets(remote_channel: int | None = None) -> bytes:
    """Return a begin."""
    return Performative(
        "begin", remote_channel=remote_channel, next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW
    ).encode()


def terminus_octets(
    descriptor: int, capability: str | None, address: str | None = None, expiry: str = "link-detach"
) -> Raw:
    """Return a source (0x28) or target (0x29) with one capability as a single symbol."""
    fields: list[Any] = [address, UInt(0), Symbol(expiry), UInt(0), False, None]
    if descriptor == 0x28:
        fields += [None] * 4
    if capability is not None:
        fields.append(Symbol(capability))
    while fields and fields[-1] is None:
        fields.pop()
    return Raw(encode(Described(ULong(descriptor), fields)))


def attach_octets(name: str, handle: int, receiver: bool, source: Any, target: Any) -> bytes:
    """Return an attach with all its fourteen fields."""
    return encode(
        Described(
            ULong(0x12),
            [
                name,
                UInt(handle),
                receiver,
                UByte(2),
                UByte(0),
                source,
                target,
                None,
                None,
                UInt(0),
                ULong(0),
                None,
                None,
                None,
            ],
        )
    )


def router_attach(name: str, handle: int, receiver: bool, capability: str, answer: bool = False) -> bytes:
    """Return the attach of a control or data link. answer: the listener's reply, whose termini have another expiry
    policy."""
    expiry = "session-end" if answer else "link-detach"
    return attach_octets(
        name,
        handle,
        receiver,
        terminus_octets(0x28, capability, expiry=expiry),
        terminus_octets(0x29, capability, expiry=expiry),
    )
