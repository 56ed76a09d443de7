"""AMQP encodings of values in answers, with the types of 1.19 (management.md 5.3)."""

import struct
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final

from sluice.router.amqp import codec

NULL: Final = b"\x40"
TRUE: Final = b"\x41"
FALSE: Final = b"\x42"
EMPTY_MAP: Final = codec.encode_map([])

_INT: Final = range(-(2**31), 2**31)
_LONG: Final = range(-(2**63), 2**63)
_ULONG_MAX: Final = 2**64 - 1
_UINT_MAX: Final = 2**32 - 1
_COMMON: Final = 1024  # numbers below are encoded in advance
_ULONGS: Final[list[bytes]] = [codec.encode_ulong(number) for number in range(_COMMON)]
_UINTS: Final[list[bytes]] = [codec.encode_uint(number) for number in range(_COMMON)]


def string(text: str | None) -> bytes:
    """Encode a string; None becomes null. Invalid Unicode (in a path, for example) is replaced."""
    if text is None:
        return NULL
    try:
        encoded: bytes = codec.encode_string(text)
    except UnicodeEncodeError:
        encoded = codec.encode_string(text.encode("utf-8", "replace").decode())
    return encoded


def ulong(number: int) -> bytes:
    """Encode a ulong, limited to its range."""
    if 0 <= number < _COMMON:
        return _ULONGS[number]
    return codec.encode_ulong(min(max(number, 0), _ULONG_MAX))


def uint(number: int | None) -> bytes:
    """Encode a uint, limited to its range; None becomes null."""
    if number is None:
        return NULL
    if 0 <= number < _COMMON:
        return _UINTS[number]
    return codec.encode_uint(min(max(number, 0), _UINT_MAX))


def int32(number: int | None) -> bytes:
    """Encode an int; None becomes null. Raises OverflowError."""
    encoded: bytes = NULL if number is None else codec.encode_int(number)
    return encoded


def long(number: int) -> bytes:
    """Encode a long. Raises OverflowError."""
    return b"\x55" + struct.pack("b", number) if -128 <= number < 128 else b"\x81" + struct.pack(">q", number)


def boolean(value: bool) -> bytes:
    """Encode a boolean."""
    return TRUE if value else FALSE


def strings(texts: Iterable[str]) -> bytes:
    """Encode a list of strings."""
    return codec.encode_list([string(text) for text in texts])


def value(given: Any) -> bytes:
    """Encode any value of the store (management.md 5.3), or one sent by a client, in its own AMQP type."""
    if given is None or isinstance(given, bool):
        return NULL if given is None else boolean(given)
    if isinstance(given, str):
        if isinstance(given, codec.Char):
            return b"\x73" + str(given).encode("utf-32-be")
        return _symbol(str(given)) if isinstance(given, codec.Symbol) else string(given)
    if isinstance(given, int):
        return _integer(given)
    if isinstance(given, float):
        return b"\x82" + struct.pack(">d", given)
    if isinstance(given, Mapping):
        return mapping(given)
    if isinstance(given, (list, tuple)):
        return codec.encode_list([value(item) for item in given])
    return _rare(given)


def mapping(pairs: Mapping[Any, Any]) -> bytes:
    """Encode a map of any values."""
    return codec.encode_map([value(item) for pair in pairs.items() for item in pair])


def properties(pairs: Mapping[str, Any]) -> bytes:
    """Encode the properties of a connection, with symbols as keys where possible."""
    items = []
    for key, item in pairs.items():
        items += [_symbol(key), value(item)]
    return codec.encode_map(items)


def _symbol(text: str) -> bytes:
    return codec.encode_symbol(text) if text.isascii() else string(text)


def _integer(number: int) -> bytes:
    """Encode a number: as an int if it fits, else a long, else a ulong, else text. Timestamps keep their type."""
    if isinstance(number, codec.Timestamp):
        return b"\x83" + struct.pack(">q", number)
    if number in _INT:
        return int32(number)
    if number in _LONG:
        return b"\x81" + struct.pack(">q", number)
    return b"\x80" + struct.pack(">Q", number) if 0 <= number <= _ULONG_MAX else string(str(number))


def _rare(given: Any) -> bytes:
    """Encode a value of a type that only clients send."""
    if isinstance(given, uuid.UUID):
        return b"\x98" + given.bytes
    if isinstance(given, codec.DecimalOctets):
        return codec.encode_value(given)
    if isinstance(given, bytes):
        return codec.encode_binary(given)
    return string(str(given))
