"""Encoding of audit events as JSON lines.

Peers choose many of the values. They are escaped as ASCII-only JSON, so no value looks like another field, a further
line or a terminal control sequence. The length of a line is bounded, whatever the values.
"""

import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from sluice.router import json_codec

MAX_LINE_OCTETS: Final = 8000  # maximum octets of a line, limited by the datagrams that system log daemons accept
#: Limits for characters of a text and members of a list or map, tried in this order; the last ones always fit.
_SIZES: Final = ((1024, 64), (256, 16), (64, 4))
_KEPT: Final = _SIZES[1]
_DEPTH: Final = 6  # maximum nesting of maps and lists
MARK: Final = "..."  # end of a cut text; the field `cut` of the event says that something was cut
_MICROSECONDS: Final = 1_000_000_000 // 1_000_000

Fields = Mapping[str, Any]


def timestamp(nanoseconds: int | None = None) -> str:
    """Return a time since the epoch, by default now, in the format of RFC 3339: UTC, with microseconds."""
    at = time.time_ns() if nanoseconds is None else nanoseconds
    seconds, rest = divmod(at, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // _MICROSECONDS:06d}Z"


def encode(fields: Fields) -> bytes:
    """Encode an event as a JSON object, without sequence number and end of line. Fields without value are omitted.

    Long values are cut, with smaller and smaller limits until the line fits. `cut` is true if anything was cut.
    """
    for most, members in _SIZES:
        bound = _Bound(most, members)
        shown = bound.map(fields)
        if bound.cut:
            shown["cut"] = True
        octets = _dump(shown)
        if len(octets) <= MAX_LINE_OCTETS:
            return octets
    shown.pop("detail", None)
    return _dump(shown)


def bounded_copy(fields: Fields) -> dict[str, Any]:
    """Return a copy of `fields` with bounded size, suitable for keeping, however long the values of a peer are."""
    bound = _Bound(*_KEPT)
    shown = bound.map(fields)
    return {**shown, "cut": True} if bound.cut else shown


def with_sequence_number(line: bytes, sequence: int) -> bytes:
    """Return an encoded line with its sequence number and an end of line."""
    return b'{"sequence":%d,%b\n' % (sequence, line[1:])


def _dump(shown: Fields) -> bytes:
    return json_codec.encode_ascii(shown)


class _Bound:
    """Conversion of values to JSON values of bounded size. cut: True if anything was shortened or omitted."""

    def __init__(self, most: int, members: int) -> None:
        self._most: Final = most
        self._members: Final = members
        self.cut = False

    def map(self, given: Fields, depth: int = 0) -> dict[str, Any]:
        """Return a bounded copy of a map, without members that have no value."""
        found: dict[str, Any] = {}
        for name, value in given.items():
            if value is None:
                continue
            if depth and len(found) >= self._members:
                self.cut = True
                break
            found[self._text(str(name))] = self._value(value, depth + 1)
        return found

    def _value(self, value: Any, depth: int) -> Any:
        match value:
            case None | bool() | int():
                return value
            case float():
                return value if math.isfinite(value) else str(value)
            case str():
                return self._text(value)
            case bytes() | bytearray() | memoryview():
                return self._text(bytes(value[: self._most]).hex())
            case Mapping() if depth < _DEPTH:
                return self.map(value, depth)
            case list() | tuple() | set() | frozenset() if depth < _DEPTH:
                if len(value) > self._members:
                    self.cut = True
                return [self._value(each, depth + 1) for each, _ in zip(value, range(self._members), strict=False)]
            case Mapping() | list() | tuple() | set() | frozenset():
                self.cut = True
                return MARK
        return self._text(str(value))

    def _text(self, text: str) -> str:
        if len(text) <= self._most:
            return str(text)
        self.cut = True
        return text[: self._most] + MARK
