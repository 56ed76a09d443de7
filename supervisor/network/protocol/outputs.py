"""Outputs of the engine. Immutable."""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct


class Send(NamedTuple):
    """A whole message for the outgoing control link of inter-router connection `link`, pre-settled. In order."""

    link: int
    octets: bytes


class LogLine(NamedTuple):
    module: str  # ROUTER, ROUTER_HELLO, ROUTER_LS, ROUTER_MA
    level: int  # of router.log
    text: str
    kind: str | None = None  # of a failure that may come again and again


class RouterAdded(Struct, frozen=True):
    """A router is known: no path yet (PathChanged follows once there is one), no keys.

    index: its number here, 1 and up, the lowest free one; 0 is this router. Free again after RouterRemoved.
    """

    index: int
    id: str


class RouterRemoved(Struct, frozen=True):
    """The router is removed, with its path and all of its keys (without a KeysChanged)."""

    index: int


class PathChanged(Struct, frozen=True):
    """The new path to a router; it is reachable (again).

    links: inter-router connections to the next hop, ascending, at least one; several: a bundle, each as good. next_hop:
    index of the next router on the path (== index: a direct neighbour). cost: of the whole path. valid_origins: bit i
    set: messages whose ingress is router i may take this path (those that entered here always may); see `indexes`.
    """

    index: int
    links: tuple[int, ...]
    next_hop: int
    cost: int
    valid_origins: int


class Unreachable(Struct, frozen=True):
    """There is no path to the router now. Its keys stay (inter-router.md 7.6): deliveries to them find no path."""

    index: int


class RadiusChanged(Struct, frozen=True):
    """Hops to the farthest reachable router; a message whose trace has more than radius + 1 entries is released."""

    radius: int


class KeysChanged(Struct, frozen=True):
    """Keys (`M0address`, `Clinkroute` …; inter-router.md 3.2) for which a router has consumers from now on, or no
    longer.

    added: key -> treatment 0 to 4 (None: not said). No key is in both, is added twice or removed without having been
    added. Both are shared: do not change them.
    """

    index: int
    added: Mapping[str, int | None]
    removed: tuple[str, ...]


Change = RouterAdded | RouterRemoved | PathChanged | Unreachable | RadiusChanged | KeysChanged


class RouterRow(Struct, frozen=True):
    """A known router, for management (router.node, management.md 6.4) and tests. The first row is this router."""

    index: int
    id: str
    protocol_version: int
    instance: int | None  # None: unknown
    link_state: tuple[str, ...]  # ids of its neighbours
    next_hop: str | None  # None: a neighbour, or not reachable; "(self)" of this router
    reachable: bool
    links: tuple[int, ...]  # connections to it when it is a neighbour reached directly, else empty
    cost: int | None  # None: this router, or not reachable
    valid_origins: tuple[str, ...]  # ids
    ls_seq: int
    mobile_seq: int
    keys: int  # how many of its addresses are known
    last_topology_change: float | None  # as `now` was; of this router only, None: never


def indexes(mask: int) -> tuple[int, ...]:
    """Numbers of the bits set in `mask`, ascending."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return tuple(found)
