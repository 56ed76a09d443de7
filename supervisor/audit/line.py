"""Audit events as lines of JSON.

Peers choose many of the values. JSON escapes them, ASCII only, so no value looks like another field, a further line or
a command to a terminal; and a line has a bounded length, whatever the values.
"""

import json
import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

LINE_MOST: Final = 8000  # octets of a line: what daemons of system logs take in one datagram
#: Characters of a text and members of a list or map, from the most to what always fits.
_SIZES: Final = ((1024, 64), (256, 16), (64, 4))
_KEPT: Final = _SIZES[1]
_DEPTH: Final = 6  # of maps and lists in each other
MARK: Final = "..."  # at the end of a text that is cut; the field `cut` says that there is one
_MICROSECONDS: Final = 1_000_000_000 // 1_000_000

Fields = Mapping[str, Any]


def timestamp(nanoseconds: int | None = None) -> str:
    """Return a time since the epoch, by default the present one, as RFC 3339 has it: UTC, with microseconds."""
    at = time.time_ns() if nanoseconds is None else nanoseconds
    seconds, rest = divmod(at, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // _MICROSECONDS:06d}Z"


def encode(fields: Fields) -> bytes:
    """Return a JSON object without its sequence number and without the end of line. Fields without value are left out.

    Long values are cut, more of them until the line fits; `cut` is true then.
    """
    for most, members in _SIZES:
        bound = _Bound(most, members)
        shown = bound.map(fields)
        if bound.cut:
            shown["cut"] = True
        octets = _dump(shown)
        if len(octets) <= LINE_MOST:
            return octets
    shown.pop("detail", None)
    return _dump(shown)


def shortened(fields: Fields) -> dict[str, Any]:
    """Return fields as they are kept for later: a copy of bounded size, also of what a peer has sent at length."""
    bound = _Bound(*_KEPT)
    shown = bound.map(fields)
    return {**shown, "cut": True} if bound.cut else shown


def numbered(line: bytes, sequence: int) -> bytes:
    """Return an encoded line with its sequence number and its end."""
    return b'{"sequence":%d,%b\n' % (sequence, line[1:])


def _dump(shown: Fields) -> bytes:
    return json.dumps(shown, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


class _Bound:
    """Values as JSON has them, none longer than allowed. `cut`: whether something is missing."""

    def __init__(self, most: int, members: int) -> None:
        self._most: Final = most
        self._members: Final = members
        self.cut = False

    def map(self, given: Fields, depth: int = 0) -> dict[str, Any]:
        """Return a map without members that have no value."""
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
