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
    """All address settings of a router, built from the `settings` op. Immutable after creation."""

    __slots__ = ("_tree", "default")

    def __init__(self, entries: Iterable[tuple[str, Mapping[str, Any]]] = (), default: str = BALANCED) -> None:
        """`entries` are (pattern, attributes) as in the op; attributes that are missing have their defaults.

        Raises DuplicatePatternError or PatternError for a pattern that cannot be used.
        """
        self.default = Setting(distribution=default)
        self._tree: PatternTree[Setting] = PatternTree()
        for pattern, attributes in entries:
            self._tree.insert(pattern, setting_from(attributes))

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
