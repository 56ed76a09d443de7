"""Conversion of AMQP values to text for columns without a type of their own: JSON, as plain as possible.

null, booleans, numbers, strings and symbols are those of JSON. A uuid is its text, a timestamp its milliseconds,
binary {"$binary": base64}, a decimal {"$decimal": text}, a described value {"$descriptor": …, "$value": …}. NaN and the
infinities are {"$float": "NaN"}, "Infinity" and "-Infinity". A map is an object if all keys are text that does not
begin with "$", else {"$map": [[key, value], …]}. Octets that are no value, or are nested too deeply, are
{"$amqp": their hex} in a field.
"""

import base64
import math
import uuid
from decimal import Decimal
from typing import Any

from sluice.router import json_codec
from sluice.router.amqp import codec
from sluice.router.amqp.errors import NestingError, RemoteError

SEQUENCES = (0x76, "amqp:amqp-sequence:list")
VALUES = (0x77, "amqp:amqp-value:*")


class NotAmqpError(ValueError):
    """Raised for octets that are no AMQP value."""


class TooDeepError(ValueError):
    """Raised for a value that is nested more deeply than the codec decodes."""


def to_json_value(value: Any) -> Any:
    """Convert a value of the codec to values of JSON."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):  # symbols and chars, too
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": _float_text(value)}
    if isinstance(value, codec.DecimalOctets):
        return {"$decimal": decimal_text(value)}
    if isinstance(value, bytes):
        return {"$binary": base64.b64encode(value).decode()}
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, list | tuple):
        return [to_json_value(each) for each in value]
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {str(key): to_json_value(each) for key, each in value.items()}
        return {"$map": [[to_json_value(key), to_json_value(each)] for key, each in value.items()]}
    if isinstance(value, codec.Described):
        return {"$descriptor": to_json_value(value.descriptor), "$value": to_json_value(value.value)}
    raise TypeError(f"a value of type {type(value).__name__} cannot be encoded")


def _json(value: Any) -> bytes:
    # UTF-8 cannot encode a lone surrogate. The codec accepts none from the wire.
    return json_codec.encode(to_json_value(value))


def field_text(octets: bytes) -> bytes:
    """Return the text of one value for a text column. Octets that are no value become their hex."""
    try:
        value = codec.decode_one(octets)
    except RemoteError:
        return json_codec.encode({"$amqp": octets.hex()})
    if isinstance(value, str):
        return str(value).encode("utf-8", "replace")
    if isinstance(value, codec.DecimalOctets):
        return decimal_text(value).encode()
    if isinstance(value, bytes):
        return base64.b64encode(value)
    if isinstance(value, float):
        return (repr(value) if math.isfinite(value) else _float_text(value)).encode()
    return _json(value)


def _float_text(value: float) -> str:
    """Return the text that Spark's casts to double accept."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


#: Bits of the exponent and its bias, by octets of a decimal in binary integer decimal encoding (IEEE 754-2008, 3.5.2).
DECIMALS = {4: (8, 101), 8: (10, 398), 16: (14, 6176)}
#: Digits that the coefficient may have; a larger one counts as 0.
DIGITS = {4: 7, 8: 16, 16: 34}


def decimal_text(octets: bytes) -> str:
    """Return the exact text of a decimal32, decimal64 or decimal128, for example "1.50" or "1E+6"."""
    size = len(octets)
    exponent_bits, bias = DECIMALS[size]
    bits = int.from_bytes(octets, "big")
    width = 8 * size
    negative = bits >> (width - 1)
    combination = bits >> (width - 6) & 0b11111
    if combination >= 0b11110:
        return "NaN" if combination == 0b11111 else "-Infinity" if negative else "Infinity"
    long = combination >= 0b11000  # the coefficient has three more bits, 100, before those that are stored
    stored = width - 1 - exponent_bits - (2 if long else 0)
    exponent = bits >> stored & ((1 << exponent_bits) - 1)
    coefficient = bits & ((1 << stored) - 1) | (0b100 << stored if long else 0)
    if coefficient >= 10 ** DIGITS[size]:
        coefficient = 0
    return str(Decimal((int(negative), tuple(map(int, str(coefficient))), exponent - bias)))


def body_text(octets: bytes) -> bytes:
    """Return the JSON of a body from its first amqp-value or amqp-sequence section on.

    Raises NotAmqpError, TooDeepError.
    """
    sequences: list[Any] = []
    at = 0
    try:
        while at < len(octets):
            section, at = codec.decode(octets, at)
            if section.descriptor in VALUES:
                return _json(section.value)
            if section.descriptor in SEQUENCES:
                if not isinstance(section.value, list):
                    raise NotAmqpError("an amqp-sequence is not a list")
                sequences.append(section.value)
    except NestingError as error:
        raise TooDeepError(str(error)) from error
    except RemoteError as error:
        raise NotAmqpError(str(error)) from error
    return _json(sequences)
