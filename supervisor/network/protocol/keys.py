"""Keys of a router with their treatments, and updates to them (inter-router.md 9.4)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from sluice.supervisor.network.protocol.messages import MobileChange, MobileState

Keys = Mapping[str, int | None]  # key -> treatment; immutable once created
NO_KEYS: Keys = MappingProxyType({})


class KeysUpdate(NamedTuple):
    """Keys after an update, and the difference to the keys before."""

    keys: Keys
    added: Keys
    removed: tuple[str, ...]


def apply(keys: Keys, update: MobileChange | MobileState) -> KeysUpdate:
    """Return the keys after an update. A known key keeps its treatment (inter-router.md 9.4).

    Removals of unknown keys are ignored.
    """
    if isinstance(update, MobileState):
        new: dict[str, int | None] = {key: keys.get(key, hint) for key, hint in update.keys.items()}
        return KeysUpdate(
            new,
            {key: hint for key, hint in new.items() if key not in keys},
            tuple(key for key in keys if key not in new),
        )
    new = dict(keys)
    added: dict[str, int | None] = {}
    for key, hint in update.added.items():
        if key not in new:
            new[key] = added[key] = hint
    removed = []
    for key in update.removed:
        new.pop(key, None)
        if key in added:
            del added[key]
        elif key in keys:
            removed.append(key)
    return KeysUpdate(new, added, tuple(dict.fromkeys(removed)))
