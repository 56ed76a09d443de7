"""Cache of results, mostly for messages that arrive in several copies.

Engines of a simulated network share a cache, so that a message is decoded, and a router's keys are stored, only once.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from supervisor.network.protocol.messages import Message, MobileChange, MobileState, decode
from supervisor.network.protocol.nodes import Keys

_MESSAGES: Final = 256
_LARGEST: Final = 4096  # limit in octets of a cached tail


class KeysUpdate(NamedTuple):
    """Keys after an update, and the difference to the keys before."""

    keys: Keys
    added: Keys
    removed: tuple[str, ...]


class Memo:
    """Cache of decoded messages and applied updates. Owner: one engine, or a simulation."""

    def __init__(self, messages: int = _MESSAGES, largest: int = _LARGEST, applied: int = 0) -> None:
        """messages, applied: number of results to keep. largest: limit of a cached tail, in octets."""
        self._most_messages = messages
        self._largest = largest
        self._most_applied = applied
        self._messages: OrderedDict[bytes, Message | None] = OrderedDict()
        self._applied: OrderedDict[tuple[int, int], tuple[Keys, MobileChange | MobileState, KeysUpdate]] = OrderedDict()

    def decode(self, tail: bytes) -> Message | None:
        """Return the decoded message, as messages.decode does. Raises MessageError."""
        if len(tail) > self._largest:
            return decode(tail)
        found = self._messages.get(tail)
        if found is not None:
            return found
        message = decode(tail)
        self._messages[tail] = message
        if len(self._messages) > self._most_messages:
            self._messages.popitem(last=False)
        return message

    def apply(self, keys: Keys, update: MobileChange | MobileState) -> KeysUpdate:
        if not self._most_applied:
            return apply(keys, update)
        place = (id(keys), id(update))
        found = self._applied.get(place)
        if found is None:
            # The entry holds references to both objects, so that their ids stay unique.
            found = (keys, update, apply(keys, update))
            self._applied[place] = found
            if len(self._applied) > self._most_applied:
                self._applied.popitem(last=False)
        return found[2]


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
