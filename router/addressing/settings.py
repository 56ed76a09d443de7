"""Address settings, looked up by address."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from router.addressing.pattern import PatternTree

MULTICAST: Final = "multicast"
CLOSEST: Final = "closest"
BALANCED: Final = "balanced"
UNAVAILABLE: Final = "unavailable"

# How far an edge router announces an address: not at all, to edge routers of its site, to all.
LOCAL: Final = "local"
SITE: Final = "site"
NETWORK: Final = "network"

DEFAULT_OVERFLOW: Final = "throttle"
PRIORITIES: Final = 10  # of messages; each has a data link of its own between two routers


class Setting(NamedTuple):
    """The setting of an address. Phases are 0 to 9; `priority` is 0 to 9 or None: the message's own."""

    distribution: str = BALANCED
    ingress_phase: int = 0
    egress_phase: int = 0
    priority: int | None = None
    fallback: bool = False
    overflow: str = DEFAULT_OVERFLOW
    scope: str = NETWORK


class AddressSettings:
    """All address settings of a router, built from the `settings` op. Owner: its user."""

    __slots__ = ("_last", "_tree", "default")

    def __init__(self, entries: Iterable[tuple[str, Setting]] = (), default: str = BALANCED) -> None:
        """entries: (pattern, setting), as in the op.

        Raises DuplicatePatternError or PatternError for a pattern that cannot be used.
        """
        self.default = Setting(distribution=default)
        self._tree: PatternTree[Setting] = PatternTree()
        self._last: tuple[str | None, Setting] = (None, self.default)  # name that was looked up last, and its setting
        for pattern, setting in entries:
            self._tree.insert(pattern, setting)

    def put(self, pattern: str, setting: Setting) -> None:
        """Add or replace the setting of a pattern. Raises PatternError for a pattern that cannot be used."""
        self._tree.put(pattern, setting)
        self._last = (None, self.default)

    def drop(self, pattern: str) -> None:
        """Remove the setting of a pattern; nothing happens when there is none."""
        self._tree.discard(pattern)
        self._last = (None, self.default)

    def get(self, pattern: str) -> Setting | None:
        """The setting of exactly this pattern, or None."""
        return self._tree.get(pattern)

    def pattern_of(self, setting: Setting) -> str | None:
        """The canonical pattern of a setting that `lookup` gave; None for the default one. Looks at all of them."""
        return next((pattern for pattern, found in self._tree.items() if found is setting), None)

    def become(self, other: "AddressSettings") -> None:
        """Take over the settings of another object, which must not be used any more."""
        self._tree, self.default = other._tree, other.default
        self._last = (None, self.default)

    def set_default(self, distribution: str) -> None:
        """Change the distribution of addresses that no pattern matches."""
        self.default = Setting(distribution=distribution)
        self._last = (None, self.default)

    def lookup(self, name: str) -> Setting:
        """The setting of a mobile address (normalised, with its tenant prefix); the default one if none matches.

        The last one is kept: an edge router looks a dozen times until a new address is attached.
        """
        last, found = self._last
        if name != last:
            found = self._tree.match(name) or self.default
            self._last = (name, found)
        return found
