"""Writing of a configuration as a file that starts the same router.

Values that the router makes at each start (its id) are comments. Passwords are written only if they are references
such as `file:PATH`. The vhosts of `policyDir` are written into the file itself, because management may have changed
them.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from sluice.router import json_codec
from sluice.router.config.build import LOG_DEFAULTS
from sluice.router.config.entities import Configuration, ExchangeConfig, LogConfig
from sluice.router.config.entity import EntityConfig
from sluice.router.config.grammar import HASH_VALUES
from sluice.router.config.jsontext import JsonValue
from sluice.router.config.password import is_password_reference
from sluice.router.config.schema import Attribute
from sluice.router.config.values import written
from sluice.router.config.variables import ATTRIBUTE as VARIABLES
from sluice.router.config.variables import escape
from sluice.router.log import DEFAULT

_MAPS: Final = ("map", "properties")
_INDENT: Final = "    "
_SINGLETONS: Final = ("router", "policy")


class RenderError(ValueError):
    """Raised for a configuration that the line syntax cannot express; JSON syntax can."""


def render(configuration: Configuration, *, json: bool = False) -> str:
    """Return the text of a file with this configuration, in the line syntax or in JSON syntax. Raises RenderError."""
    made = [_Written(entity, configuration) for entity in configuration.entities()]
    sections = [each for each in made if each.needed]
    title = f"# Configuration of router '{_printable(configuration.router.id)}', written from the running router."
    return "".join(f"{line}\n" for line in (_json(title, sections) if json else _lines(title, sections)))


class _Written:
    """Section to write: its attributes that differ from their defaults, and comments."""

    def __init__(self, entity: EntityConfig, configuration: Configuration) -> None:
        self.entity = entity
        self.name = entity.entity_type.section or entity.entity_type.dump_key
        self.comments: list[str] = []
        self.values: dict[str, JsonValue] = {}
        self._escapes = bool(configuration.router.values.get(VARIABLES))
        name = _name(entity, configuration)
        if name is not None:
            self.values["name"] = self._escaped(name)
        for attribute in entity.entity_type.settable:
            value = entity.values.get(attribute.name)
            if attribute.name != "name" and value is not None and value != _default(entity, attribute):
                self._add(attribute, self._escaped(value))

    def _escaped(self, value: JsonValue) -> JsonValue:
        """Return a value as the file must have it, so that no part of it is replaced by a variable."""
        return escape(value) if self._escapes else value

    @property
    def needed(self) -> bool:
        """Whether the section says anything: a router has one of some types in any case."""
        if isinstance(self.entity, LogConfig):
            return len(self.values) > 1
        return self.entity.type == "router" or self.entity.type not in _SINGLETONS or bool(self.values)

    def _add(self, attribute: Attribute, value: JsonValue) -> None:
        """Add an attribute, or a comment in its place."""
        name = attribute.name
        if name in self.entity.generated:
            self.comments.append(f"{name}: {_printable(str(value))} was made by the router at its start")
        elif name == "policyDir":
            self.comments.append(f"policyDir: the vhosts of {_printable(str(value))} are in sections below")
        elif attribute.hidden and not is_password_reference(str(value)):
            self.comments.append(f"{name}: not shown; write a reference to it, such as file:PATH or env:NAME")
        else:
            self.values[name] = value


def _name(entity: EntityConfig, configuration: Configuration) -> str | None:
    """Return the name to write; None if the router will make the same one."""
    if entity.named:
        return entity.name
    if isinstance(entity, ExchangeConfig):  # bindings refer to its name
        place = configuration.exchanges.index(entity)
        return None if entity.name == f"exchange/{place}" else entity.name
    return None


def _default(entity: EntityConfig, attribute: Attribute) -> JsonValue:
    """Return the value of an attribute that is not in a file."""
    if isinstance(entity, LogConfig) and entity.module == DEFAULT:
        return LOG_DEFAULTS.get(attribute.name, attribute.default)
    return attribute.default


def _origin(entity: EntityConfig) -> str:
    """Return a comment on an entity that no file has; empty for others."""
    made = entity.line is None and entity.type not in _SINGLETONS and not isinstance(entity, LogConfig)
    return "made by management" if made else ""


def _lines(title: str, sections: list[_Written]) -> Iterator[str]:
    """Yield the lines of a file in the line syntax."""
    yield title
    for section in sections:
        yield ""
        if origin := _origin(section.entity):
            yield f"# {origin}"
        yield f"{section.name} {{"
        for comment in section.comments:
            yield f"{_INDENT}# {comment}"
        for name, value in section.values.items():
            yield from _attribute(section, name, value)
        yield "}"


def _attribute(section: _Written, name: str, value: JsonValue) -> Iterator[str]:
    if section.entity.entity_type.attributes[name].type in _MAPS and isinstance(value, Mapping):
        if not value:
            return
        first, *inner, last = json_codec.dispatch_text(value, len(_INDENT)).split("\n")
        yield f"{_INDENT}{name}: {first}"
        yield from (f"{_INDENT}{line}" for line in (*inner, last))
        return
    text = written(value)
    if not text:
        raise RenderError(f"{section.name}: the empty value of '{name}' can only be written in JSON syntax")
    yield f"{_INDENT}{name}: {_escaped(text, pattern=name in HASH_VALUES)}"


def _escaped(text: str, *, pattern: bool) -> str:
    """Return a value as the line syntax wants it. In a pattern, `#` is no comment, and a blank ends the value."""
    if text.isprintable():
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    else:
        escaped = json_codec.dispatch_text(text)[1:-1]
    escaped = escaped.replace(" ", "\\u0020") if pattern else escaped.replace("#", "\\u0023")
    if escaped.startswith((" ", "{")):
        escaped = f"\\u{ord(escaped[0]):04x}{escaped[1:]}"
    return f"{escaped[:-1]}\\u0020" if escaped.endswith(" ") else escaped


def _json(title: str, sections: list[_Written]) -> Iterator[str]:
    """Yield the lines of a file in JSON syntax."""
    yield title
    yield "["
    for number, section in enumerate(sections, 1):
        for comment in filter(None, (_origin(section.entity), *section.comments)):
            yield f"# {comment}"
        comma = "," if number < len(sections) else ""
        yield f"{json_codec.dispatch_text([section.name, section.values])}{comma}"
    yield "]"


def _printable(text: str) -> str:
    """Return a text for a comment, which ends with its line."""
    return text if text.isprintable() else json_codec.dispatch_text(text)
