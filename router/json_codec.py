"""JSON codec of all packages, on top of orjson. Other modules import neither `json` nor `orjson`.

Three things that orjson cannot do are here, and nowhere else: text in the format of Dispatch 1.19's tools, integers
beyond 64 bits, and halves of surrogate pairs. Control messages are typed and have a codec of their own
(`router/control/codec.py`). Configuration files are read by `router/config/jsontext.py`, because orjson reports
no lines of values.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

JsonError = orjson.JSONDecodeError  # a ValueError with the attributes `msg`, `lineno` and `colno`, both counted from 1

_LEAST: Final = -(2**63)  # least integer that orjson can encode and decode
_MOST: Final = 2**64 - 1  # greatest such integer
_LONG_NUMBER: Final = re.compile(r"[0-9]{19}")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")


def decode(text: str | bytes) -> Any:
    """Decode a document whose integers fit into 64 bits; longer ones become floats. Raises JsonError."""
    return orjson.loads(text)


def decode_exactly(text: str) -> Any:
    """Decode a document with integers of any size. Raises ValueError."""
    value = orjson.loads(text)
    # orjson rounds longer integers without an error, so a user would send another number than the one written.
    return json.loads(text) if _LONG_NUMBER.search(text) else value


def encode(value: Any) -> bytes:
    """Encode a value compactly in UTF-8. Raises TypeError for values and keys that JSON does not have, and for values
    nested in more than 254 levels, as can be decoded.

    Keys that are not text become text. NaN and the infinities become null. Halves of surrogate pairs, which UTF-8 does
    not have, become escapes in the text, as in control messages.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # also for invalid values, for which the second call raises it again
        try:
            encodable = _encodable(value)
        except RecursionError:
            raise TypeError("nested too deeply") from None
        return orjson.dumps(encodable, option=orjson.OPT_NON_STR_KEYS)


def encode_ascii(value: Any) -> bytes:
    """Encode a value like `encode`, with escapes for all characters beyond ASCII."""
    octets = encode(value)
    return octets if octets.isascii() else _NOT_ASCII.sub(_escape, octets.decode()).encode()


def dispatch_text(value: Any, indent: int | None = None, default: Callable[[Any], Any] | None = None) -> str:
    """Return a value as Dispatch 1.19 writes it: a space after each separator, ASCII only, any indentation.

    `default` converts values that JSON does not have. The text equals that of Python's json, with which 1.19 is
    written, because users' scripts and tests compare it. orjson has no such separators, indents by two spaces only,
    and writes some numbers differently (1e-7 instead of 1e-07).
    """
    return json.dumps(value, indent=indent, default=default)


def _encodable(value: Any) -> Any:
    """Return a copy that orjson can encode, with long integers as digits and halves of surrogate pairs as escapes."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if _is_long(value):
        return orjson.Fragment(str(int(value)))
    if isinstance(value, Mapping):
        return {_encodable_key(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    return value


def _encodable_key(key: Any) -> Any:
    return str(int(key)) if _is_long(key) else _encodable(key)


def _is_long(value: Any) -> bool:
    # Comparisons, because `in range(...)` counts up to an integer of a subclass.
    return isinstance(value, int) and not _LEAST <= value <= _MOST


def _escape(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
