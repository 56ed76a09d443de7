"""Neighbours and the control links to them."""

from typing import Final

from sluice.supervisor.network.protocol.damping import Damping
from sluice.supervisor.network.protocol.messages import MOST_COST
from sluice.supervisor.network.protocol.paths import Edges

# Added to the costs of the links of a router that drains; above the cost of any usual path around it.
DRAINING_COST: Final = 1_000_000


class ControlLink:
    """Control link of an inter-router connection."""

    __slots__ = (
        "answers",
        "confirmed",
        "cost",
        "doubted",
        "instance",
        "named_peer",
        "number",
        "only",
        "ours",
        "peer",
        "process",
    )

    def __init__(self, number: int, cost: int, ours: bool, only: str | None) -> None:
        self.number = number
        self.cost = cost
        self.ours = ours
        self.only = only  # the only id that the peer may have; None: any
        self.peer: str | None = None  # sender of the HELLOs on the link
        self.confirmed: float | None = None  # time of the last HELLO that named this router
        self.instance: int | None = None  # instance in the last HELLO
        self.process = 0  # process number in the last HELLO
        # Start of the time in which its HELLOs have had another instance or process than those with the same id on
        # other links. A doubted link is not used.
        self.doubted: float | None = None
        self.named_peer = False  # last HELLO of this router on the link named the peer
        self.answers = 0  # extra HELLOs sent on the link since the last periodic one


class Neighbour:
    """Router at the other end of one or more links."""

    __slots__ = ("announced", "cost", "damping", "forget_at", "id", "instance", "links", "ours", "process")

    def __init__(self, router_id: str, damping: Damping) -> None:
        self.id = router_id
        self.damping = damping
        self.announced = False  # listed in the local link state
        self.cost = 0
        self.links: tuple[int, ...] = ()  # links in use; several: a bundle
        self.ours = False
        self.instance: int | None = None  # instance in its HELLOs
        self.process = 0  # process number in its HELLOs
        self.forget_at: float | None = None


class NeighbourTable:
    """All neighbours and control links. Owner: the engine. Writer: Neighbours."""

    def __init__(self) -> None:
        self.links: dict[int, ControlLink] = {}
        self.known: dict[str, Neighbour] = {}  # announced neighbours, delayed ones, and lost ones for a while
        self.announced: dict[str, Neighbour] = {}  # in order of announcement
        self.held: set[str] = set()  # ids of neighbours delayed by damping
        # Announced neighbours that the local link state does not list yet, with the time until which their state is
        # awaited (Timers.sync_limit). Writer: Sync.
        self.unready: dict[str, float] = {}
        self.draining = False  # other routers avoid paths through this one

    def edges(self) -> Edges:
        """Return the neighbours with the costs of the links to them."""
        return tuple((neighbour.id, neighbour.cost) for neighbour in self.announced.values())

    def announced_edges(self) -> Edges:
        """Return the local link state as other routers receive it."""
        added = DRAINING_COST if self.draining else 0
        return tuple(
            (router_id, min(cost + added, MOST_COST))
            for router_id, cost in self.edges()
            if router_id not in self.unready
        )

    def instance_of(self, router_id: str) -> int | None:
        """Return the instance in a neighbour's HELLOs, or None if the router is not a neighbour."""
        neighbour = self.known.get(router_id)
        if neighbour is None or not (neighbour.announced or router_id in self.held):
            return None
        return neighbour.instance

    def has_links_to_1_19(self) -> bool:
        return any(not link.ours for link in self.links.values())
