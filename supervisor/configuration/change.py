"""Change of the configuration, as the subsystems see it.

First every subsystem gathers what it needs from file systems and name servers (`gather`). That may take a while, and
other changes may overtake this one. Then, without a pause, all subsystems `prepare` in order. If one refuses, all
`discard`, and nothing has changed; otherwise all `commit` in order. An internal error during the commits is undone by
the reverse change.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct, field

from sluice.router.addressing.settings import AddressSetting, AddressSettings
from sluice.router.config.diff import Change
from sluice.router.config.entities import Configuration
from sluice.router.config.entity import EntityConfig

_Entity = TypeVar("_Entity", bound=EntityConfig)


class AddressPlan(Struct, frozen=True):
    """Address settings of a configuration, prepared in a thread.

    entries: settings by canonical pattern. settings: the same settings as a search structure. changed: patterns that
    differ from before.
    """

    entries: Mapping[str, AddressSetting]
    settings: AddressSettings
    changed: Sequence[str]


class ConfigurationChange(Struct, frozen=True, eq=False):
    """Change from one configuration to another.

    whole: any entity may differ, as in a reload, and `entities` is empty. Otherwise only the entities in `entities`
    differ, in an order in which they can be changed; a single change need not examine thousands of entities. undo: the
    change is the reverse change after an internal error, and subsystems retry later what fails.
    """

    old: Configuration
    new: Configuration
    entities: Sequence[Change] = ()
    whole: bool = False
    undo: bool = False
    addresses: AddressPlan | None = None  # None: not prepared; the settings subsystem makes it
    # Results of `gather`, by subsystem. They are kept if the change is derived again.
    gathered: dict[object, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert not (self.whole and self.entities), "what `replace` has made would be made twice"

    def made(self, kind: type[_Entity]) -> Iterator[_Entity]:
        """Yield the new state of the entities of a type in `entities` that are created or updated."""
        return (change.new for change in self.entities if isinstance(change.new, kind))

    def removed(self, kind: type[_Entity]) -> Iterator[_Entity]:
        """Yield the former state of the entities of a type in `entities` that are deleted."""
        return (each.old for each in self.entities if each.new is None and isinstance(each.old, kind))

    def concerns(self, kind: type[EntityConfig]) -> bool:
        """True if an entity of this type may differ."""
        return self.whole or any(isinstance(change.old or change.new, kind) for change in self.entities)
