"""Conversion of values from files and management requests to the types of the schema (management.md 2.6)."""

import re
from collections.abc import Callable, Sequence

from sluice.router import json_codec
from sluice.router.config.jsontext import JsonValue

_TRUE = frozenset({"yes", "true", "on"})
_FALSE = frozenset({"no", "false", "off"})
_INTEGER = re.compile(r"\s*[+-]?[0-9]+(?:_[0-9]+)*\s*")
_INDEX = re.compile(r"\s*\+?[0-9]{1,3}\s*")
_WHOLE_NUMBER = "a whole number is needed, written in digits"  # hint
_MAX_DIGITS = 64  # characters of an integer given as text; all numbers in use are shorter
_INT64 = range(-(2**63), 2**63)  # integers that AMQP can represent


class InvalidValue(ValueError):
    """Error for an invalid value, with Dispatch's text, and a hint for users of files."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


def to_text(value: JsonValue) -> str:
    """Convert a string, a number or a boolean to text."""
    if isinstance(value, dict | list):
        raise InvalidValue(f"Invalid text value: {json_codec.dispatch_text(value)}")
    return str(value)


def to_integer(value: JsonValue, low: int | None, high: int | None) -> int:
    """Convert a value to an integer between `low` and `high` (None: no limit)."""
    digits = isinstance(value, str) and len(value) <= _MAX_DIGITS and _INTEGER.fullmatch(value)
    if not digits and not isinstance(value, int | float):
        raise InvalidValue(f"invalid literal for int() with base 10: '{_given(value)}'", _WHOLE_NUMBER)
    number = int(value)  # type: ignore[arg-type]  # text of digits, or a number
    if (low is not None and number < low) or (high is not None and number > high):
        limits = f"between {low} and {high}" if high is not None else f"{low} or more"
        raise InvalidValue(f"Value {number} must be {limits}")
    return number


def to_boolean(value: JsonValue) -> bool:
    """Convert a value to a boolean. Numbers, maps and lists are true unless they are zero or empty."""
    if not isinstance(value, str):
        return bool(value)
    word = value.lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise InvalidValue(f"Invalid Boolean value ''{value}''", "write yes or no")


def to_enum(value: JsonValue, values: Sequence[str]) -> str:
    """Convert a value, or its index from 0, to one of `values`."""
    if isinstance(value, str) and value in values:
        return value
    index = None
    if isinstance(value, int) and not isinstance(value, bool):
        index = value
    elif isinstance(value, str) and _INDEX.fullmatch(value):
        index = int(value)
    if index is not None and 0 <= index < len(values):
        return values[index]
    raise InvalidValue(f"Invalid value for enum{list(values)}: '{_given(value)}'")


def to_map(value: JsonValue) -> JsonValue:
    """Check that a value is a map, and return it unchanged."""
    if not isinstance(value, dict):
        raise InvalidValue("Value must be a map")
    _check_integers(value)
    return value


def to_list(value: JsonValue) -> JsonValue:
    """Check that a value is a list, and return it unchanged."""
    if not isinstance(value, list):
        raise InvalidValue("Value must be a list")
    _check_integers(value)
    return value


def to_properties(value: JsonValue) -> JsonValue:
    """Check that a value is a map of properties, and return it unchanged."""
    if not isinstance(value, dict):
        raise InvalidValue("Properties must be a map")
    if not all(key.isascii() for key in value):
        raise InvalidValue("Property keys must be ASCII encoded")
    _check_integers(value)
    return value


# Conversions by the name of the type in schema.json. Those to integers and enumerations need further arguments.
CONVERSIONS: dict[str, Callable[[JsonValue], JsonValue]] = {
    "string": to_text,
    "path": to_text,
    "entityId": to_text,
    "boolean": to_boolean,
    "map": to_map,
    "list": to_list,
    "properties": to_properties,
}


def written(value: JsonValue) -> str:
    """Return `value` in the line syntax of configuration files."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json_codec.dispatch_text(value)


def _given(value: JsonValue) -> str:
    return value if isinstance(value, str) else json_codec.dispatch_text(value)


def _check_integers(value: JsonValue) -> None:
    """Raise InvalidValue for integers, at any depth, that do not fit into 64 bits."""
    if isinstance(value, dict):
        for item in value.values():
            _check_integers(item)
    elif isinstance(value, list):
        for item in value:
            _check_integers(item)
    elif isinstance(value, int) and value not in _INT64:
        raise InvalidValue(f"Integer {value} does not fit 64 bits")
