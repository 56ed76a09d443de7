"""Sections to entities: names, defaults, types and limits of the schema, each problem with its line."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from router.config.errors import Problems
from router.config.grammar import Item, Section
from router.config.jsontext import JsonValue
from router.config.schema import SCHEMA, Attribute, EntityType

_MADE_BY_ROUTER = frozenset({"identity", "type"})  # attributes of every entity that no file may give


@dataclass(frozen=True, slots=True)
class Entity:
    """A section after validation: converted values, defaults filled in, attributes without value left out.

    The accessors raise KeyError or TypeError where schema and program disagree, never because of a file.
    """

    type: EntityType
    line: int
    values: Mapping[str, JsonValue]
    lines: Mapping[str, int]

    def line_of(self, name: str) -> int:
        """Return the line of an attribute, or that of the section where the file does not give it."""
        return self.lines.get(name, self.line)

    def text(self, name: str) -> str:
        """Return a text that has a value."""
        value = self.values[name]
        if not isinstance(value, str):
            raise TypeError(f"attribute {name} of {self.type.name} is not a text")
        return value

    def optional_text(self, name: str) -> str | None:
        """Return a text or None."""
        return self.text(name) if name in self.values else None

    def number(self, name: str) -> int:
        """Return an integer that has a value."""
        value = self.values[name]
        if not isinstance(value, int):
            raise TypeError(f"attribute {name} of {self.type.name} is not an integer")
        return value

    def optional_number(self, name: str) -> int | None:
        """Return an integer or None."""
        return self.number(name) if name in self.values else None

    def flag(self, name: str) -> bool:
        """Return a boolean; one without value or default is false."""
        return bool(self.values.get(name, False))

    def map(self, name: str) -> Mapping[str, JsonValue]:
        """Return a map; empty without value."""
        value = self.values.get(name, {})
        if not isinstance(value, dict):
            raise TypeError(f"attribute {name} of {self.type.name} is not a map")
        return value


def validate(section: Section, problems: Problems) -> Entity | None:
    """Return `section` as an entity; None, with the errors recorded, where it cannot be one."""
    entity_type = SCHEMA.entities.get(section.name)
    if entity_type is None:
        if section.name in SCHEMA.unsupported:
            problems.error(section.line, f"entity '{section.name}' is not supported yet")
        else:
            problems.error(section.line, f"No such entity type '{SCHEMA.prefix}{section.name}'")
        return None
    before = len(problems.errors)
    items = dict(_renamed(section, entity_type, problems))
    values: dict[str, JsonValue] = {}
    for name, item in items.items():
        value = _value(name, item, entity_type, problems)
        if value is not None:
            values[name] = value
    for name, attribute in entity_type.attributes.items():
        if name in values:
            continue
        if attribute.default is not None:
            values[name] = attribute.default
        elif attribute.required and (name not in items or items[name].value is None):
            problems.error(section.line, f"{entity_type.long_name}: Missing required attribute '{name}'")
    if len(problems.errors) > before:
        return None
    return Entity(entity_type, section.line, values, {name: item.line for name, item in items.items()})


def _renamed(section: Section, entity_type: EntityType, problems: Problems) -> Iterator[tuple[str, Item]]:
    """Yield the section's attributes under their present names."""
    old_names = {each.old_name: each for each in entity_type.attributes.values() if each.old_name}
    aliases = {each.alias: each for each in entity_type.attributes.values() if each.alias}
    for name, item in section.attributes.items():
        if (attribute := old_names.get(name)) is not None:
            if attribute.name in section.attributes:
                text = f"Both '{name}' and '{attribute.name}' cannot be specified for entity '{entity_type.name}'"
                problems.error(item.line, f"{entity_type.long_name}: {text}")
                continue
            text = f"Attribute '{name}' of entity '{entity_type.name}' has been deprecated."
            problems.warn("AGENT", item.line, f"{text} Use '{attribute.name}' instead")
            yield attribute.name, item
        elif (attribute := aliases.get(name)) is not None:
            other = section.attributes.get(attribute.name)
            if other is None:
                yield attribute.name, item
            elif _differ(attribute, item, other):
                text = f"'{name}' and '{attribute.name}' are the same attribute and differ: give one of them"
                problems.error(item.line, f"{entity_type.long_name}: {text}")
        else:
            yield name, item


def _differ(attribute: Attribute, first: Item, second: Item) -> bool:
    """Return whether two items mean different values; a bad value is reported elsewhere or differs."""
    try:
        return attribute.convert(first.value) != attribute.convert(second.value)
    except ValueError:
        return True


def _value(name: str, item: Item, entity_type: EntityType, problems: Problems) -> JsonValue:
    """Return the converted value of one attribute, or None: absent, without meaning, or refused with an error."""
    attribute = entity_type.attributes.get(name)
    if attribute is None:
        reason = "is made by the router" if name in _MADE_BY_ROUTER else None
        text = f"Attribute '{name}' {reason}" if reason else f"Unknown attribute '{name}' for '{entity_type.long_name}'"
        problems.error(item.line, f"{entity_type.long_name}: {text}")
        return None
    try:
        value = attribute.convert(item.value)
    except ValueError as error:
        problems.error(item.line, f"{entity_type.long_name}: {error}")
        return None
    refusal = attribute.unsupported(value)
    if refusal is not None:
        problems.error(item.line, f"{entity_type.long_name}: {refusal}")
        return None
    if value is None:
        return None
    if not (attribute.create or attribute.update or attribute.required):
        problems.warn("AGENT", item.line, f"Attribute '{name}' of entity '{entity_type.name}' is set by the router")
        return attribute.default
    if not attribute.effect and value != attribute.default:
        problems.warn("AGENT", item.line, f"Attribute '{name}' of entity '{entity_type.name}' has no effect")
    return value
