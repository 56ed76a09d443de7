"""The header by which a proxy says whom it forwards: PROXY protocol, versions 1 and 2 (HAProxy's proxy-protocol.txt).

Nothing here trusts the octets; who may send a header is decided elsewhere.
"""

import ipaddress
import re
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"  # of version 2
FIRST: Final = b"PROXY "  # of version 1
MOST_TEXT: Final = 107  # octets of a header of version 1, its end included
MOST_OCTETS: Final = 4096  # of a header of version 2; real ones have some hundreds

_HEAD: Final = struct.Struct("!12sBBH")
_PORTS: Final = struct.Struct("!HH")
_LOCAL, _PROXY = 0x20, 0x21
_FAMILIES: Final = {0x11: 4, 0x21: 16}  # TCP over IPv4 and IPv6: octets of an address
_UNSPECIFIED: Final = 0x00
_CHECKSUM: Final = 0x03  # type of an addition
_TEXT: Final = re.compile(rb"(TCP4|TCP6) ([0-9a-fA-F:.]+) ([0-9a-fA-F:.]+) (0|[1-9][0-9]{0,4}) (0|[1-9][0-9]{0,4})")
_CRC32C: Final = 0x82F63B78


class ProxyError(Exception):
    """No header; the text says why."""


class ProxyHeader(NamedTuple):
    """A whole header. octets: how many it has. source: address and port of the client; None: the proxy speaks for
    itself, as when it looks whether the router is there."""

    octets: int
    source: tuple[str, int] | None


def parse(octets: bytes) -> ProxyHeader | None:
    """Return the header that these octets begin with; None: more are needed. Raises ProxyError."""
    if octets[: len(SIGNATURE)] == SIGNATURE[: len(octets)]:
        return _binary(octets) if len(octets) >= _HEAD.size else None
    if octets[: len(FIRST)] == FIRST[: len(octets)]:
        return _text(octets)
    raise ProxyError("there is no header")


def _text(octets: bytes) -> ProxyHeader | None:
    end = octets.find(b"\r\n", 0, MOST_TEXT)
    if end < 0:
        if len(octets) >= MOST_TEXT:
            raise ProxyError("the header has no end")
        return None
    words = octets[len(FIRST) : end]
    if words.split(b" ", 1)[0] == b"UNKNOWN":
        return ProxyHeader(end + 2, None)
    found = _TEXT.fullmatch(words)
    if found is None:
        raise ProxyError("the header is malformed")
    kind = ipaddress.IPv4Address if found[1] == b"TCP4" else ipaddress.IPv6Address
    try:
        source, _ = kind(found[2].decode()), kind(found[3].decode())
    except ValueError:
        raise ProxyError("an address is malformed") from None
    port = int(found[4])
    if max(port, int(found[5])) > 0xFFFF:
        raise ProxyError("a port is above 65535")
    return ProxyHeader(end + 2, (_shown(source), port))


def _binary(octets: bytes) -> ProxyHeader | None:
    _, command, family, size = _HEAD.unpack_from(octets)
    if command not in (_LOCAL, _PROXY):
        raise ProxyError(f"version or command 0x{command:02x} is unknown")
    whole = _HEAD.size + size
    if whole > MOST_OCTETS:
        raise ProxyError(f"the header has {whole} octets, and at most {MOST_OCTETS} are taken")
    if len(octets) < whole:
        return None
    if command == _LOCAL:
        return ProxyHeader(whole, None)
    length = _FAMILIES.get(family)
    if length is None:
        if family == _UNSPECIFIED:
            return ProxyHeader(whole, None)
        raise ProxyError(f"family and protocol 0x{family:02x} are not TCP")
    at = _HEAD.size + 2 * length + _PORTS.size
    if at > whole:
        raise ProxyError("the header is too short for its addresses")
    _check(octets[:whole], at)
    source = ipaddress.ip_address(octets[_HEAD.size : _HEAD.size + length])
    return ProxyHeader(whole, (_shown(source), _PORTS.unpack_from(octets, at - _PORTS.size)[0]))


def _check(header: bytes, at: int) -> None:
    """Look at the additions behind the addresses, and at the checksum, if it is among them. Raises ProxyError."""
    for kind, begin, end in _additions(header, at):
        if kind != _CHECKSUM:
            continue
        if end - begin != 4:
            raise ProxyError("the checksum has not 4 octets")
        if crc32c(header[:begin] + bytes(4) + header[end:]) != int.from_bytes(header[begin:end]):
            raise ProxyError("the checksum is wrong")


def _additions(header: bytes, at: int) -> Iterator[tuple[int, int, int]]:
    """Type, begin and end of each. Raises ProxyError."""
    while at < len(header):
        begin = at + 3
        if begin > len(header):
            raise ProxyError("an addition is cut off")
        end = begin + int.from_bytes(header[at + 1 : begin])
        if end > len(header):
            raise ProxyError("an addition is cut off")
        yield header[at], begin, end
        at = end


def _shown(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """As other addresses are written: IPv4 in IPv6 is IPv4."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_CRC32C if value & 1 else 0)
        table.append(value)
    return table


_CRC_TABLE: Final = _table()


def crc32c(octets: bytes) -> int:
    """Return the checksum of RFC 4960, appendix B."""
    found = 0xFFFFFFFF
    for octet in octets:
        found = found >> 8 ^ _CRC_TABLE[(found ^ octet) & 0xFF]
    return found ^ 0xFFFFFFFF
