"""Encoding and decoding of AMQP 1.0 types (part 1 of the specification)."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any

from tests.peer.types import (
    Array,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Long,
    Map,
    Raw,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

#: Largest value of one-octet sizes and counts (vbin8, str8, list8, ...).
MAX_8 = 0xFF


class CodecError(ValueError):
    """Raised for octets that are not an AMQP value. The text names the offset."""


def encode(value: Any) -> bytes:
    """Encode `value` in the shortest form of its type. Raises TypeError for values without an AMQP type."""
    if isinstance(value, Raw):
        return bytes(value)
    if value is None:
        return b"\x40"
    if value is True or value is False:
        return b"\x41" if value else b"\x42"
    for kind, encoder in _ENCODERS:
        if isinstance(value, kind):
            return encoder(value)
    raise TypeError(f"no AMQP type for {value!r} of {type(value).__name__}")


def _small(zero: bytes | None, small: int, low: int, high: int, code: int, fmt: str) -> Callable[[Any], bytes]:
    """Return the encoder of an integer type with a zero form, a one-octet form for [low, high] and a full form."""

    def encoder(value: Any) -> bytes:
        number = int(value)
        if zero is not None and number == 0:
            return zero
        if small and low <= number <= high:
            return bytes((small, number & 0xFF))
        return bytes((code,)) + struct.pack(fmt, number)

    return encoder


def _variable(code8: int, code32: int, octets: bytes) -> bytes:
    if len(octets) <= MAX_8:
        return bytes((code8, len(octets))) + octets
    return bytes((code32,)) + struct.pack("!I", len(octets)) + octets


def _compound(code8: int, code32: int, count: int, body: bytes) -> bytes:
    if count <= MAX_8 and len(body) + 1 <= MAX_8:
        return bytes((code8, len(body) + 1, count)) + body
    return bytes((code32,)) + struct.pack("!II", len(body) + 4, count) + body


def _list(value: list[Any]) -> bytes:
    return b"\x45" if not value else _compound(0xC0, 0xD0, len(value), b"".join(map(encode, value)))


def _map(value: dict[Any, Any]) -> bytes:
    pairs = value.pairs if isinstance(value, Map) else list(value.items())
    return _compound(0xC1, 0xD1, 2 * len(pairs), b"".join(encode(k) + encode(v) for k, v in pairs))


#: Type codes of array elements: one fixed form per type, wide enough for every value.
_ARRAY_FORMS: list[tuple[type, int, Callable[[Any], bytes]]] = [
    (Symbol, 0xB3, lambda v: struct.pack("!I", len(v)) + v.encode("ascii")),
    (UByte, 0x50, lambda v: struct.pack("!B", v)),
    (UShort, 0x60, lambda v: struct.pack("!H", v)),
    (UInt, 0x70, lambda v: struct.pack("!I", v)),
    (ULong, 0x80, lambda v: struct.pack("!Q", v)),
    (Byte, 0x51, lambda v: struct.pack("!b", v)),
    (Short, 0x61, lambda v: struct.pack("!h", v)),
    (Int, 0x71, lambda v: struct.pack("!i", v)),
    (Timestamp, 0x83, lambda v: struct.pack("!q", v)),
    (bool, 0x56, lambda v: b"\x01" if v else b"\x00"),
    (int, 0x81, lambda v: struct.pack("!q", v)),
    (Float, 0x72, lambda v: struct.pack("!f", v)),
    (float, 0x82, lambda v: struct.pack("!d", v)),
    (uuid.UUID, 0x98, lambda v: v.bytes),
    (bytes, 0xB0, lambda v: struct.pack("!I", len(v)) + v),
    (str, 0xB1, lambda v: struct.pack("!I", len(v.encode())) + v.encode()),
]


def _array(value: Array) -> bytes:
    if not value.items:
        constructor, body = bytes((value.empty_code,)), b""
    else:
        for kind, code, encoder in _ARRAY_FORMS:
            if isinstance(value.items[0], kind):
                constructor, body = bytes((code,)), b"".join(encoder(item) for item in value.items)
                break
        else:
            raise TypeError(f"no array form for {value.items[0]!r}")
    count, body = len(value.items), constructor + body
    if count <= MAX_8 and len(body) + 1 <= MAX_8:
        return bytes((0xE0, len(body) + 1, count)) + body
    return b"\xf0" + struct.pack("!II", len(body) + 4, count) + body


def _decimal(value: Decimal) -> bytes:
    return bytes(({4: 0x74, 8: 0x84, 16: 0x94}[len(value)],)) + bytes(value)


_ENCODERS: list[tuple[type, Callable[[Any], bytes]]] = [
    (Described, lambda v: b"\x00" + encode(v.descriptor) + encode(v.value)),
    (Symbol, lambda v: _variable(0xA3, 0xB3, v.encode("ascii"))),
    (Char, lambda v: b"\x73" + struct.pack("!I", ord(v))),
    (str, lambda v: _variable(0xA1, 0xB1, v.encode())),
    (UByte, lambda v: struct.pack("!BB", 0x50, v)),
    (UShort, lambda v: b"\x60" + struct.pack("!H", v)),
    (UInt, _small(b"\x43", 0x52, 0, MAX_8, 0x70, "!I")),
    (ULong, _small(b"\x44", 0x53, 0, MAX_8, 0x80, "!Q")),
    (Byte, lambda v: struct.pack("!Bb", 0x51, v)),
    (Short, lambda v: b"\x61" + struct.pack("!h", v)),
    (Int, _small(None, 0x54, -128, 127, 0x71, "!i")),
    (Timestamp, lambda v: b"\x83" + struct.pack("!q", v)),
    (int, _small(None, 0x55, -128, 127, 0x81, "!q")),
    (Float, lambda v: b"\x72" + struct.pack("!f", v)),
    (float, lambda v: b"\x82" + struct.pack("!d", v)),
    (Decimal, _decimal),
    (bytes, lambda v: _variable(0xA0, 0xB0, bytes(v))),
    (bytearray, lambda v: _variable(0xA0, 0xB0, bytes(v))),
    (uuid.UUID, lambda v: b"\x98" + v.bytes),
    (Array, _array),
    (list, _list),
    (tuple, lambda v: _list(list(v))),
    (dict, _map),
]


#: Fixed-width types: code -> (struct format or None for a constant, constructor or constant).
_FIXED: dict[int, tuple[str | None, Any]] = {
    0x40: (None, None),
    0x41: (None, True),
    0x42: (None, False),
    0x43: (None, UInt(0)),
    0x44: (None, ULong(0)),
    0x50: ("!B", UByte),
    0x51: ("!b", Byte),
    0x52: ("!B", UInt),
    0x53: ("!B", ULong),
    0x54: ("!b", Int),
    0x55: ("!b", Long),
    0x56: ("!B", bool),
    0x60: ("!H", UShort),
    0x61: ("!h", Short),
    0x70: ("!I", UInt),
    0x71: ("!i", Int),
    0x72: ("!f", Float),
    0x73: ("!I", lambda point: Char(chr(point))),
    0x74: ("!4s", Decimal),
    0x80: ("!Q", ULong),
    0x81: ("!q", Long),
    0x82: ("!d", float),
    0x83: ("!q", Timestamp),
    0x84: ("!8s", Decimal),
    0x94: ("!16s", Decimal),
    0x98: ("!16s", lambda octets: uuid.UUID(bytes=octets)),
}

_VARIABLE: dict[int, Callable[[bytes], Any]] = {
    0xA0: bytes,
    0xA1: lambda octets: octets.decode(),
    0xA3: lambda octets: Symbol(octets.decode("ascii")),
    0xB0: bytes,
    0xB1: lambda octets: octets.decode(),
    0xB3: lambda octets: Symbol(octets.decode("ascii")),
}


def decode(octets: bytes, at: int = 0) -> tuple[Any, int]:
    """Decode the value at offset `at`. Return the value and the offset behind it. Raises CodecError."""
    try:
        return _value(octets, at)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise CodecError(f"truncated or malformed value at offset {at} of {len(octets)}: {error}") from error


def decode_all(octets: bytes) -> list[Any]:
    """Decode values until the octets end."""
    values: list[Any] = []
    at = 0
    while at < len(octets):
        value, at = decode(octets, at)
        values.append(value)
    return values


def _value(octets: bytes, at: int) -> tuple[Any, int]:
    code = octets[at]
    if code == 0:
        descriptor, at = _value(octets, at + 1)
        value, at = _value(octets, at)
        return Described(descriptor, value), at
    return _body(code, octets, at + 1)


def _body(code: int, octets: bytes, at: int) -> tuple[Any, int]:
    """Return the value of type `code` whose body begins at `at`, and the offset behind it."""
    if code in _FIXED:
        fmt, make = _FIXED[code]
        if fmt is None:
            return make, at
        (number,) = struct.unpack_from(fmt, octets, at)
        return make(number), at + struct.calcsize(fmt)
    if code in _VARIABLE:
        size, at = _size(code < 0xB0, octets, at)
        return _VARIABLE[code](_take(octets, at, size)), at + size
    if code == 0x45:
        return [], at
    if code in (0xC0, 0xC1, 0xD0, 0xD1):
        return _read_compound(code, octets, at)
    if code in (0xE0, 0xF0):
        return _read_array(code, octets, at)
    raise CodecError(f"unknown type code 0x{code:02x} at offset {at - 1}")


def _size(one_octet: bool, octets: bytes, at: int) -> tuple[int, int]:
    if one_octet:
        return octets[at], at + 1
    return int(struct.unpack_from("!I", octets, at)[0]), at + 4


def _take(octets: bytes, at: int, size: int) -> bytes:
    if at + size > len(octets):
        raise CodecError(f"value of {size} octets at offset {at} exceeds the {len(octets)} octets there are")
    return bytes(octets[at : at + size])


def _read_compound(code: int, octets: bytes, at: int) -> tuple[Any, int]:
    one_octet = code < 0xD0
    size, at = _size(one_octet, octets, at)
    end = at + size
    _take(octets, at, size)
    count, at = _size(one_octet, octets, at)
    items = []
    for _ in range(count):
        item, at = _value(octets, at)
        items.append(item)
    if at != end:
        raise CodecError(f"compound of type 0x{code:02x} ends at {at}, its size says {end}")
    if code in (0xC0, 0xD0):
        return items, end
    if count % 2:
        raise CodecError(f"map with an odd number of items ({count}) before offset {end}")
    return Map(zip(items[::2], items[1::2], strict=True)), end


def _read_array(code: int, octets: bytes, at: int) -> tuple[Array, int]:
    one_octet = code == 0xE0
    size, at = _size(one_octet, octets, at)
    end = at + size
    _take(octets, at, size)
    count, at = _size(one_octet, octets, at)
    descriptor: Any = None
    described = octets[at] == 0
    if described:
        descriptor, at = _value(octets, at + 1)
    constructor = octets[at]
    at += 1
    items = []
    for _ in range(count):
        item, at = _body(constructor, octets, at)
        items.append(Described(descriptor, item) if described else item)
    if at != end:
        raise CodecError(f"array ends at {at}, its size says {end}")
    return Array(items, empty_code=constructor), end
