"""AMQP values as text for logs and traces, straight from their octets. No input of a peer makes it fail.

The form is Proton's: `"string"`, `:symbol` (`:"symbol-1"` when it is more than letters), `b"\\x00"`, `[list]`,
`{key=value}`, `@PN_SYMBOL[array]`, `@descriptor value`. A described list with known field names is written as
`@name(code) [field=value, …]`, absent fields left out.
"""

import struct
import sys
import uuid
from collections.abc import Mapping
from typing import Final

DESCRIBED: Final = 0x00
MAX_DEPTH: Final = 16  # most nested values
SHOWN_OCTETS: Final = 256  # most octets shown of one string, symbol or binary

# Descriptor -> name and field names (parts 2, 3 and 5 of the specification).
Names = Mapping[int, tuple[str, tuple[str, ...]]]

_SYMBOL: Final = 0xA3
# Types of fixed width by code: the type's name (for arrays), and its format for struct.
_FIXED: Final[dict[int, tuple[str, str]]] = {
    0x50: ("UBYTE", ">B"), 0x51: ("BYTE", ">b"), 0x52: ("UINT", ">B"), 0x53: ("ULONG", ">B"), 0x54: ("INT", ">b"),
    0x55: ("LONG", ">b"), 0x56: ("BOOL", ">B"), 0x60: ("USHORT", ">H"), 0x61: ("SHORT", ">h"), 0x70: ("UINT", ">I"),
    0x71: ("INT", ">i"), 0x72: ("FLOAT", ">f"), 0x73: ("CHAR", ">I"), 0x80: ("ULONG", ">Q"), 0x81: ("LONG", ">q"),
    0x82: ("DOUBLE", ">d"), 0x83: ("TIMESTAMP", ">q"),
}  # fmt: skip
_CONSTANT: Final = {0x40: "null", 0x41: "true", 0x42: "false", 0x43: "0", 0x44: "0", 0x45: "[]"}
_OPAQUE: Final = {0x74: (4, "DECIMAL32"), 0x84: (8, "DECIMAL64"), 0x94: (16, "DECIMAL128"), 0x98: (16, "UUID")}
_VARIABLE: Final = {0xA0: "BINARY", 0xA1: "STRING", 0xA3: "SYMBOL", 0xB0: "BINARY", 0xB1: "STRING", 0xB3: "SYMBOL"}
_COMPOUND: Final = {0xC0: "LIST", 0xC1: "MAP", 0xD0: "LIST", 0xD1: "MAP", 0xE0: "ARRAY", 0xF0: "ARRAY"}
_TYPE_NAMES: Final = {
    0x40: "NULL", 0x41: "BOOL", 0x42: "BOOL", 0x43: "UINT", 0x44: "ULONG", 0x45: "LIST",
    **{code: name for code, (name, _) in _FIXED.items()},
    **{code: name for code, (_, name) in _OPAQUE.items()},
    **_VARIABLE,
    **_COMPOUND,
}  # fmt: skip


class ShortError(Exception):
    """Raised if the octets end within a value, or are not a value. `text` describes what was read."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def value_text(data: bytes, at: int, names: Names, depth: int = 0) -> tuple[str, int]:
    """Return the text of the value at `at`, and the position behind it. Raises ShortError."""
    code, at = _octet(data, at, "")
    if code != DESCRIBED:
        return _body(data, at, code, names, depth)
    if depth > MAX_DEPTH:
        raise ShortError("...")
    descriptor, at = value_text(data, at, names, depth + 1)
    known = names.get(int(descriptor)) if descriptor.isdecimal() else None
    if known is None:
        return _joined(f"@{descriptor} ", data, at, names, depth)
    name, fields = known
    return list_text(data, at, f"@{name}({descriptor}) ", fields, names, depth)


def list_text(data: bytes, at: int, prefix: str, fields: tuple[str, ...], names: Names, depth: int) -> tuple[str, int]:
    """Return the text of the list at `at`, with names for its items and without absent ones. Raises ShortError."""
    code, at = _octet(data, at, prefix)
    if code == 0x45:
        return f"{prefix}[]", at
    if _COMPOUND.get(code) != "LIST":
        text, at = _body(data, at, code, names, depth)
        return prefix + text, at
    try:
        count, at, end = _compound(data, at, code)
        parts: list[str] = []
        for index in range(count):
            if data[at : at + 1] == b"\x40":
                at += 1
                continue
            field = f"{fields[index]}=" if index < len(fields) else ""
            try:
                text, at = value_text(data, at, names, depth + 1)
            except ShortError as short:
                raise ShortError(f"{prefix}[{', '.join([*parts, field + short.text])}") from None
            parts.append(field + text)
    except _CutError:
        raise ShortError(f"{prefix}[...") from None
    return f"{prefix}[{', '.join(parts)}]", max(at, end)


class _CutError(Exception):
    """Raised if the octets end within the head of a compound value."""


def _octet(data: bytes, at: int, before: str) -> tuple[int, int]:
    if at >= len(data):
        raise ShortError(f"{before}...")
    return data[at], at + 1


def _joined(prefix: str, data: bytes, at: int, names: Names, depth: int) -> tuple[str, int]:
    try:
        text, at = value_text(data, at, names, depth + 1)
    except ShortError as short:
        raise ShortError(prefix + short.text) from None
    return prefix + text, at


def _compound(data: bytes, at: int, code: int) -> tuple[int, int, int]:
    """Return (number of items, position of the first, position behind the value)."""
    width = 1 if code & 0xF0 in (0xC0, 0xE0) else 4
    if at + 2 * width > len(data):
        raise _CutError
    size = int.from_bytes(data[at : at + width], "big")
    count = int.from_bytes(data[at + width : at + 2 * width], "big")
    return count, at + 2 * width, at + width + size


def _body(data: bytes, at: int, code: int, names: Names, depth: int) -> tuple[str, int]:
    """Return the text of a value whose constructor was read, and the position behind it."""
    if code in _CONSTANT:
        return _CONSTANT[code], at
    if code in _FIXED:
        return _fixed(data, at, code)
    if code in _VARIABLE:
        return _variable(data, at, code)
    if code in _OPAQUE:
        width, name = _OPAQUE[code]
        if at + width > len(data):
            raise ShortError("...")
        raw = data[at : at + width]
        return (str(uuid.UUID(bytes=raw)) if name == "UUID" else f"D{raw.hex()}"), at + width
    if code not in _COMPOUND:
        raise ShortError(f"(type 0x{code:02x}?)")
    if depth > MAX_DEPTH:
        raise ShortError("...")
    try:
        count, at, end = _compound(data, at, code)
    except _CutError:
        raise ShortError("...") from None
    kind = _COMPOUND[code]
    if kind == "ARRAY":
        return _array(data, at, count, end, names, depth)
    return _items(data, at, count, end, names, depth, kind == "MAP")


def _fixed(data: bytes, at: int, code: int) -> tuple[str, int]:
    name, form = _FIXED[code]
    width = struct.calcsize(form)
    if at + width > len(data):
        raise ShortError("...")
    value = struct.unpack_from(form, data, at)[0]
    if name == "BOOL":
        return ("true" if value else "false"), at + width
    if name == "CHAR":
        return _char(value), at + width
    return str(value), at + width


def _char(value: int) -> str:
    """Return a character as text, or its number if it cannot be shown: controls, halves of surrogate pairs."""
    char = chr(value) if value <= sys.maxunicode else ""
    return f"'{char}'" if char.isprintable() and char else f"0x{value:x}"


def _variable(data: bytes, at: int, code: int) -> tuple[str, int]:
    width = 1 if code < 0xB0 else 4
    if at + width > len(data):
        raise ShortError("...")
    size = int.from_bytes(data[at : at + width], "big")
    at += width
    text = quoted(data[at : at + size], size, _VARIABLE[code])
    if at + size > len(data):
        raise ShortError(text)
    return text, at + size


def quoted(raw: bytes, size: int, kind: str) -> str:
    """Format a string, symbol or binary. kind: a name of _VARIABLE. raw: its first octets, of `size` in all."""
    shown = raw[:SHOWN_OCTETS]
    more = "" if len(shown) == size else "..."
    if kind == "BINARY":
        return f'b"{escaped(shown)}"{more}'
    text = escaped(shown, shown.decode("utf-8", "replace"))
    if kind == "STRING":
        return f'"{text}"{more}'
    return f":{text}{more}" if shown.isalpha() and not more else f':"{text}"{more}'


def escaped(raw: bytes, text: str | None = None) -> str:
    """Escape all characters of `text` that are not printable. text: by default the ASCII reading of `raw`."""
    if text is None:
        text = raw.decode("latin-1")
        return "".join(c if " " <= c <= "~" and c not in '"\\' else _escape(c) for c in text)
    return "".join(c if c.isprintable() and c not in '"\\' else _escape(c) for c in text)


def _escape(char: str) -> str:
    return f"\\{char}" if char in '"\\' else f"\\x{ord(char):02x}"


def _items(data: bytes, at: int, count: int, end: int, names: Names, depth: int, is_map: bool) -> tuple[str, int]:
    opening, closing = ("{", "}") if is_map else ("[", "]")
    parts: list[str] = []
    for index in range(count):
        try:
            text, at = value_text(data, at, names, depth + 1)
        except ShortError as short:
            raise ShortError(opening + _separated([*parts, short.text], is_map)) from None
        parts.append(text)
        if at > end:
            raise ShortError(opening + _separated(parts, is_map) + f" ({count - index - 1} more?)")
    return opening + _separated(parts, is_map) + closing, end


def _separated(parts: list[str], is_map: bool) -> str:
    if not is_map:
        return ", ".join(parts)
    return ", ".join("=".join(parts[index : index + 2]) for index in range(0, len(parts), 2))


def _array(data: bytes, at: int, count: int, end: int, names: Names, depth: int) -> tuple[str, int]:
    prefix = ""
    code, at = _octet(data, at, "")
    if code == DESCRIBED:
        descriptor, at = value_text(data, at, names, depth + 1)
        prefix = f"@{descriptor} "
        code, at = _octet(data, at, prefix)
    prefix += f"@PN_{_TYPE_NAMES.get(code, hex(code))}["
    if code in _CONSTANT:  # items have no octets: the count is as the peer claims
        return f"{prefix}{count} x {_CONSTANT[code]}]", end
    parts: list[str] = []
    for _ in range(count):
        try:
            text, at = _body(data, at, code, names, depth + 1)
        except ShortError as short:
            raise ShortError(prefix + ", ".join([*parts, short.text])) from None
        parts.append(text)
    return f"{prefix}{', '.join(parts)}]", end
