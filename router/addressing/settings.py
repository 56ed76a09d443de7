"""Address settings and their look-up by address."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from sluice.router.addressing.pattern import PatternTree

MULTICAST: Final = "multicast"
CLOSEST: Final = "closest"
BALANCED: Final = "balanced"
UNAVAILABLE: Final = "unavailable"

# Scopes: an edge router announces the address to no router, to the edge routers of its site, or to all routers.
LOCAL: Final = "local"
NETWORK: Final = "network"

DEFAULT_OVERFLOW: Final = "throttle"
# First octets of the names of the router's own services. Taps never copy their messages.
SERVICES: Final = ("$", "_$")
PRIORITIES: Final = 10  # number of message priorities; each has its own data link between two routers


class AddressSetting(NamedTuple):
    """Setting of an address. Phases are 0 to 9. `priority` is 0 to 9, or None for the priority of each message."""

    distribution: str = BALANCED
    ingress_phase: int = 0
    egress_phase: int = 0
    priority: int | None = None
    fallback: bool = False
    overflow: str = DEFAULT_OVERFLOW
    scope: str = NETWORK


class AddressSettings:
    """All address settings of a router, built from the `settings` op. Owner: the object that holds them."""

    __slots__ = ("_last", "_tree", "_watchers", "default")

    def __init__(self, entries: Iterable[tuple[str, AddressSetting]] = (), default: str = BALANCED) -> None:
        """Store the settings of `entries`, pairs of pattern and setting as in the op.

        Raises DuplicatePatternError or PatternError for an invalid pattern.
        """
        self.default = AddressSetting(distribution=default)
        self._tree: PatternTree[AddressSetting] = PatternTree()
        self._last: tuple[str | None, AddressSetting] = (
            None,
            self.default,
        )  # name of the last look-up, and its setting
        self._watchers: list[Callable[[], object]] = []
        for pattern, setting in entries:
            self._tree.insert(pattern, setting)

    def put(self, pattern: str, setting: AddressSetting) -> None:
        """Add or replace the setting of a pattern. Raises PatternError for an invalid pattern."""
        self._tree.put(pattern, setting)
        self._changed()

    def drop(self, pattern: str) -> None:
        """Remove the setting of a pattern, if there is one."""
        self._tree.discard(pattern)
        self._changed()

    def get(self, pattern: str) -> AddressSetting | None:
        """Return the setting stored under this pattern, or None."""
        return self._tree.get(pattern)

    def pattern_of(self, setting: AddressSetting) -> str | None:
        """Return the canonical pattern of a setting returned by `lookup`, None for the default setting.

        The search goes through all settings.
        """
        return next((pattern for pattern, found in self._tree.items() if found is setting), None)

    def become(self, other: "AddressSettings") -> None:
        """Take over the settings of another object, which must not be used afterwards."""
        self._tree, self.default = other._tree, other.default
        self._changed()

    def set_default(self, distribution: str) -> None:
        """Set the distribution of addresses without a matching pattern."""
        self.default = AddressSetting(distribution=distribution)
        self._changed()

    def watch(self, changed: Callable[[], object]) -> None:
        """Call `changed` whenever a setting or the default has changed."""
        self._watchers.append(changed)

    def _changed(self) -> None:
        self._last = (None, self.default)
        for changed in self._watchers:
            changed()

    def lookup(self, name: str) -> AddressSetting:
        """Return the setting of a mobile address (normalised, with its tenant prefix), or the default setting.

        The last result is cached: an edge router looks up a new address a dozen times before it is attached.
        """
        last, found = self._last
        if name != last:
            found = self._tree.match(name) or self.default
            self._last = (name, found)
        return found
