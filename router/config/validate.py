"""Sections to entities: names, defaults, types and limits of the schema, each problem with its line.

management.md 2.5, 2.6.
"""

import difflib
from collections.abc import Container, Iterator, Mapping, Sequence

from msgspec import Struct, field

from router.config.errors import Problems
from router.config.grammar import Item, Section
from router.config.jsontext import JsonValue
from router.config.schema import SCHEMA, Attribute, EntityType
from router.config.values import InvalidValue, written

_MAX_GUESSED = 40  # characters of a name that is compared with the known ones
MADE_BY_ROUTER = frozenset({"identity", "type"})  # attributes of every entity that files must not set


class Entity(Struct, frozen=True):
    """A section, or a request, after validation: converted values, defaults filled in, those without value left out.

    `line` is the line of the section, `lines` those of its attributes, `inner` those of the members of its maps, by
    attribute and keys; 0 and empty where there is no file. `refused` names the attributes whose values could not be
    used: they have their defaults.

    The accessors raise KeyError or TypeError where schema and program disagree, never because of a file.
    """

    type: EntityType
    line: int
    values: Mapping[str, JsonValue]
    lines: Mapping[str, int]
    refused: frozenset[str] = frozenset()
    inner: Mapping[tuple[str, ...], int] = field(default_factory=dict)

    def line_of(self, name: str, *keys: str) -> int:
        """Return the line of an attribute, or of the member of a map that keys lead to, or of what it is in."""
        if keys and (line := self.inner.get((name, *keys))) is not None:
            return line
        return self.line_of(name, *keys[:-1]) if keys else self.lines.get(name, self.line)

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
    """Return `section` as an entity, errors recorded; None for an invalid section, or a missing attribute."""
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
    """Return the type of a section; None if it cannot be configured. An unsupported one is an error, too."""
    entity_type = SCHEMA.section(section.name)
    if entity_type is None:
        known = [each.section for each in SCHEMA.types.values() if each.section is not None]
        guess = similar(section.name, known)
        problems.error(section.line, f"No such entity type '{SCHEMA.prefix}.{section.name}'{guess}")
        return None
    if entity_type.section is None and "CREATE" in entity_type.operations:
        problems.error(section.line, f"entity '{section.name}': Can only create via management CREATE")
        return None
    if entity_type.section is None:
        problems.error(section.line, f"entity '{section.name}' cannot be configured: it only describes or reports")
        return None
    if not entity_type.supported:
        problems.error(section.line, f"entity '{section.name}' is not supported yet")
    return entity_type


def fill(entity_type: EntityType, values: dict[str, JsonValue], given: Container[str]) -> Iterator[str]:
    """Add missing defaults to `values`; yield a text for each required attribute that is not `given`."""
    for name, attribute in entity_type.attributes.items():
        if name in values or name in MADE_BY_ROUTER:
            continue
        if attribute.default is not None:
            values[name] = attribute.default
        elif attribute.required and name not in given:
            yield f"Missing required attribute '{name}'"


def similar(name: str, known: Sequence[str]) -> str:
    """Return ` (did you mean 'port'?)` for a `name` that resembles a known one, else nothing."""
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
                text = f"'{name}' and '{attribute.name}' are the same attribute and differ: give one of them"
                problems.error(item.line, f"{entity_type.long_name}: {text}")
        else:
            yield name, item


def _differ(attribute: Attribute, first: Item, second: Item) -> bool:
    """Return whether two items mean different values; a bad value is reported elsewhere or differs."""
    try:
        return attribute.convert(first.value) != attribute.convert(second.value)
    except InvalidValue:
        return True


def _value(name: str, item: Item, entity_type: EntityType, problems: Problems) -> JsonValue:
    """Return the converted value of one attribute, or None: absent, without meaning, or refused with an error."""
    attribute = entity_type.attributes.get(name)
    if attribute is None or name in MADE_BY_ROUTER:
        guess = similar(name, [each.name for each in entity_type.settable])
        unknown = f"Unknown attribute '{name}' for '{entity_type.long_name}'{guess}"
        text = unknown if attribute is None else f"Attribute '{name}' is made by the router"
        problems.error(item.line, f"{entity_type.long_name}: {text}")
        return None
    try:
        value = attribute.convert(item.value)
    except InvalidValue as error:
        hint = f": {error.hint}" if error.hint else ""
        problems.error(item.line, f"{entity_type.long_name}: {error} (attribute '{name}'{hint})")
        return None
    refusal = attribute.unsupported(value)
    if refusal is not None:
        problems.error(item.line, f"{entity_type.long_name}: {refusal}")
        return None
    if value is None or (name == "name" and value == ""):  # an empty name is none
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
