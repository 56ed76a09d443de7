"""Configuration that changes entity by entity, with indexes that check uniqueness.

The cost of a change depends on the change alone, except that references to other entities are copied.
"""

import heapq
from collections.abc import Sequence
from typing import Final

from sluice.router.config.entities import AddressConfig, Configuration
from sluice.router.config.entity import EntityConfig

# Digits of a number in an identity. A name chosen by a client may have more digits than `int` converts (4300).
MOST_DIGITS: Final = 18


def number_in(identity: str) -> int | None:
    """Return the number at the end of an identity such as `address/3`, or None if there is none."""
    digits = identity.rpartition("/")[2]
    return int(digits) if digits.isdecimal() and len(digits) <= MOST_DIGITS else None


class Inventory:
    """Configuration with its indexes. Owner: the code that changes the configuration.

    `tokens` has the patterns of all addresses.
    """

    def __init__(self, configuration: Configuration) -> None:
        """Index a configuration, in time proportional to its size."""
        self.configuration = configuration
        self.tokens: set[tuple[str, ...]] = set()
        self._by_name: dict[str, list[EntityConfig]] = {}
        self._by_identity: dict[str, list[EntityConfig]] = {}
        # By type: heap of the negated numbers in identities such as `address/3`, including those of removed entities.
        self._numbers: dict[str, list[int]] = {}
        for entity in configuration.entities():
            self._enter(entity)

    def named(self, name: str) -> list[EntityConfig]:
        """Return all entities with this name, in any order."""
        return self._by_name.get(name, [])

    def identified(self, identity: str) -> list[EntityConfig]:
        """Return all entities with this identity; at most one, except for types of the routing core."""
        return self._by_identity.get(identity, [])

    def of_type(self, kind: str) -> tuple[EntityConfig, ...]:
        """Return all entities of the type with this short name, in order of creation."""
        return self.configuration.of_type(kind)

    def next_number(self, kind: str) -> int:
        """Return the number after the highest one in the identities of a type, such as 3 after `address/2`."""
        numbers = self._numbers.get(kind, [])
        while numbers and not self._has_number(kind, -numbers[0]):
            heapq.heappop(numbers)
        return 1 - numbers[0] if numbers else 0

    def _has_number(self, kind: str, number: int) -> bool:
        suffix = f"{kind.rpartition('.')[2]}/{number}"
        return any(each.type == kind for each in self.identified(suffix))

    def change(
        self, gone: Sequence[EntityConfig], made: Sequence[EntityConfig], reached: Configuration | None = None
    ) -> None:
        """Remove entities and add others. `reached` is the result of `Configuration.changed`, if the caller has it."""
        self.configuration = reached or self.configuration.changed(gone, made)
        for entity in gone:
            _remove(self._by_name, entity.name, entity)
            _remove(self._by_identity, entity.identity, entity)
            if isinstance(entity, AddressConfig):
                self.tokens.discard(entity.tokens)
        for entity in made:
            self._enter(entity)

    def _enter(self, entity: EntityConfig) -> None:
        self._by_name.setdefault(entity.name, []).append(entity)
        self._by_identity.setdefault(entity.identity, []).append(entity)
        number = number_in(entity.identity)
        if number is not None and entity.identity.rpartition("/")[0] == entity.type.rpartition(".")[2]:
            heapq.heappush(self._numbers.setdefault(entity.type, []), -number)
        if isinstance(entity, AddressConfig):
            self.tokens.add(entity.tokens)


def _remove(index: dict[str, list[EntityConfig]], key: str, entity: EntityConfig) -> None:
    rest = [each for each in index[key] if each is not entity]
    if rest:
        index[key] = rest
    else:
        del index[key]
