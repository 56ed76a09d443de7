"""Records of the other routers that are known (inter-router.md 7.1), and their numbers."""

import heapq
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from msgspec import Struct, field

from router.amqp import codec
from supervisor.network.protocol.outbox import DEBUG, ERROR, Outbox
from supervisor.network.protocol.outputs import PathChanged, RouterAdded, RouterRemoved, indexes
from supervisor.network.protocol.paths import Edges
from supervisor.network.protocol.timers import Limits


class LocalRouter(Struct):
    """This router. `instance` is raised when the network has a later one."""

    id: str
    instance: int
    process: int = 0  # a random number, which tells routers of one id that start in the same second; 0: none


Keys = Mapping[str, int | None]  # key -> treatment; never changed once made
NO_KEYS: Keys = MappingProxyType({})


class Node(Struct, eq=False):
    """A remote router. Owner: Nodes; its fields are those of the part named."""

    id: str
    index: int
    # link state
    version: int = 1
    instance: int | None = None  # None: not known yet
    instance_seen: float = -1e9  # when that instance was last seen
    edges: Edges = ()
    ls_seq: int = 0
    last_seen: float = 0.0  # when its link state was last confirmed
    foreign: bool = False  # not Sluice, or behind one that is not
    need_ls: bool = True
    wanted_ls: int = 0  # the highest known sequence
    looked_for: bool = False  # requested from a Sluice neighbour
    tries: int = 0  # requests to it since the last answer
    owed: bool = False  # it requested the link state while it was not reachable
    unnamed_ticks: int = 0  # maintenance ticks without another router that lists it
    # paths
    path: PathChanged | None = None  # None: not reachable
    # mobile addresses
    mobile_seq: int = 0
    wanted_mobile: int = 0
    keys: Keys = field(default_factory=lambda: NO_KEYS)
    asked: float = -1e9  # when the last unanswered request was sent


class Nodes(Struct):
    """All nodes. `beside_1_19`: a neighbour is a router of 1.19."""

    own_id: str
    limits: Limits
    outbox: Outbox
    beside_1_19: bool = False
    foreign: int = 0  # how many of them are
    by_id: dict[str, Node] = field(default_factory=dict)
    by_index: dict[int, Node] = field(default_factory=dict)
    _free: list[int] = field(default_factory=list)
    _next: int = 1

    def __iter__(self) -> Iterator[Node]:
        return iter(self.by_id.values())

    def __len__(self) -> int:
        return len(self.by_id)

    @property
    def only_ours(self) -> bool:
        """All known routers are Sluice: none needs RAs to request news, or counts hops."""
        return not self.beside_1_19 and not self.foreign

    def visible(self, router_id: str | None) -> bool:
        """Whether routers of 1.19 may learn of it: it is among the first 127."""
        node = self.by_id.get(router_id) if router_id is not None else None
        return node is not None and node.index < self.limits.routers_beside_1_19

    def warn(self) -> None:
        """Log if a neighbour is 1.19 and there are more routers than it has room for."""
        most = self.limits.routers_beside_1_19
        if self.beside_1_19 and len(self.by_id) + 1 > most:
            self.outbox.log_once(
                "ROUTER",
                ERROR,
                f"The network has more than {most} routers, the limit of Dispatch 1.19: neighbours of that version do"
                " not learn of the others",
            )

    def too_long(self) -> None:
        """An id is longer than any router may have."""
        self.outbox.log_once("ROUTER", ERROR, "A router with an id that is too long is ignored")

    def create(self, router_id: str, now: float) -> Node | None:
        """The record of a router, created if needed; None: the limit is reached, or it is this router."""
        found = self.by_id.get(router_id)
        if found is not None or router_id == self.own_id:
            return found
        if len(router_id) > self.limits.id_octets:
            self.too_long()
            return None
        if len(self.by_id) + 1 >= self.limits.routers:
            self.outbox.log_once(
                "ROUTER", ERROR, f"The network has more than {self.limits.routers} routers: the others are ignored"
            )
            return None
        index = heapq.heappop(self._free) if self._free else self._next
        if index == self._next:
            self._next += 1
        node = Node(router_id, index, last_seen=now)
        self.by_id[router_id] = node
        self.by_index[index] = node
        self.outbox.log("ROUTER_LS", DEBUG, f"Node {router_id} created: maskbit={index}")
        self.outbox.change(RouterAdded(index, router_id))
        self.warn()
        return node

    def remove(self, node: Node) -> None:
        del self.by_id[node.id]
        del self.by_index[node.index]
        heapq.heappush(self._free, node.index)
        self.foreign -= node.foreign
        self.outbox.log("ROUTER_LS", DEBUG, f"Node {node.id} deleted")
        self.outbox.change(RouterRemoved(node.index))

    def ids(self, mask: int) -> tuple[str, ...]:
        """Ids of the routers in a mask."""
        return tuple(self.by_index[index].id for index in indexes(mask) if index in self.by_index)


def node_id(router_id: str) -> bytes:
    """`0/ID`, encoded, as in ingress and trace."""
    octets: bytes = codec.encode_string(f"0/{router_id}")
    return octets
