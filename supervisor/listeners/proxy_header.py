"""Header in which a proxy names the client: PROXY protocol, versions 1 and 2 (HAProxy's proxy-protocol.txt).

The octets are not trusted. The caller decides who may send a header.
"""

import ipaddress
import re
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"  # of version 2
FIRST: Final = b"PROXY "  # prefix of version 1
MOST_TEXT: Final = 107  # limit in octets of a version 1 header, including its end of line
MOST_OCTETS: Final = 4096  # limit of a version 2 header; real ones have some hundreds

_HEAD: Final = struct.Struct("!12sBBH")
_PORTS: Final = struct.Struct("!HH")
_LOCAL, _PROXY = 0x20, 0x21
_FAMILIES: Final = {0x11: 4, 0x21: 16}  # TCP over IPv4 and IPv6: octets of an address
_UNSPECIFIED: Final = 0x00
_CHECKSUM: Final = 0x03  # TLV type
_TEXT: Final = re.compile(rb"(TCP4|TCP6) ([0-9a-fA-F:.]+) ([0-9a-fA-F:.]+) (0|[1-9][0-9]{0,4}) (0|[1-9][0-9]{0,4})")
_CRC32C: Final = 0x82F63B78


class ProxyError(Exception):
    """Missing or invalid header; the text is the reason."""


class ProxyHeader(NamedTuple):
    """Complete header.

    octets: length of the header. source: address and port of the client; None: the connection is the proxy's own, as
    for a health check.
    """

    octets: int
    source: tuple[str, int] | None


def parse(octets: bytes) -> ProxyHeader | None:
    """Return the header at the start of these octets, or None if more octets are needed. Raises ProxyError."""
    if octets[: len(SIGNATURE)] == SIGNATURE[: len(octets)]:
        return _binary(octets) if len(octets) >= _HEAD.size else None
    if octets[: len(FIRST)] == FIRST[: len(octets)]:
        return _text(octets)
    raise ProxyError("the header is missing")


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
    """Check the TLVs after the addresses, and the checksum if there is one. Raises ProxyError."""
    for kind, begin, end in _tlvs(header, at):
        if kind != _CHECKSUM:
            continue
        if end - begin != 4:
            raise ProxyError("the checksum is not 4 octets long")
        if crc32c(header[:begin] + bytes(4) + header[end:]) != int.from_bytes(header[begin:end]):
            raise ProxyError("the checksum is wrong")


def _tlvs(header: bytes, at: int) -> Iterator[tuple[int, int, int]]:
    """Yield type, start and end of each TLV. Raises ProxyError."""
    while at < len(header):
        begin = at + 3
        if begin > len(header):
            raise ProxyError("a TLV is cut off")
        end = begin + int.from_bytes(header[at + 1 : begin])
        if end > len(header):
            raise ProxyError("a TLV is cut off")
        yield header[at], begin, end
        at = end


def _shown(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """Return the text of an address. An IPv4 address mapped to IPv6 is written as IPv4."""
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
    """Return the CRC32c of RFC 4960, appendix B."""
    found = 0xFFFFFFFF
    for octet in octets:
        found = found >> 8 ^ _CRC_TABLE[(found ^ octet) & 0xFF]
    return found ^ 0xFFFFFFFF
