"""The entity types of the configuration, read from `schema.json` beside this file.

`schema.json` is the one table that validation, management and the documentation use. Keys of an attribute there:
`type` (a name, or the list of an enumeration's texts), `default`, `required`, `oldName` (deprecated, accepted with a
warning), `alias` (a second name, accepted without), `min` and `max` (inclusive), `supported` (the only values built in
this version; any other is refused), `effect` (false: accepted, changes nothing), `create`, `update`, `graph` (flags of
the management schema) and `about` (one sentence for users).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from router.config.jsontext import JsonValue

_TRUE = frozenset({"yes", "true", "on"})
_FALSE = frozenset({"no", "false", "off"})
_INTEGER = re.compile(r"\s*[+-]?[0-9]+(?:_[0-9]+)*\s*")
_MAX_DIGITS = 64  # characters of an integer given as text: beyond any number the router uses
_INT64 = range(-(2**63), 2**63)  # integers that AMQP can carry in openProperties


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of an entity type; see the head of this module for the meaning of the fields."""

    name: str
    type: str
    values: tuple[str, ...]
    default: JsonValue
    required: bool
    old_name: str | None
    alias: str | None
    minimum: int | None
    maximum: int | None
    supported: tuple[JsonValue, ...] | None
    effect: bool
    create: bool
    update: bool
    graph: bool
    about: str

    def convert(self, value: JsonValue) -> JsonValue:
        """Return `value`, text or JSON, as this attribute's type. Raises ValueError with a text for users."""
        if value is None:
            return None
        match self.type:
            case "string" | "path":
                return self._text(value)
            case "integer":
                return self._integer(value)
            case "boolean":
                return self._boolean(value)
            case "enum":
                return self._enum(value)
            case "properties":
                return self._properties(value)
        raise TypeError(f"schema.json: unknown type {self.type!r} of attribute {self.name!r}")

    def unsupported(self, value: JsonValue) -> str | None:
        """Return why a converted `value` cannot be used in this version, or None."""
        if self.supported is None or value is None or value in self.supported:
            return None
        text = written(value)
        allowed = ", ".join(written(each) for each in self.supported)
        return f"value '{text}' of attribute '{self.name}' is not supported yet" + (
            f" (supported: {allowed})" if allowed else " (leave the attribute out)"
        )

    def _text(self, value: JsonValue) -> str:
        if isinstance(value, dict | list):
            raise ValueError(f"Invalid text value: {json.dumps(value)} (attribute '{self.name}')")
        return str(value)

    def _integer(self, value: JsonValue) -> int:
        digits = isinstance(value, str) and len(value) <= _MAX_DIGITS and _INTEGER.fullmatch(value)
        if not digits and not isinstance(value, int | float):
            given = value if isinstance(value, str) else json.dumps(value)
            raise ValueError(f"invalid literal for int() with base 10: '{given}' (attribute '{self.name}')")
        number = int(value)  # type: ignore[arg-type]  # text of digits, or a number
        low, high = self.minimum, self.maximum
        if (low is not None and number < low) or (high is not None and number > high):
            raise ValueError(f"Value {number} of attribute '{self.name}' must be between {low} and {high}")
        return number

    def _boolean(self, value: JsonValue) -> bool:
        if not isinstance(value, str):
            return bool(value)
        word = value.lower()
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
        raise ValueError(f"Invalid Boolean value ''{value}'' (attribute '{self.name}': write yes or no)")

    def _enum(self, value: JsonValue) -> str:
        if isinstance(value, str) and value in self.values:
            return value
        index = None
        if isinstance(value, int) and not isinstance(value, bool):
            index = value
        elif isinstance(value, str) and re.fullmatch("[0-9]{1,3}", value):
            index = int(value)
        if index is not None and 0 <= index < len(self.values):
            return self.values[index]
        given = value if isinstance(value, str) else json.dumps(value)
        raise ValueError(f"Invalid value for enum{list(self.values)}: '{given}' (attribute '{self.name}')")

    def _properties(self, value: JsonValue) -> JsonValue:
        if not isinstance(value, dict):
            raise ValueError(f"Properties must be a map (attribute '{self.name}')")
        if not all(key.isascii() for key in value):
            raise ValueError(f"Property keys must be ASCII encoded (attribute '{self.name}')")
        _check_integers(value, self.name)
        return value


@dataclass(frozen=True, slots=True)
class EntityType:
    """One type of entity: `name` as in the file, `long_name` with prefix as in management."""

    name: str
    long_name: str
    singleton: bool
    about: str
    attributes: Mapping[str, Attribute]


@dataclass(frozen=True, slots=True)
class Schema:
    """All entity types by name, and the names of those that 1.19 has but this version does not."""

    prefix: str
    entities: Mapping[str, EntityType]
    unsupported: frozenset[str]


def written(value: JsonValue) -> str:
    """Return `value` as one would write it in the line syntax."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value)


def _check_integers(value: JsonValue, name: str) -> None:
    """Refuse integers, at any depth, that do not fit the widest AMQP integer."""
    if isinstance(value, dict):
        for item in value.values():
            _check_integers(item, name)
    elif isinstance(value, list):
        for item in value:
            _check_integers(item, name)
    elif isinstance(value, int) and value not in _INT64:
        raise ValueError(f"Integer {value} does not fit 64 bits (attribute '{name}')")


def _attribute(name: str, entry: Mapping[str, Any]) -> Attribute:
    enumeration = isinstance(entry["type"], list)
    supported = entry.get("supported")
    return Attribute(
        name=name,
        type="enum" if enumeration else entry["type"],
        values=tuple(entry["type"]) if enumeration else (),
        default=entry.get("default"),
        required=entry.get("required", False),
        old_name=entry.get("oldName"),
        alias=entry.get("alias"),
        minimum=entry.get("min"),
        maximum=entry.get("max"),
        supported=None if supported is None else tuple(supported),
        effect=entry.get("effect", True),
        create=entry.get("create", True),
        update=entry.get("update", False),
        graph=entry.get("graph", False),
        about=entry["about"],
    )


# What every entity has besides its own attributes. `identity` and `type` are made by the router.
_NAME = _attribute("name", {"type": "string", "about": "Unique name of the entity; made from its values when absent."})


def _read(path: Path) -> Schema:
    table = json.loads(path.read_bytes())
    prefix = table["prefix"]
    entities = {}
    for name, entry in table["entities"].items():
        attributes = {key: _attribute(key, value) for key, value in entry["attributes"].items()}
        attributes["name"] = _NAME
        entities[name] = EntityType(name, prefix + entry["longName"], entry["singleton"], entry["about"], attributes)
    return Schema(prefix, entities, frozenset(table["unsupported"]))


SCHEMA = _read(Path(__file__).with_name("schema.json"))
