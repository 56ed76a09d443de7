"""Validation of sections: conversion to entities by the schema's names, defaults, types and limits.

Each error has a line. Specification: management.md 2.5, 2.6.
"""

import difflib
from collections.abc import Container, Iterator, Mapping, Sequence

from msgspec import Struct, field

from sluice.router.config.errors import Problems
from sluice.router.config.grammar import Item, Section
from sluice.router.config.jsontext import JsonValue
from sluice.router.config.old_names import attribute_advice, section_advice, value_advice
from sluice.router.config.schema import SCHEMA, Attribute, EntityType
from sluice.router.config.values import InvalidValue, written

_MAX_GUESSED = 40  # greatest length of a name for which similar known names are searched
MADE_BY_ROUTER = frozenset({"identity", "type"})  # attributes of every entity that files must not set


class Entity(Struct, frozen=True):
    """Validated section or request: values are converted, and defaults are filled in. Attributes may have no value.

    `line` is the line of the section, `lines` has those of its attributes, `inner` those of the members of its maps by
    attribute and keys; without a file they are 0 and empty. `refused` has the attributes with invalid values, which
    have their defaults instead.

    The accessors raise KeyError or TypeError if schema and program disagree, never because of a file's contents.
    """

    type: EntityType
    line: int
    values: Mapping[str, JsonValue]
    lines: Mapping[str, int]
    refused: frozenset[str] = frozenset()
    inner: Mapping[tuple[str, ...], int] = field(default_factory=dict)

    def line_of(self, name: str, *keys: str) -> int:
        """Return the line of an attribute, or of the member of a map at the path `keys`.

        If that line is unknown, return the line of the enclosing map, attribute or section.
        """
        if keys and (line := self.inner.get((name, *keys))) is not None:
            return line
        return self.line_of(name, *keys[:-1]) if keys else self.lines.get(name, self.line)

    def text(self, name: str) -> str:
        """Return the value of a text attribute that has one."""
        value = self.values[name]
        if not isinstance(value, str):
            raise TypeError(f"attribute {name} of {self.type.name} is not a string")
        return value

    def optional_text(self, name: str) -> str | None:
        """Return the value of a text attribute, or None."""
        return self.text(name) if name in self.values else None

    def number(self, name: str) -> int:
        """Return the value of an integer attribute that has one."""
        value = self.values[name]
        if not isinstance(value, int):
            raise TypeError(f"attribute {name} of {self.type.name} is not an integer")
        return value

    def optional_number(self, name: str) -> int | None:
        """Return the value of an integer attribute, or None."""
        return self.number(name) if name in self.values else None

    def flag(self, name: str) -> bool:
        """Return the value of a boolean attribute; false without value and default."""
        return bool(self.values.get(name, False))

    def map(self, name: str) -> Mapping[str, JsonValue]:
        """Return the value of a map attribute; empty without value."""
        value = self.values.get(name, {})
        if not isinstance(value, dict):
            raise TypeError(f"attribute {name} of {self.type.name} is not a map")
        return value


def validate(section: Section, problems: Problems) -> Entity | None:
    """Convert `section` to an entity and record errors. Return None if its type or a required attribute is invalid."""
    entity_type = _type(section, problems)
    if entity_type is None:
        return None
    values: dict[str, JsonValue] = {}
    lines: dict[str, int] = {}
    refused: set[str] = set()
    given: set[str] = set()
    inner: dict[tuple[str, ...], int] = {}
    for name, item in _renamed(section, entity_type, problems):
        before = len(problems.errors)
        value = _value(name, item, entity_type, problems)
        lines[name] = item.line
        inner |= {(name, *keys): line for keys, line in item.inner.items()}
        if len(problems.errors) > before:
            refused.add(name)
        elif value is not None:
            values[name] = value
        if item.value is not None:
            given.add(name)
    missing = list(fill(entity_type, values, given))
    if entity_type.references and "name" not in given:
        missing.append("Missing required attribute 'name'")
    for text in missing:
        problems.error(section.line, f"{entity_type.long_name}: {text}")
    required = {each.name for each in entity_type.settable if each.required}
    if missing or required & refused or not entity_type.supported:
        return None
    return Entity(entity_type, section.line, values, lines, frozenset(refused), inner)


def _type(section: Section, problems: Problems) -> EntityType | None:
    """Return the type of a section, or None if it cannot be configured. Record errors, also for unsupported types."""
    entity_type = SCHEMA.section(section.name)
    if entity_type is None:
        known = [each.section for each in SCHEMA.types.values() if each.section is not None]
        guess = section_advice(section.name) or similar(section.name, known)
        problems.error(section.line, f"No such entity type '{SCHEMA.prefix}.{section.name}'{guess}")
        return None
    if entity_type.section is None and "CREATE" in entity_type.operations:
        problems.error(section.line, f"entity '{section.name}': Can only create via management CREATE")
        return None
    if entity_type.section is None:
        text = f"entity '{section.name}' cannot be configured: configuration files have no section of this type"
        problems.error(section.line, text)
        return None
    if not entity_type.supported:
        problems.error(section.line, f"entity '{section.name}' is not supported yet")
    return entity_type


def fill(entity_type: EntityType, values: dict[str, JsonValue], given: Container[str]) -> Iterator[str]:
    """Add missing defaults to `values`. Yield an error text for each required attribute that is not in `given`."""
    for name, attribute in entity_type.attributes.items():
        if name in values or name in MADE_BY_ROUTER:
            continue
        if attribute.default is not None:
            values[name] = attribute.default
        elif attribute.required and name not in given:
            yield f"Missing required attribute '{name}'"


def similar(name: str, known: Sequence[str]) -> str:
    """Return ` (did you mean 'port'?)` for a `name` similar to a known one, else an empty text."""
    if len(name) > _MAX_GUESSED:
        return ""
    spelt = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), spelt, n=1, cutoff=0.75)
    return f" (did you mean '{spelt[close[0]]}'?)" if close else ""


def _renamed(section: Section, entity_type: EntityType, problems: Problems) -> Iterator[tuple[str, Item]]:
    """Yield the section's attributes under their present names."""
    old_names = {each.old_name: each for each in entity_type.attributes.values() if each.old_name}
    aliases = {each.alias: each for each in entity_type.attributes.values() if each.alias}
    for name, item in section.attributes.items():
        if (attribute := old_names.get(name)) is not None:
            if attribute.name in section.attributes:
                text = f"Both '{name}' and '{attribute.name}' cannot be specified for entity '{entity_type.dump_key}'"
                problems.error(item.line, f"{entity_type.long_name}: {text}")
                continue
            text = f"Attribute '{name}' of entity '{entity_type.dump_key}' has been deprecated."
            problems.warn("AGENT", item.line, f"{text} Use '{attribute.name}' instead")
            yield attribute.name, item
        elif (attribute := aliases.get(name)) is not None:
            other = section.attributes.get(attribute.name)
            if other is None:
                yield attribute.name, item
            elif _differ(attribute, item, other):
                text = (
                    f"'{name}' and '{attribute.name}' are two names of one attribute but have different values: "
                    "give only one of them"
                )
                problems.error(item.line, f"{entity_type.long_name}: {text}")
        else:
            yield name, item


def _differ(attribute: Attribute, first: Item, second: Item) -> bool:
    """Return whether two items have different values. An invalid value counts as different."""
    try:
        return attribute.convert(first.value) != attribute.convert(second.value)
    except InvalidValue:
        return True


def _value(name: str, item: Item, entity_type: EntityType, problems: Problems) -> JsonValue:
    """Convert the value of one attribute. Return None for an absent, ignored or invalid value; record errors."""
    attribute = entity_type.attributes.get(name)
    if attribute is None or name in MADE_BY_ROUTER:
        guess = attribute_advice(entity_type.name, name)
        guess = guess or similar(name, [each.name for each in entity_type.settable])
        unknown = f"Unknown attribute '{name}' for '{entity_type.long_name}'{guess}"
        text = unknown if attribute is None else f"Attribute '{name}' is made by the router"
        problems.error(item.line, f"{entity_type.long_name}: {text}")
        return None
    try:
        value = attribute.convert(item.value)
    except InvalidValue as error:
        hint = f": {error.hint}" if error.hint else ""
        advice = value_advice(entity_type.name, name, item.value)
        problems.error(item.line, f"{entity_type.long_name}: {error} (attribute '{name}'{hint}){advice}")
        return None
    refusal = attribute.unsupported(value)
    if refusal is not None:
        problems.error(item.line, f"{entity_type.long_name}: {refusal}")
        return None
    if value is None or (name == "name" and value == ""):  # an empty name counts as absent
        return None
    entity = entity_type.dump_key
    if not attribute.settable:
        problems.warn("AGENT", item.line, f"Attribute '{name}' of entity '{entity}' is set by the router")
        return attribute.default
    if attribute.supported is not None and value not in attribute.supported:
        text = f"Attribute '{name}' of entity '{entity}': '{written(value)}' is not supported yet"
        problems.warn("AGENT", item.line, text)
    if not attribute.effect and value != attribute.default:
        problems.warn("AGENT", item.line, f"Attribute '{name}' of entity '{entity}' has no effect in this version")
    return value
