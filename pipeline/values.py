"""Conversion of AMQP values to text for columns without a type of their own: JSON, as plain as possible.

null, booleans, numbers, strings and symbols are those of JSON. A uuid is its text, a timestamp its milliseconds,
binary {"$binary": base64}, a described value {"$descriptor": …, "$value": …}. A map is an object if all keys are text,
else {"$map": [[key, value], …]}. NaN and the infinities are texts. A decimal is given by its octets, as binary. Octets
that are no value, or are nested too deeply, are {"$amqp": their hex} in a field.
"""

import base64
import math
import uuid
from typing import Any

from sluice.router import json_codec
from sluice.router.amqp import codec
from sluice.router.amqp.errors import RemoteError

SEQUENCES = (0x76, "amqp:amqp-sequence:list")
VALUES = (0x77, "amqp:amqp-value:*")


class NotAmqpError(ValueError):
    """Raised for octets that are no AMQP value."""


def to_json_value(value: Any) -> Any:
    """Convert a value of the codec to values of JSON."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):  # symbols and chars, too
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return {"$binary": base64.b64encode(value).decode()}
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, list | tuple):
        return [to_json_value(each) for each in value]
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
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
    if isinstance(value, bytes):
        return base64.b64encode(value)
    if isinstance(value, float):
        return repr(value).encode()
    return _json(value)


def body_text(octets: bytes) -> bytes:
    """Return the JSON of a body from its first amqp-value or amqp-sequence section on. Raises NotAmqpError."""
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
    except RemoteError as error:
        raise NotAmqpError(str(error)) from error
    return _json(sequences)
