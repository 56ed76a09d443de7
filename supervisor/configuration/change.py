"""A change of the configuration, as the subsystems see it.

First every subsystem gathers what it needs from file systems and name servers (`gather`); that may take a while, and
other changes may overtake this one. Then, without a pause: `prepare` of all, in order. If one refuses, `discard` of
all, and nothing has changed; else `commit` of all, in order. A fault during the commits is undone by the reverse
change.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct, field

from router.addressing.settings import AddressSettings, Setting
from router.config.diff import Change
from router.config.entities import Configuration, EntityConfig

_Entity = TypeVar("_Entity", bound=EntityConfig)


class AddressPlan(Struct, frozen=True):
    """The address settings of a configuration, made ready in a thread.

    entries: settings by canonical pattern. settings: the same, ready to be looked up. changed: patterns that differ
    from before.
    """

    entries: Mapping[str, Setting]
    settings: AddressSettings
    changed: Sequence[str]


class ConfigurationChange(Struct, frozen=True, eq=False):
    """From one configuration to another.

    whole: any entity may differ, as in a reload, and none is named. Otherwise only those in `entities` differ, in an
    order in which they can be changed: one change among thousands of entities must not examine all of them. undo: the
    reverse change after a fault; steps that fail are tried again later.
    """

    old: Configuration
    new: Configuration
    entities: Sequence[Change] = ()
    whole: bool = False
    undo: bool = False
    addresses: AddressPlan | None = None  # None: not made yet
    # What was gathered, by subsystem. A change that is looked at again keeps it.
    gathered: dict[object, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert not (self.whole and self.entities), "what `replace` has made would be made twice"

    def made(self, kind: type[_Entity]) -> Iterator[_Entity]:
        """Of the entities named: those of a type that are created or changed, as they are to be."""
        return (change.new for change in self.entities if isinstance(change.new, kind))

    def removed(self, kind: type[_Entity]) -> Iterator[_Entity]:
        """Of the entities named: those of a type that are deleted, as they were."""
        return (each.old for each in self.entities if each.new is None and isinstance(each.old, kind))

    def concerns(self, kind: type[EntityConfig]) -> bool:
        """Whether an entity of a type may differ."""
        return self.whole or any(isinstance(change.old or change.new, kind) for change in self.entities)
