"""Patterns of taps: which taps copy the messages of an address."""

from sluice.router.addressing.address import MOBILE
from sluice.router.addressing.pattern import PatternTree
from sluice.router.addressing.settings import SERVICES, AddressSettings


class TapPatterns:
    """Patterns of all taps, by number of the tap. Owner: the address table."""

    __slots__ = ("_settings", "_taps")

    def __init__(self) -> None:
        self._taps: dict[int, PatternTree[bool]] = {}
        self._settings: AddressSettings | None = None

    def follow(self, settings: AddressSettings) -> None:
        """Take the address settings, which know the phase at which messages enter. None so far: phase 0."""
        self._settings = settings

    def put(self, tap: int, pattern: str) -> None:
        """Add a tap. Raises PatternError for an invalid pattern."""
        tree: PatternTree[bool] = PatternTree()
        tree.insert(pattern, True)
        self._taps[tap] = tree

    def drop(self, tap: int) -> None:
        """Remove a tap. Raises KeyError if there is none."""
        del self._taps[tap]

    def matching(self, record_key: str) -> tuple[int, ...]:
        """Return the numbers of the taps that copy messages of a record.

        Only mobile addresses have taps. A message has its copy at the phase at which it enters, so a broker that
        sends it on at another phase causes no second one.
        """
        if not self._taps or record_key[0] != MOBILE:
            return ()
        name = record_key[2:]
        phase = 0 if self._settings is None else self._settings.lookup(name).ingress_phase
        if record_key[1] != str(phase) or name.startswith(SERVICES):
            return ()
        return tuple(number for number, tree in self._taps.items() if tree.match(name))
