"""Address settings: what the configuration says about an address, found by its name."""
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from router.routing.pattern import PatternTree

MULTICAST: Final = "multicast"
CLOSEST: Final = "closest"
BALANCED: Final = "balanced"
UNAVAILABLE: Final = "unavailable"

DEFAULT_OVERFLOW: Final = "throttle"


class Setting(NamedTuple):
    """What applies to an address. Phases are 0 to 9; `priority` is 0 to 9 or None: the message's own."""

    distribution: str = BALANCED
    ingress_phase: int = 0
    egress_phase: int = 0
    priority: int | None = None
    fallback: bool = False
    overflow: str = DEFAULT_OVERFLOW


class AddressSettings:
    """All address settings of a router, built from the `settings` op. Owner: whoever routes or decides by them."""

    __slots__ = ("_tree", "default")

    def __init__(self, entries: Iterable[tuple[str, Mapping[str, Any]]] = (), default: str = BALANCED) -> None:
        """`entries` are (pattern, attributes) as in the op; attributes that are missing have their defaults.

        Raises DuplicatePatternError or PatternError for a pattern that cannot be used.
        """
        self.default = Setting(distribution=default)
        self._tree: PatternTree[Setting] = PatternTree()
        for pattern, attributes in entries:
            self._tree.insert(pattern, setting_from(attributes))

    def put(self, pattern: str, setting: Setting) -> None:
        """Add or replace the setting of a pattern. Raises PatternError for a pattern that cannot be used."""
        self._tree.put(pattern, setting)

    def drop(self, pattern: str) -> None:
        """Remove the setting of a pattern; nothing happens when there is none."""
        self._tree.discard(pattern)

    def get(self, pattern: str) -> Setting | None:
        """The setting of exactly this pattern, or None."""
        return self._tree.get(pattern)

    def pattern_of(self, setting: Setting) -> str | None:
        """The canonical pattern of a setting that `lookup` gave; None for the default one. Looks at all of them."""
        return next((pattern for pattern, found in self._tree.items() if found is setting), None)

    def become(self, other: "AddressSettings") -> None:
        """Take over what the other one holds, which must not be used any more."""
        self._tree, self.default = other._tree, other.default

    def set_default(self, distribution: str) -> None:
        """Change the distribution of addresses that no pattern matches."""
        self.default = Setting(distribution=distribution)

    def lookup(self, name: str) -> Setting:
        """The setting of a mobile address (normalised, with its tenant prefix); the default one if none matches."""
        return self._tree.match(name) or self.default


def from_ops(ops: Iterable[list[Any]]) -> AddressSettings:
    """Settings as the last `settings` op of a list leaves them; without one everything has its default."""
    settings = AddressSettings()
    for op in ops:
        if op[0] == "settings":
            settings = AddressSettings(op[1], op[2])
    return settings


def setting_from(attributes: Mapping[str, Any]) -> Setting:
    """One setting from the attributes of the op."""
    return Setting(
        distribution=attributes.get("distribution") or BALANCED,
        ingress_phase=attributes.get("ingressPhase") or 0,
        egress_phase=attributes.get("egressPhase") or 0,
        priority=attributes.get("priority"),
        fallback=bool(attributes.get("fallback")),
        overflow=attributes.get("presettledOverflow") or DEFAULT_OVERFLOW,
    )
