"""Link-route addresses announced by other routers (inter-router.md 9.4, 12). Does no input or output."""

from collections.abc import Callable, Iterator
from typing import Final

from sluice.router.addressing.pattern import MAX_TOKENS, PatternError, PatternTree, canonical, from_prefix
from sluice.supervisor.linkroutes.local import IN, OUT

# Link direction by class of the address key.
CLASSES: Final = {"C": IN, "E": IN, "D": OUT, "F": OUT}
_PREFIXES: Final = ("C", "D")


class RemoteLinkAddress:
    """Link-route address and the routers with containers for it. Owner: RemoteLinkRoutes."""

    __slots__ = ("direction", "key", "pattern", "routers")

    def __init__(self, key: str, pattern: str, direction: str) -> None:
        self.key = key
        self.pattern = pattern  # canonical
        self.direction = direction
        self.routers: dict[int, None] = {}  # router indexes, in order of announcement


class RemotePattern:
    """Announcements with the same pattern. Owner: RemoteLinkRoutes.

    Different keys may have the same pattern (`Ca` and `Ea.#`), although no correct router sends both.
    """

    __slots__ = ("addresses", "last", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern  # canonical
        self.addresses: dict[str, RemoteLinkAddress] = {}  # by key
        self.last = 0  # index of the router chosen last

    @property
    def routers(self) -> tuple[int, ...]:
        """Return the indexes of the routers with containers, ascending."""
        return tuple(sorted({index for address in self.addresses.values() for index in address.routers}))

    def in_rotation(self) -> tuple[int, ...]:
        """Return the indexes of `routers`, rotated so that the next choice comes first."""
        routers = self.routers
        return (*(index for index in routers if index > self.last), *(index for index in routers if index <= self.last))


class RemoteLinkRoutes:
    """All link routes announced by other routers. Owner: the routers of the network."""

    __slots__ = ("_addresses", "_trees")

    def __init__(self) -> None:
        self._addresses: dict[str, RemoteLinkAddress] = {}  # by key
        self._trees: dict[str, PatternTree[RemotePattern]] = {IN: PatternTree(), OUT: PatternTree()}

    def __len__(self) -> int:
        return len(self._addresses)

    def __iter__(self) -> Iterator[RemoteLinkAddress]:
        return iter(self._addresses.values())

    def get(self, key: str) -> RemoteLinkAddress | None:
        """Return the address with this key, or None."""
        return self._addresses.get(key)

    def match(self, direction: str, address: str) -> tuple[int, ...]:
        """Return the indexes, ascending, of the routers with containers for a normalised address."""
        found = self.find(direction, address)
        return () if found is None else found.routers

    def find(self, direction: str, address: str) -> RemotePattern | None:
        """Return the best matching pattern for a normalised address, or None."""
        return self._trees[direction].match(address)

    def watch_patterns(self, changed: Callable[[], object]) -> None:
        """Call `changed` whenever the patterns of `find` have changed."""
        for tree in self._trees.values():
            tree.watch(changed)

    def add(self, key: str, index: int) -> None:
        """Record that a router has containers for an address.

        Raises PatternError for a key that is neither a prefix nor a pattern.
        """
        address = self._addresses.get(key)
        if address is None:
            text, direction = key[1:], CLASSES[key[0]]
            tokens = canonical(from_prefix(text) if key[0] in _PREFIXES else text)
            if len(tokens) > MAX_TOKENS:
                raise PatternError(f"Pattern invalid - more than {MAX_TOKENS} tokens")
            pattern = "/".join(tokens)
            address = self._addresses[key] = RemoteLinkAddress(key, pattern, direction)
            tree = self._trees[direction]
            same = tree.get(pattern)
            if same is None:
                same = RemotePattern(pattern)
                tree.put(pattern, same)
            same.addresses[key] = address
        address.routers[index] = None

    def remove(self, key: str, index: int) -> None:
        """Record that a router has lost its last container for an address. Unknown addresses and routers
        are ignored.
        """
        address = self._addresses.get(key)
        if address is not None:
            address.routers.pop(index, None)
            if not address.routers:
                self._forget(address)

    def forget(self, index: int) -> None:
        """Remove a lost router from all addresses."""
        for key in [address.key for address in self._addresses.values() if index in address.routers]:
            self.remove(key, index)

    def _forget(self, address: RemoteLinkAddress) -> None:
        del self._addresses[address.key]
        tree = self._trees[address.direction]
        same = tree.get(address.pattern)
        assert same is not None
        del same.addresses[address.key]
        if not same.addresses:
            tree.remove(address.pattern)
