"""PROXY protocol headers, as written by a proxy."""

import socket
import struct

SIGNATURE = bytes.fromhex("0d0a0d0a000d0a515549540a")


def text(source: str, port: int, target: str = "127.0.0.1", target_port: int = 5672) -> bytes:
    """Return a header of version 1."""
    family = "TCP6" if ":" in source else "TCP4"
    return f"PROXY {family} {source} {target} {port} {target_port}\r\n".encode()


def binary(source: str | None, port: int = 0, additions: bytes = b"", command: int = 0x21) -> bytes:
    """Return a header of version 2. source: None for a connection of the proxy itself."""
    if source is None:
        return SIGNATURE + struct.pack("!BBH", 0x20, 0, len(additions)) + additions
    family, kind = (socket.AF_INET6, 0x21) if ":" in source else (socket.AF_INET, 0x11)
    packed = socket.inet_pton(family, source)
    body = packed + packed + struct.pack("!HH", port, 5672) + additions
    return SIGNATURE + struct.pack("!BBH", command, kind, len(body)) + body


def addition(kind: int, value: bytes) -> bytes:
    """Return an additional TLV, to be placed behind the addresses."""
    return struct.pack("!BH", kind, len(value)) + value
