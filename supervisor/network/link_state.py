"""Link states: our own announced, those of others asked for, kept and aged (chapter 7)."""

from collections.abc import Callable
from typing import Final

from supervisor.network import messages
from supervisor.network.damping import Pace
from supervisor.network.flooding import Flooding
from supervisor.network.messages import Advertisement, LinkStateRequest, LinkStateUpdate
from supervisor.network.neighbours import Link, Neighbour, Neighbours
from supervisor.network.nodes import Node, Nodes, Own
from supervisor.network.outbox import DEBUG, ERROR, INFO, NOTICE, Outbox
from supervisor.network.outputs import PathChanged, RadiusChanged, Unreachable
from supervisor.network.paths import Edges, TreeCache, compute
from supervisor.network.timers import Limits, Timers

NEVER: Final = float("inf")


class LinkState:
    """Owner: the engine. What it has to do with mobile addresses and neighbours of ours is set from outside:

    `reset(node)`: forget a router's addresses, for it has restarted. `forget(node)`: its record is removed.
    `ask_mobile(node, now)`: request its addresses if more are known to exist. `mobile_seq()`: our own sequence.
    `greet(neighbour)`: tell it what we know, so that it sends what we lack. `is_coming(node, now)`: its addresses are.
    """

    def __init__(
        self,
        own: Own,
        timers: Timers,
        limits: Limits,
        nodes: Nodes,
        neighbours: Neighbours,
        flooding: Flooding,
        outbox: Outbox,
        cache: TreeCache,
        now: float,
    ) -> None:
        self._own = own
        self.timers = timers
        self._limits = limits
        self._nodes = nodes
        self._neighbours = neighbours
        self._flooding = flooding
        self._outbox = outbox
        self._cache = cache
        self.reset: Callable[[Node], None] = lambda node: None
        self.forget: Callable[[Node], None] = lambda node: None
        self.ask_mobile: Callable[[Node, float], None] = lambda node, now: None
        self.mobile_seq: Callable[[], int] = lambda: 0
        self.greet: Callable[[Neighbour], None] = lambda neighbour: None
        self.is_coming: Callable[[Node, float], bool] = lambda node, now: False
        self.ls_seq = 0
        self.last_change: float | None = None  # of the topology
        self.announce_at = NEVER
        self.compute_at = NEVER
        self._announced = Pace(timers.announce_gap, timers.announce_gap_most)
        self._computed = Pace(timers.compute_gap, timers.compute_gap_most)
        self._last_ra = now
        self.ra_at = now
        self.maintain_at = now + timers.maintenance
        self._pulls: dict[Node, float] = {}  # when to ask it for what is missing; NEVER: when it can be reached
        self.pull_at = NEVER

    def deadline(self) -> float:
        return min(self.announce_at, self.compute_at, self.ra_at, self.maintain_at, self.pull_at)

    # -- our own

    def own_changed(self, neighbour: Neighbour, worse: bool, now: float) -> None:
        if worse:
            self.announce_at = self.compute_at = now
        else:
            self.announce_at = min(self.announce_at, self._announced.when(now + self.timers.announce_soon))
            self.schedule(now)

    def schedule(self, now: float) -> None:
        """The topology has changed: compute the paths soon."""
        self.compute_at = min(self.compute_at, self._computed.when(now))
        self._changed(now)

    def _changed(self, now: float) -> None:
        self.last_change = now
        if not self._nodes.only_ours:
            self.ra_at = min(self.ra_at, max(now, self._last_ra + self.timers.ra_interval_flux))

    def say_again(self, now: float) -> None:
        """Our instance is another."""
        self.announce_at = now
        self.ra_at = now

    def announce(self, now: float) -> None:
        """Say to all what our neighbours are."""
        self.announce_at = NEVER
        self._announced.done(now)
        self.ls_seq += 1
        self._changed(now)
        self.push_own(None)
        self.hint(now)

    def hint(self, now: float) -> None:
        """A sequence of ours is another: RA in this tick, if anybody needs it."""
        if not self._nodes.only_ours:
            self.ra_at = now

    def advertise(self, now: float) -> None:
        """RA"""
        timers = self.timers
        self._last_ra = now
        self._flooding.to_all(
            messages.encode_advertisement(self._own.id, self._own.instance, self.ls_seq, self.mobile_seq())
        )
        changed = self.last_change if self.last_change is not None else -NEVER
        in_flux = now + timers.ra_interval_flux - changed <= 2 * timers.ra_interval_flux and not self._nodes.only_ours
        self.ra_at = now + (timers.ra_interval_flux if in_flux else timers.ra_interval)

    def push_own(self, link: int | None) -> None:
        """Our link state, unasked, to neighbours of ours: to one, or to all."""
        tail = messages.encode_link_state(
            self._own.id,
            self._own.instance,
            self.ls_seq,
            self._neighbours.edges(),
            messages.TO_NEIGHBOUR_LS,
            0,
            mobile_seq=self.mobile_seq(),
        )
        if link is None:
            self._flooding.to_ours(tail)
        else:
            self._flooding.to_link(link, tail)

    # -- messages

    def advertisement(self, message: Advertisement, ours: bool, now: float) -> None:
        """RA. ours: from a neighbour who says unasked what it learns."""
        node = self._nodes.create(message.id, now)
        if node is None:
            return
        if self._out_of_date(node, message.instance, now):
            return
        self.check_instance(node, message.instance, message.version, now)
        node.last_seen = now
        if message.ls_seq > node.ls_seq:
            node.wanted_ls = message.ls_seq
        node.wanted_mobile = message.mobile_seq
        if message.ls_seq > node.ls_seq or message.mobile_seq > node.mobile_seq:
            node.tries = 0
            self.pull(node, now + self.grace(ours))

    def _out_of_date(self, node: Node, instance: int, now: float) -> bool:
        """Whether an RA was said before a restart that we know of.

        An earlier instance is a later start where a clock was set back. Copies of one RA come within seconds: when the
        instance that we know was not said for longer, the other one is the present one. A neighbour says it itself.
        """
        said = self._neighbours.instance_of(node.id)
        if said is not None:
            return instance != said
        if node.instance is None or instance >= node.instance:
            return False
        return now - node.instance_heard < self._flooding.window()

    def check_instance(self, node: Node, instance: int, version: int, now: float) -> None:
        """The router, or who passes on what it says, says its instance (7.5)."""
        node.instance_heard = now
        if node.instance == instance:
            return
        if node.instance is not None:
            self._outbox.log("ROUTER_LS", INFO, f"Detected Restart of Router Node {node.id}")
            node.edges = ()
            node.ls_seq = node.wanted_ls = 0
            node.need_ls = True
            self.reset(node)
            self.schedule(now)
            self.pull(node, now + self.timers.pull_grace)
        node.instance = instance
        node.version = version

    def request(self, message: LinkStateRequest, now: float) -> None:
        """LSR"""
        node = self._nodes.create(message.id, now)
        if node is not None:
            self._answer(node)

    def _answer(self, node: Node) -> None:
        edges = self._neighbours.edges()
        if not self._nodes.only_ours:
            edges = tuple(edge for edge in edges if self._nodes.visible(edge[0]) or edge[0] == node.id)
        tail = messages.encode_link_state(
            self._own.id, self._own.instance, self.ls_seq, edges, messages.to_router_ls(node.id)
        )
        node.owed = not self._flooding.to_router(node, tail)

    def update(self, message: LinkStateUpdate, link: Link, tail: bytes, pushed: bool, now: float) -> None:
        """LSU. tail: the message. pushed: by a neighbour of ours, unasked."""
        node = self._nodes.create(message.id, now)
        if node is None:
            return
        said = self._neighbours.instance_of(node.id)
        if said is not None and message.instance not in (0, said):
            # It was said before a restart, or the clock of the neighbour was set back: it has to know.
            if pushed and message.instance > said:
                self._flooding.to_ours_only(node.id, tail)
            return
        if node.instance is None:
            node.instance = message.instance or None
            node.instance_heard = now
        elif message.instance > node.instance:
            self.check_instance(node, message.instance, message.version, now)
        elif message.instance < node.instance and message.instance:
            return  # said before its restart
        if pushed and message.mobile_seq > max(node.mobile_seq, node.wanted_mobile):
            node.wanted_mobile = message.mobile_seq
            self.pull(node, now + self.timers.pull_grace)
        if message.ls_seq <= node.ls_seq:
            node.need_ls = node.need_ls and message.ls_seq < node.ls_seq
            return
        if len(message.peers) > self._limits.neighbours:
            most = self._limits.neighbours
            self._outbox.log_once("ROUTER_LS", ERROR, f"Link state of {node.id} ignored: more than {most} neighbours")
            return
        node.ls_seq = message.ls_seq
        node.last_seen = now - message.age if pushed else now
        node.need_ls = node.looked_for = False
        foreign = message.foreign if pushed else True
        if foreign != node.foreign:
            node.foreign = foreign
            self._nodes.foreign += 1 if foreign else -1
        edges = tuple(message.peers.items())
        if edges != node.edges:
            node.edges = edges
            for peer in message.peers:
                named = self._nodes.create(peer, now)
                if named is not None and named.need_ls:
                    self.pull(named, now + self.grace(link.ours))
            self.schedule(now)
        if pushed:
            self._flooding.to_ours(tail, link.peer)
        elif node.instance is not None:
            self._flooding.to_ours(self.encode(node, node.instance, now), link.peer)

    def encode(self, node: Node, instance: int, now: float) -> bytes:
        """The link state of another router, for a neighbour of ours."""
        return messages.encode_link_state(
            node.id,
            instance,
            node.ls_seq,
            node.edges,
            messages.TO_NEIGHBOUR_LS,
            max(0, int(now - node.last_seen)),
            node.foreign,
            node.mobile_seq,
        )

    # -- asking

    def grace(self, ours: bool) -> float:
        """How long to wait for what a neighbour may be about to say by itself."""
        return self.timers.pull_grace if ours else 0.0

    def pull(self, node: Node, when: float) -> None:
        """Ask it for what is missing then."""
        when = min(when, self._pulls.get(node, NEVER))
        self._pulls[node] = when
        self.pull_at = min(self.pull_at, when)

    def run_pulls(self, now: float) -> None:
        """Ask for what has not come by itself: first a neighbour of ours, for all that is missing, then its origin."""
        near: dict[str, Neighbour] = {}
        for node in [found for found, when in self._pulls.items() if when <= now]:
            way = self._flooding.way(node)
            del self._pulls[node]
            if not node.need_ls and node.wanted_ls <= node.ls_seq and node.wanted_mobile <= node.mobile_seq:
                node.looked_for = False
                node.tries = 0
            elif way is None:
                self._pulls[node] = NEVER
            elif not node.need_ls and node.wanted_ls <= node.ls_seq and self.is_coming(node, now):
                self._pulls[node] = now + self.timers.pull_grace
            elif self._neighbours.links[way].ours and not node.looked_for:
                neighbour = self._neighbours.announced[str(self._neighbours.links[way].peer)]
                near[neighbour.id] = neighbour
                node.looked_for = True
                self._pulls[node] = now + self.timers.pull_grace
            else:
                self._ask(node, now)
        self.pull_at = min(self._pulls.values(), default=NEVER)
        for neighbour in near.values():
            self.greet(neighbour)

    def _ask(self, node: Node, now: float) -> None:
        node.looked_for = False
        if node.need_ls or node.wanted_ls > node.ls_seq:
            self._flooding.to_router(
                node, messages.encode_link_state_request(self._own.id, messages.to_router_ls(node.id))
            )
        self.ask_mobile(node, now)
        if node.tries < self.timers.tries:
            self._pulls[node] = now + 2**node.tries
            node.tries += 1

    # -- time

    def went_on(self, late: float, now: float) -> None:
        """This router did not run for so many seconds: nobody's link state has aged in them."""
        for node in self._nodes:
            node.last_seen = min(now, node.last_seen + late)

    def maintain(self, now: float) -> None:
        """7.3, the ages."""
        self.maintain_at = now + self.timers.maintenance
        named = {peer for node in self._nodes for peer, _ in node.edges}
        for node in list(self._nodes):
            if node.said is not None and not node.foreign:
                node.last_seen = now  # reached from one of ours to the next, each of whom hears the next one's HELLO
            elif node.edges and now - node.last_seen > self.timers.remote_ls_max_age:
                self._outbox.log("ROUTER_LS", DEBUG, f"Link state of {node.id} has expired")
                node.edges = ()
                node.ls_seq = node.wanted_ls = 0
                node.need_ls = True
                self.schedule(now)
            near = node.id in self._neighbours.announced or node.id in self._neighbours.held
            if node.edges or near or node.id in named:
                node.unnamed_ticks = 0
                continue
            node.unnamed_ticks += 1
            if node.unnamed_ticks > self.timers.node_ticks:
                self.forget(node)
                self._nodes.remove(node)
                self._pulls.pop(node, None)
                self.schedule(now)

    def compute(self, now: float) -> None:
        """Chapter 8; says what has changed."""
        self.compute_at = NEVER
        self._computed.done(now)
        collection: dict[str, Edges] = {node.id: node.edges for node in self._nodes}
        collection[self._own.id] = self._neighbours.edges()
        bits = {node.id: node.index for node in self._nodes}
        bits[self._own.id] = 0
        paths, radius = compute(self._own.id, collection, bits, self._cache)
        if radius != self._flooding.radius:
            self._flooding.radius = radius
            self._outbox.change(RadiusChanged(radius))
        for node in self._nodes:
            path = paths.get(node.id)
            if path is None:
                if node.said is not None:
                    node.said = None
                    self._outbox.log("ROUTER_LS", NOTICE, f"Node {node.id} is not reachable")
                    self._outbox.change(Unreachable(node.index))
                continue
            links = self._neighbours.announced[path.next_hop].links
            next_hop = self._nodes.by_id[path.next_hop].index
            said = node.said
            if said is None:
                if node.need_ls or self._pulls.get(node) == NEVER:
                    self.pull(node, now + self.grace(self._neighbours.links[links[0]].ours))
            elif (
                said.links == links
                and said.next_hop == next_hop
                and said.cost == path.cost
                and said.valid_origins == path.valid_origins
            ):
                continue
            came = said is None
            node.said = PathChanged(node.index, links, next_hop, path.cost, path.valid_origins)
            self._outbox.change(node.said)
            if came and node.owed:
                self._answer(node)
