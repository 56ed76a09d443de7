"""The entity types of configuration and management, read from `schema.json` beside this file.

`schema.json` is the one table that validation, defaults, management, tools and the reference page use: the types of
Dispatch 1.19 in its order, with what this router adds. Keys of a type there (all but `about` may be absent):

`about` one sentence for users; `extends` the type it is derived from; `section` its name in the configuration file;
`singleton`, `deprecated`, `references`; `supported` (false: not supported in this version, so that creating one is
refused); `addition` (true: Dispatch does not have it); `operations` its own, `addedOperations` those of them that
Dispatch lacks; `change` when a change of an attribute takes effect (see below); `columns` of a core query, as
`name: AMQP type`, `?` for null; `attributes` its own, by name.

Keys of an attribute: `type` (a name, or the list of an enumeration's texts), `default`, `shownDefault` (what
GET-SCHEMA says instead, where the real one depends on the machine and tools know Dispatch's), `required`, `unique`,
`create`, `update`, `hidden`, `deprecated`, `graph` (flags as in Dispatch), `oldName` (accepted with a warning),
`alias` (a second name, accepted without), `min` and `max` (inclusive), `supported` (the only values built in this
version; any other is refused; the default needs no mention), `effect` (false: accepted, changes nothing), `file`
(true: may be given in the file, whatever the flags say), `addition` (true: this router's own), `namesFile` (true: its
value is a path, as always for type `path`), `change` (instead of
its type's) and `about`.

A change of an attribute takes effect at once (`live`), with new connections (`reconnect`) or with a restart of the
router (`restart`).
"""

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from router.config.jsontext import JsonValue
from router.config.values import CONVERSIONS, to_enum, to_integer, written

ChangeClass = Literal["live", "reconnect", "restart"]


class Attribute(Struct, frozen=True):
    """One attribute of an entity type; see the head of this module for the meaning of the fields."""

    name: str
    type: str
    values: tuple[str, ...]
    default: JsonValue
    shown_default: JsonValue
    required: bool
    unique: bool
    create: bool
    update: bool
    hidden: bool
    deprecated: bool
    graph: bool
    old_name: str | None
    alias: str | None
    minimum: int | None
    maximum: int | None
    supported: tuple[JsonValue, ...] | None
    effect: bool
    file: bool
    addition: bool
    names_file: bool
    change: ChangeClass
    about: str

    @property
    def settable(self) -> bool:
        """Return whether users give this attribute, in a file or a request; otherwise it only reports."""
        return self.create or self.update or self.required or self.file

    def convert(self, value: JsonValue) -> JsonValue:
        """Return `value`, text or JSON, as this attribute's type. Raises InvalidValue."""
        if value is None:
            return None
        if self.type == "integer":
            return to_integer(value, self.minimum, self.maximum)
        if self.type == "enum":
            return to_enum(value, self.values)
        return CONVERSIONS[self.type](value)

    def unsupported(self, value: JsonValue) -> str | None:
        """Return why a converted `value` cannot be used in this version, or None.

        The value of an absent attribute is never refused.
        """
        if self.supported is None or value is None or value in self.supported or value == self.default:
            return None
        allowed = ", ".join(written(each) or "empty" for each in self.supported)
        return f"value '{written(value)}' of attribute '{self.name}' is not supported yet" + (
            f" (supported: {allowed})" if allowed else " (leave the attribute out)"
        )

    def dump(self) -> dict[str, JsonValue]:
        """Return the definition that GET-SCHEMA shows: what is false, zero or empty is left out."""
        entries: dict[str, JsonValue] = {
            "type": list(self.values) if self.type == "enum" else self.type,
            "default": self.default if self.shown_default is None else self.shown_default,
            "required": self.required,
            "unique": self.unique,
            "deprecated": self.deprecated,
            "description": self.about,
            "graph": self.graph,
        }
        return {key: value for key, value in entries.items() if value}


class Column(Struct, frozen=True):
    """A column of a core query: `amqp_type` is a primitive type or `list of` one."""

    name: str
    amqp_type: str
    nullable: bool


class EntityType(Struct, frozen=True, dict=True):
    """One type of entity.

    `name` is the short name (`router.config.address`), `long_name` that with the prefix, `dump_key` the name in
    GET-SCHEMA and in files (`address`), `section` the same where files may have such a section, else None. `bases`
    are the types it is derived from, nearest first. `operations` and `attributes` come in reporting order: its own,
    then those of the bases; `attributes` therefore ends with name, identity and type. `core_columns` is None for
    types that the management store answers for.
    """

    name: str
    long_name: str
    dump_key: str
    section: str | None
    bases: tuple["EntityType", ...]
    own_operations: tuple[str, ...]
    added_operations: tuple[str, ...]
    own_attributes: Mapping[str, Attribute]
    core_columns: tuple[Column, ...] | None
    singleton: bool
    deprecated: bool
    references: bool
    supported: bool
    addition: bool
    about: str

    @property
    def listed_operations(self) -> tuple[str, ...]:
        """Return those that Dispatch has."""
        return tuple(name for name in self.operations if name not in self.added_operations)

    @cached_property
    def operations(self) -> tuple[str, ...]:
        """Return the names of the operations, own ones first, each once."""
        every = (*self.own_operations, *(name for base in self.bases for name in base.own_operations))
        return tuple(dict.fromkeys(every))

    @cached_property
    def attributes(self) -> Mapping[str, Attribute]:
        """Return all attributes by name, in reporting order."""
        return {name: each for origin in (self, *self.bases) for name, each in origin.own_attributes.items()}

    @property
    def settable(self) -> Iterator[Attribute]:
        """Yield the attributes that users may give, `name` last."""
        return (each for each in self.attributes.values() if each.settable and each.name not in ("identity", "type"))

    def is_a(self, other: "EntityType") -> bool:
        """Return whether this is `other` or derived from it."""
        return self is other or other in self.bases

    def dump(self) -> dict[str, JsonValue]:
        """Return the definition that GET-SCHEMA shows: what is false or empty is left out."""
        attributes: JsonValue = {name: each.dump() for name, each in self.attributes.items() if name != "type"}
        entries: dict[str, JsonValue] = {
            "attributes": attributes,
            "operations": list(self.listed_operations),
            "description": self.about,
            "fullyQualifiedType": self.long_name,
            "deprecated": self.deprecated,
            "singleton": self.singleton,
        }
        return {key: value for key, value in entries.items() if value}

    def __repr__(self) -> str:
        return f"EntityType({self.name})"

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class Schema(Struct, frozen=True, dict=True):
    """All entity types by short name, in the order of Dispatch. `prefix` has no dot at its end."""

    prefix: str
    types: Mapping[str, EntityType]

    def find(self, name: str) -> EntityType | None:
        """Return the type of a long name, or of a name that becomes one when the prefix is added; else None."""
        return self._by_long_name.get(name) or self._by_long_name.get(f"{self.prefix}.{name}")

    def section(self, name: str) -> EntityType | None:
        """Return the type for a section `name` of a file, also for types without sections."""
        return self._by_dump_key.get(name)

    @cached_property
    def listed(self) -> tuple[EntityType, ...]:
        """The types that Dispatch has: tools written for it may expect exactly these where nobody asks for one."""
        return tuple(each for each in self.types.values() if not each.addition)

    def derived(self, base: EntityType) -> Iterator[EntityType]:
        """Yield `base` and the listed types derived from it."""
        return (each for each in self.types.values() if each is base or (each.is_a(base) and not each.addition))

    def dump(self) -> dict[str, JsonValue]:
        """Return the body of GET-SCHEMA."""
        return {"prefix": self.prefix, "entityTypes": {each.dump_key: each.dump() for each in self.listed}}

    @cached_property
    def _by_long_name(self) -> Mapping[str, EntityType]:
        return {each.long_name: each for each in self.types.values()}

    @cached_property
    def _by_dump_key(self) -> Mapping[str, EntityType]:
        return {each.dump_key: each for each in self.types.values() if "." not in each.dump_key}


def _attribute(name: str, entry: Mapping[str, Any], change: ChangeClass) -> Attribute:
    enumeration = isinstance(entry["type"], list)
    supported = entry.get("supported")
    return Attribute(
        name=name,
        type="enum" if enumeration else entry["type"],
        values=tuple(entry["type"]) if enumeration else (),
        default=entry.get("default"),
        shown_default=entry.get("shownDefault"),
        required=entry.get("required", False),
        unique=entry.get("unique", False),
        create=entry.get("create", False),
        update=entry.get("update", False),
        hidden=entry.get("hidden", False),
        deprecated=entry.get("deprecated", False),
        graph=entry.get("graph", False),
        old_name=entry.get("oldName"),
        alias=entry.get("alias"),
        minimum=entry.get("min"),
        maximum=entry.get("max"),
        supported=None if supported is None else tuple(supported),
        effect=entry.get("effect", True),
        file=entry.get("file", False),
        addition=entry.get("addition", False),
        names_file=entry.get("namesFile", entry["type"] == "path"),
        change=entry.get("change", change),
        about=entry["about"],
    )


def _column(text: str) -> Column:
    name, _, amqp_type = text.partition(": ")
    return Column(name, amqp_type.removesuffix("?"), amqp_type.endswith("?"))


def _entity_type(name: str, entry: Mapping[str, Any], prefix: str, types: Mapping[str, EntityType]) -> EntityType:
    parent = entry.get("extends")
    columns = entry.get("columns")
    change = entry.get("change", "live")
    return EntityType(
        name=name,
        long_name=f"{prefix}.{name}",
        dump_key=name.removeprefix("router.config."),
        section=entry.get("section"),
        bases=() if parent is None else (types[parent], *types[parent].bases),
        own_operations=tuple(entry.get("operations", ())),
        added_operations=tuple(entry.get("addedOperations", ())),
        own_attributes={key: _attribute(key, value, change) for key, value in entry["attributes"].items()},
        core_columns=None if columns is None else tuple(_column(text) for text in columns),
        singleton=entry.get("singleton", False),
        deprecated=entry.get("deprecated", False),
        references=entry.get("references", False),
        supported=entry.get("supported", True),
        addition=entry.get("addition", False),
        about=entry["about"],
    )


def _read(path: Path) -> Schema:
    """Read the schema; a type may come before the one that it extends, as in the lists of Dispatch."""
    table = json.loads(path.read_bytes())
    entries = table["types"]
    types: dict[str, EntityType] = {}

    def add(name: str) -> None:
        if name not in types:
            if (parent := entries[name].get("extends")) is not None:
                add(parent)
            types[name] = _entity_type(name, entries[name], table["prefix"], types)

    for name in entries:
        add(name)
    return Schema(table["prefix"], {name: types[name] for name in entries})


SCHEMA = _read(Path(__file__).with_name("schema.json"))
