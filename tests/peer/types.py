"""AMQP 1.0 primitive types whose encoding a test chooses or inspects.

Python values stand for their obvious AMQP type (None null, bool boolean, int long, float double, str string, bytes
binary, list list, dict map, UUID uuid). The classes here name the other types. All of them compare equal to the plain
value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Symbol(str):
    """AMQP symbol."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Symbol({str(self)!r})"


class _Int(int):
    """Base class of the integer types, which print with their type."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"


class UByte(_Int):
    """AMQP ubyte."""


class UShort(_Int):
    """AMQP ushort."""


class UInt(_Int):
    """AMQP uint."""


class ULong(_Int):
    """AMQP ulong."""


class Byte(_Int):
    """AMQP byte."""


class Short(_Int):
    """AMQP short."""


class Int(_Int):
    """AMQP int."""


class Long(_Int):
    """AMQP long; a plain int is encoded as a long too."""


class Timestamp(_Int):
    """AMQP timestamp: milliseconds since 1970."""


class Char(str):
    """AMQP char: one code point."""

    __slots__ = ()


class Float(float):
    """AMQP float (32 bits)."""

    __slots__ = ()


class Decimal(bytes):
    """AMQP decimal32, decimal64 or decimal128 as its 4, 8 or 16 raw octets."""

    __slots__ = ()


class Array:
    """AMQP array. All items are encoded with the type of the first; an empty array with `empty_code`."""

    __slots__ = ("empty_code", "items")

    def __init__(self, items: Iterable[Any], empty_code: int = 0xA3) -> None:
        self.items = list(items)
        self.empty_code = empty_code

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Array):
            return self.items == other.items
        return self.items == other

    def __hash__(self) -> int:
        return hash(tuple(self.items))

    def __iter__(self) -> Any:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"Array({self.items!r})"


class Described:
    """Described value. `descriptor` is usually a ULong or a Symbol."""

    __slots__ = ("descriptor", "value")

    def __init__(self, descriptor: Any, value: Any) -> None:
        self.descriptor = descriptor
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Described) and (self.descriptor, self.value) == (other.descriptor, other.value)

    def __hash__(self) -> int:
        return hash(self.descriptor)

    def __repr__(self) -> str:
        return f"Described({self.descriptor!r}, {self.value!r})"


class Map(dict[Any, Any]):
    """Decoded map that also keeps its pairs in their original order, with types and duplicate keys.

    It is encoded from `pairs`, so a test can also send what a dict cannot hold.
    """

    def __init__(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        self.pairs = list(pairs)
        super().__init__((key, value) for key, value in self.pairs if _hashable(key))

    def __repr__(self) -> str:
        return f"Map({self.pairs!r})"


class Raw(bytes):
    """Octets that are put into the encoding unchanged."""

    __slots__ = ()


def _hashable(value: Any) -> bool:
    return not isinstance(value, list | dict)
