"""Records of the other known routers (inter-router.md 7.1), and their indexes."""

import heapq
from collections.abc import Iterator

from msgspec import Struct, field

from sluice.supervisor.network.protocol.keys import NO_KEYS, Keys
from sluice.supervisor.network.protocol.local_router import LocalRouter
from sluice.supervisor.network.protocol.outbox import DEBUG, ERROR, EngineOutbox
from sluice.supervisor.network.protocol.outputs import PathChanged, RouterAdded, RouterRemoved, indexes
from sluice.supervisor.network.protocol.paths import Edges


class RouterNode(Struct, eq=False):
    """Remote router. Owner: RouterNodes; each group of fields belongs to the module named."""

    id: str
    index: int
    # link state
    version: int = 1
    instance: int | None = None  # None: unknown yet
    instance_seen: float = -1e9  # time at which that instance was last seen
    edges: Edges = ()
    ls_seq: int = 0
    last_seen: float = 0.0  # time of the last confirmation of its link state
    foreign: bool = False  # not Sluice, or behind a router that is not
    need_ls: bool = True
    wanted_ls: int = 0  # highest known sequence
    looked_for: bool = False  # requested from a Sluice neighbour
    tries: int = 0  # requests to the router since its last answer
    owed: bool = False  # its request for the local link state could not be answered, because it was unreachable
    unlisted_ticks: int = 0  # maintenance ticks during which no other router listed it
    # paths
    path: PathChanged | None = None  # None: unreachable
    # mobile addresses
    mobile_seq: int = 0
    wanted_mobile: int = 0
    keys: Keys = field(default_factory=lambda: NO_KEYS)
    asked: float = -1e9  # time of the last unanswered request


class RouterNodes(Struct):
    """All remote routers. Owner: the engine."""

    local: LocalRouter
    outbox: EngineOutbox
    beside_1_19: bool = False  # a neighbour is a router of 1.19
    foreign: int = 0  # number of foreign nodes
    radius: int = 0  # hops to the farthest reachable router. Writer: LinkStates
    by_id: dict[str, RouterNode] = field(default_factory=dict)
    by_index: dict[int, RouterNode] = field(default_factory=dict)
    _free: list[int] = field(default_factory=list)
    _next: int = 1

    def __iter__(self) -> Iterator[RouterNode]:
        return iter(self.by_id.values())

    def __len__(self) -> int:
        return len(self.by_id)

    @property
    def only_ours(self) -> bool:
        """Return whether all known routers are Sluice, so that none needs RAs for its requests, or counts hops."""
        return not self.beside_1_19 and not self.foreign

    def visible(self, router_id: str | None) -> bool:
        """Return whether routers of 1.19 are notified of a router: it is among the first 127."""
        node = self.by_id.get(router_id) if router_id is not None else None
        return node is not None and node.index < self.local.limits.routers_beside_1_19

    def set_beside_1_19(self, beside: bool) -> None:
        """Record whether a neighbour is a router of 1.19."""
        self.beside_1_19 = beside
        self._warn()

    def set_foreign(self, node: RouterNode, foreign: bool) -> None:
        """Record whether a router is not Sluice, or behind a router that is not."""
        self.foreign += foreign - node.foreign
        node.foreign = foreign

    def _warn(self) -> None:
        """Log if a neighbour is 1.19 and there are more routers than it supports."""
        most = self.local.limits.routers_beside_1_19
        if self.beside_1_19 and len(self.by_id) + 1 > most:
            self.outbox.log_once(
                "ROUTER",
                ERROR,
                f"The network has more than {most} routers, the limit of Dispatch 1.19: neighbours of that version"
                f" learn only of the first {most}",
            )

    def too_long(self) -> None:
        """Log that the id of a router is too long."""
        self.outbox.log_once(
            "ROUTER", ERROR, f"A router is ignored: its id exceeds {self.local.limits.id_octets} octets"
        )

    def create(self, router_id: str, now: float) -> RouterNode | None:
        """Return the record of a router, created if needed; None for this router, or if the limit is reached."""
        found = self.by_id.get(router_id)
        if found is not None or router_id == self.local.id:
            return found
        if len(router_id) > self.local.limits.id_octets:
            self.too_long()
            return None
        most = self.local.limits.routers
        if len(self.by_id) + 1 >= most:
            self.outbox.log_once("ROUTER", ERROR, f"The network has more than {most} routers: further ones are ignored")
            return None
        index = heapq.heappop(self._free) if self._free else self._next
        if index == self._next:
            self._next += 1
        node = RouterNode(router_id, index, last_seen=now)
        self.by_id[router_id] = node
        self.by_index[index] = node
        self.outbox.log("ROUTER_LS", DEBUG, f"Node {router_id} created: maskbit={index}")
        self.outbox.change(RouterAdded(index, router_id))
        self._warn()
        return node

    def remove(self, node: RouterNode) -> None:
        del self.by_id[node.id]
        del self.by_index[node.index]
        heapq.heappush(self._free, node.index)
        self.foreign -= node.foreign
        self.outbox.log("ROUTER_LS", DEBUG, f"Node {node.id} deleted")
        self.outbox.change(RouterRemoved(node.index))

    def ids(self, mask: int) -> tuple[str, ...]:
        """Return the ids of the routers in a mask."""
        return tuple(self.by_index[index].id for index in indexes(mask) if index in self.by_index)
