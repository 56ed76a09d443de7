"""Outputs of the engine, all immutable."""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct


class EngineSend(NamedTuple):
    """Whole message, presettled, for the outgoing control link of inter-router connection `link`. Order matters."""

    link: int
    octets: bytes


class EngineLogLine(NamedTuple):
    module: str  # ROUTER, ROUTER_HELLO, ROUTER_LS, ROUTER_MA
    level: int  # of router.log
    text: str
    kind: str | None = None  # of a failure that may repeat


class RouterAdded(Struct, frozen=True):
    """Notification of a new router. It has no path yet (PathChanged follows with its first path), and no keys.

    index: the lowest free number from 1 up; 0 is this router. Free again after RouterRemoved.
    """

    index: int
    id: str


class RouterRemoved(Struct, frozen=True):
    """Notification that a router is removed, with its path and all its keys (without a KeysChanged)."""

    index: int


class PathChanged(Struct, frozen=True):
    """New path to a router, which is reachable (again).

    links: inter-router connections to the next hop, ascending, at least one; several form a bundle of equal links.
    next_hop: index of the next router on the path (equal to `index` for a direct neighbour). cost: of the whole path.
    valid_origins: if bit i is set, messages with ingress router i may take this path (those that entered here always
    may); see `indexes`.
    """

    index: int
    links: tuple[int, ...]
    next_hop: int
    cost: int
    valid_origins: int


class Unreachable(Struct, frozen=True):
    """Notification that a router has no path. Its keys stay (inter-router.md 7.6), but deliveries to them find no
    path.
    """

    index: int


class RadiusChanged(Struct, frozen=True):
    """Hops to the farthest reachable router. A message with more than radius + 1 trace entries is released."""

    radius: int


class KeysChanged(Struct, frozen=True):
    """Keys (`M0address`, `Clinkroute` …; inter-router.md 3.2) that gained or lost consumers at a router.

    added: key -> treatment 0 to 4 (None: not stated). No key is in both, is added twice, or removed without having
    been added. Both mappings are shared and must not be modified.
    """

    index: int
    added: Mapping[str, int | None]
    removed: tuple[str, ...]


class NeighbourSynced(Struct, frozen=True):
    """Notification that all changes which a new neighbour has reported come before this one.

    `Engine.neighbour_ready` is expected once they are in force, so that other routers may use paths by the neighbour.
    """

    id: str


Change = RouterAdded | RouterRemoved | PathChanged | Unreachable | RadiusChanged | KeysChanged | NeighbourSynced


class RouterRow(Struct, frozen=True):
    """Known router, for management (router.node, management.md 6.4) and tests. The first row is this router."""

    index: int
    id: str
    protocol_version: int
    instance: int | None  # None: unknown
    link_state: tuple[str, ...]  # ids of its neighbours
    next_hop: str | None  # None: a neighbour, or unreachable; "(self)" for this router
    reachable: bool
    links: tuple[int, ...]  # connections to a neighbour reached directly, otherwise empty
    cost: int | None  # None: this router, or unreachable
    valid_origins: tuple[str, ...]  # ids
    ls_seq: int
    mobile_seq: int
    keys: int  # number of known addresses
    last_topology_change: float | None  # in the time of `now`; only for this router; None: never


def indexes(mask: int) -> tuple[int, ...]:
    """Return the numbers of the bits set in `mask`, ascending."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return tuple(found)
