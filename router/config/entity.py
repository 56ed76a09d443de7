"""Base class of entities of the typed configuration."""

from collections.abc import Mapping
from typing import ClassVar

from msgspec import field

from sluice.router.config.jsontext import JsonValue
from sluice.router.config.schema import SCHEMA, EntityType
from sluice.router.record import Record


class EntityConfig(Record, frozen=True, kw_only=True):
    """Base class of all entities. Immutable.

    `type` is the short name of the type. `line` is the line of the section; None: created by the router or a request.
    `file` is the section's file; None: the configuration file itself. `named` is True if the user has given the name.
    `values` has the attributes by management name: converted values of the user, and defaults. `generated` has the
    names of attributes whose values the router generated.
    """

    type: ClassVar[str]
    HIDDEN: ClassVar[frozenset[str]] = frozenset({"values"})
    UNCOMPARED: ClassVar[frozenset[str]] = frozenset({"line", "file"})

    name: str
    identity: str
    named: bool = False
    line: int | None = None
    file: str | None = None
    values: Mapping[str, JsonValue] = field(default_factory=dict)
    generated: frozenset[str] = frozenset()

    @property
    def entity_type(self) -> EntityType:
        """Type of the entity in the schema."""
        return SCHEMA.types[self.type]

    @property
    def given(self) -> dict[str, JsonValue]:
        """Attributes in `values`, except generated ones."""
        return {name: value for name, value in self.values.items() if name not in self.generated}

    @property
    def attributes(self) -> dict[str, JsonValue]:
        """All attributes with a value, in reporting order, as READ shows them."""
        every = {**self.values, "name": self.name, "identity": self.identity, "type": self.entity_type.long_name}
        return {name: every[name] for name in self.entity_type.attributes if every.get(name) is not None}
