"""Headers of the PROXY protocol: valid ones by its specification, and malformed ones."""

import pytest

from sluice.supervisor.listeners.proxied_connections import is_proxy
from sluice.supervisor.listeners.proxy_header import MOST_OCTETS, ProxyError, ProxyHeader, crc32c, parse
from tests.peer import proxy_headers as proxy
from tests.peer.proxy_headers import SIGNATURE, addition, binary, text


@pytest.mark.parametrize(
    ("octets", "source"),
    [
        (b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", ("255.255.255.255", 65535)),
        (b"PROXY TCP6 ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n".replace(b"f...f", b"f::f"), None),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n", None),
        (text("192.0.2.7", 40000), ("192.0.2.7", 40000)),
        (text("2001:db8::7", 40000, "::1"), ("2001:db8::7", 40000)),
        (text("::ffff:192.0.2.7", 1, "::1"), ("192.0.2.7", 1)),
        (binary("192.0.2.7", 40000), ("192.0.2.7", 40000)),
        (binary("2001:db8::7", 1), ("2001:db8::7", 1)),
        (binary("::ffff:192.0.2.7", 1), ("192.0.2.7", 1)),
        (binary(None), None),
        (SIGNATURE + bytes.fromhex("21 00 0000"), None),
        (binary("192.0.2.7", 1, addition(0x02, b"router.example") + addition(0xEA, b"")), ("192.0.2.7", 1)),
    ],
)
def test_proxy_headers_are_parsed(octets, source):
    if b"f::f" in octets:
        source = ("ffff:f::f:ffff", 65535)
    whole = parse(octets + b"AMQP")
    assert whole == ProxyHeader(len(octets), source)
    assert all(parse(octets[:size]) is None for size in range(len(octets)))


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (b"AMQP\x03\x01\x00\x00", "the header is missing"),
        (b"\x16\x03\x01", "the header is missing"),
        (b"PROXI", "the header is missing"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 1\n" + b"x" * 100, "the header has no end"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n", "the header is malformed"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 01 1\r\n", "the header is malformed"),
        (b"PROXY  TCP4 1.2.3.4 1.2.3.4 1 1\r\n", "the header is malformed"),
        (b"PROXY tcp4 1.2.3.4 1.2.3.4 1 1\r\n", "the header is malformed"),
        (b"PROXY UDP4 1.2.3.4 1.2.3.4 1 1\r\n", "the header is malformed"),
        (b"PROXY TCP4 ::1 ::1 1 1\r\n", "an address is malformed"),
        (b"PROXY TCP6 1.2.3.4 1.2.3.4 1 1\r\n", "an address is malformed"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 70000 1\r\n", "a port is above 65535"),
        (SIGNATURE + bytes.fromhex("31 11 000c") + bytes(12), "version or command 0x31 is unknown"),
        (SIGNATURE + bytes.fromhex("22 11 000c") + bytes(12), "version or command 0x22 is unknown"),
        (SIGNATURE + bytes.fromhex("21 12 000c") + bytes(12), "family and protocol 0x12 are not TCP"),
        (SIGNATURE + bytes.fromhex("21 11 000b") + bytes(11), "the header is too short for its addresses"),
        (SIGNATURE + bytes.fromhex("21 11 ffff"), f"65551 octets, and at most {MOST_OCTETS} are taken"),
        (binary("192.0.2.7", 1, b"\x01"), "a TLV is cut off"),
        (binary("192.0.2.7", 1, b"\x01\x00\x05abc"), "a TLV is cut off"),
        (binary("192.0.2.7", 1, addition(0x03, b"abc")), "the checksum is not 4 octets long"),
        (binary("192.0.2.7", 1, addition(0x03, b"abcd")), "the checksum is wrong"),
    ],
)
def test_malformed_proxy_header_is_refused(octets, text):
    with pytest.raises(ProxyError, match=text):
        parse(octets)


def test_proxy_header_checksum_is_checked():
    assert crc32c(b"123456789") == 0xE3069283
    unsigned = binary("192.0.2.7", 1, addition(0x03, bytes(4)) + addition(0x01, b"h2"))
    at = unsigned.index(addition(0x03, bytes(4))) + 3
    signed = unsigned[:at] + crc32c(unsigned).to_bytes(4) + unsigned[at + 4 :]
    assert parse(signed) == ProxyHeader(len(signed), ("192.0.2.7", 1))
    changed = signed.replace(b"h2", b"h3")
    with pytest.raises(ProxyError, match="the checksum is wrong"):
        parse(changed)
    assert proxy.SIGNATURE == SIGNATURE


def test_proxy_networks_match_hosts():
    networks = ("10.0.0.0/8", "192.0.2.7", "2001:db8::/32")
    assert all(is_proxy(host, networks) for host in ("10.1.2.3", "192.0.2.7", "2001:db8::1"))
    assert not any(is_proxy(host, networks) for host in ("11.0.0.1", "192.0.2.8", "fe80::1%eth0"))
    assert not is_proxy("10.1.2.3", ())
