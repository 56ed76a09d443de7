"""Entity types of configuration and management, read from `schema.json` beside this file.

`schema.json` is the single table for validation, defaults, management, tools and the reference page. It has the types
of Dispatch 1.19 in its order, and the additions of this router.

Keys of a type (all but `about` are optional): `about`: one sentence for users; `extends`: the base type; `section`: its
name in the configuration file; `singleton`, `deprecated`, `references`; `supported` (false: not supported in this
version, so creating one is refused); `addition` (true: not in Dispatch); `operations`: its own operations;
`addedOperations`: those of them that are not in Dispatch; `change`: when a change of an attribute takes effect (see
below); `columns` of a core query, as `name: AMQP type`, with `?` if null is possible; `attributes`: its own attributes
by name.

Keys of an attribute: `type` (a name, or the list of an enumeration's values), `default`, `shownDefault` (default in
GET-SCHEMA, if the real one depends on the machine and tools expect Dispatch's), `required`, `unique`, `create`,
`update`, `hidden`, `deprecated`, `graph` (flags as in Dispatch), `oldName` (accepted with a warning), `alias` (second
name, accepted without a warning), `min` and `max` (inclusive), `supported` (the only values implemented in this
version, besides the default; others are refused), `effect` (false: accepted without effect), `file` (true: allowed in
the file, whatever the flags are), `addition` (true: not in Dispatch), `namesFile` (true: its value is a path, as for
type `path`), `change` (overrides that of the type) and `about`.

A change of an attribute takes effect at once (`live`), for new connections (`reconnect`) or after a restart of the
router (`restart`).
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from sluice.router import json_codec
from sluice.router.config.jsontext import JsonValue
from sluice.router.config.values import CONVERSIONS, to_enum, to_integer, written

ChangeClass = Literal["live", "reconnect", "restart"]


class Attribute(Struct, frozen=True):
    """Attribute of an entity type. The docstring of this module explains the fields."""

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
        """Whether users may set the attribute, in a file or a request. All others only report state."""
        return self.create or self.update or self.required or self.file

    def convert(self, value: JsonValue) -> JsonValue:
        """Convert `value`, text or JSON, to the attribute's type. Raises InvalidValue."""
        if value is None:
            return None
        if self.type == "integer":
            return to_integer(value, self.minimum, self.maximum)
        if self.type == "enum":
            return to_enum(value, self.values)
        return CONVERSIONS[self.type](value)

    def unsupported(self, value: JsonValue) -> str | None:
        """Return the reason why this version does not support a converted `value`, or None.

        The value of an absent attribute is always supported.
        """
        if self.supported is None or value is None or value in self.supported or value == self.default:
            return None
        allowed = ", ".join(written(each) or "empty" for each in self.supported)
        return f"value '{written(value)}' of attribute '{self.name}' is not supported yet" + (
            f" (supported: {allowed})" if allowed else " (leave the attribute out)"
        )

    def dump(self) -> dict[str, JsonValue]:
        """Return the definition for GET-SCHEMA; entries that are false, zero or empty are left out."""
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
    """Column of a core query. `amqp_type` is a primitive type, or `list of` one."""

    name: str
    amqp_type: str
    nullable: bool


class EntityType(Struct, frozen=True, dict=True):
    """Entity type.

    `name` is the short name (`router.config.address`), `long_name` the name with the prefix, `dump_key` the name in
    GET-SCHEMA and in files (`address`). `section` equals `dump_key` if files may have such a section, else it is None.
    `bases` are the base types, nearest first. `operations` and `attributes` are in reporting order: own ones, then
    those of the bases. Therefore `attributes` ends with name, identity and type. `core_columns` is None for types that
    are not part of the routing core.
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
        """Names of the operations that Dispatch has."""
        return tuple(name for name in self.operations if name not in self.added_operations)

    @cached_property
    def operations(self) -> tuple[str, ...]:
        """Names of the operations without duplicates, own ones first."""
        every = (*self.own_operations, *(name for base in self.bases for name in base.own_operations))
        return tuple(dict.fromkeys(every))

    @cached_property
    def attributes(self) -> Mapping[str, Attribute]:
        """All attributes by name, in reporting order."""
        return {name: each for origin in (self, *self.bases) for name, each in origin.own_attributes.items()}

    @property
    def settable(self) -> Iterator[Attribute]:
        """Attributes that users may set, `name` last."""
        return (each for each in self.attributes.values() if each.settable and each.name not in ("identity", "type"))

    def is_a(self, other: "EntityType") -> bool:
        """Return whether this type is `other` or derived from it."""
        return self is other or other in self.bases

    def dump(self) -> dict[str, JsonValue]:
        """Return the definition for GET-SCHEMA; entries that are false or empty are left out."""
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
    """All entity types by short name, in the order of Dispatch. `prefix` has no final dot."""

    prefix: str
    types: Mapping[str, EntityType]

    def find(self, name: str) -> EntityType | None:
        """Return the type with a long name, given with or without the prefix, or None."""
        return self._by_long_name.get(name) or self._by_long_name.get(f"{self.prefix}.{name}")

    def section(self, name: str) -> EntityType | None:
        """Return the type for the section `name` of a file, or None. Types without sections are found, too."""
        return self._by_dump_key.get(name)

    @cached_property
    def listed(self) -> tuple[EntityType, ...]:
        """Types that Dispatch has. Its tools may expect exactly these in requests that do not name a type."""
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
    """Read the schema. As in Dispatch's lists, a type may precede its base type."""
    table = json_codec.decode(path.read_bytes())
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
