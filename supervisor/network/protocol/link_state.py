"""Link states: announcement of the local one; requests, storage and ageing of others (inter-router.md 7)."""

from sluice.supervisor.network.protocol import messages
from sluice.supervisor.network.protocol.advertisements import Advertisements
from sluice.supervisor.network.protocol.damping import DoublingPacer
from sluice.supervisor.network.protocol.flooding import Flooding
from sluice.supervisor.network.protocol.local_router import LocalRouter
from sluice.supervisor.network.protocol.messages import Advertisement, LinkStateRequest, LinkStateUpdate
from sluice.supervisor.network.protocol.mobile import Mobile
from sluice.supervisor.network.protocol.neighbour_table import ControlLink, NeighbourTable
from sluice.supervisor.network.protocol.nodes import RouterNode, RouterNodes
from sluice.supervisor.network.protocol.outbox import DEBUG, ERROR, INFO, NOTICE, EngineOutbox
from sluice.supervisor.network.protocol.outputs import PathChanged, RadiusChanged, Unreachable
from sluice.supervisor.network.protocol.paths import Edges, compute
from sluice.supervisor.network.protocol.requests import RequestQueue
from sluice.supervisor.network.protocol.timers import NEVER


class LinkStates:
    """Link states of all routers, and the computation of paths. Owner: the engine."""

    def __init__(
        self,
        local: LocalRouter,
        nodes: RouterNodes,
        table: NeighbourTable,
        flooding: Flooding,
        outbox: EngineOutbox,
        requests: RequestQueue,
        advertisements: Advertisements,
        mobile: Mobile,
    ) -> None:
        self._local = local
        self._nodes = nodes
        self._table = table
        self._flooding = flooding
        self._outbox = outbox
        self._requests = requests
        self._advertisements = advertisements
        self._mobile = mobile
        self.announce_at = NEVER
        self.compute_at = NEVER
        timers = local.timers
        self._announced = DoublingPacer(timers.announce_gap, timers.announce_gap_most)
        self._computed = DoublingPacer(timers.compute_gap, timers.compute_gap_most)
        self.maintain_at = local.started + timers.maintenance

    def deadline(self) -> float:
        return min(self.announce_at, self.compute_at, self.maintain_at)

    # -- local link state

    def own_changed(self, worse: bool, now: float) -> None:
        if worse:
            self.announce_at = self.compute_at = now
        else:
            self.announce_at = min(self.announce_at, self._announced.when(now + self._local.timers.announce_soon))
            self.schedule(now)

    def drain(self, now: float) -> None:
        """Announce raised costs of all local links in the next tick, so that other routers avoid this one."""
        self._table.draining = True
        self.announce_at = now

    def schedule(self, now: float) -> None:
        """Schedule the computation of paths after a change of the topology."""
        self.compute_at = min(self.compute_at, self._computed.when(now))
        self._advertisements.topology_changed(now)

    def instance_raised(self, now: float) -> None:
        """Announce the local link state with the raised local instance in the next tick."""
        self.announce_at = now

    def announce(self, now: float) -> None:
        """Announce the local link state."""
        self.announce_at = NEVER
        self._announced.done(now)
        self._local.ls_seq += 1
        self._advertisements.topology_changed(now)
        self.push_own(None)
        self._advertisements.sequence_changed(now)

    def push_own(self, link: int | None) -> None:
        """Send the local link state to one Sluice neighbour, or to all."""
        tail = messages.encode_link_state(
            self._local.id,
            self._local.instance,
            self._local.ls_seq,
            self._table.announced_edges(),
            messages.TO_NEIGHBOUR_LS,
            0,
            mobile_seq=self._local.mobile_seq,
        )
        if link is None:
            self._flooding.to_ours(tail)
        else:
            self._flooding.to_link(link, tail)

    # -- messages

    def advertisement(self, message: Advertisement, ours: bool, now: float) -> None:
        """Handle an RA. ours: from a Sluice neighbour, which sends news without request."""
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
            self._requests.add(node, ours, now)

    def _out_of_date(self, node: RouterNode, instance: int, now: float) -> bool:
        """Return whether an RA is from before a known restart.

        If a clock was set back, a later start has an earlier instance. Copies of one RA arrive within seconds: if the
        known instance has not been seen for longer, the other one is current. For a neighbour, its HELLO decides.
        """
        announced = self._table.instance_of(node.id)
        if announced is not None:
            return instance != announced
        if node.instance is None or instance >= node.instance:
            return False
        return now - node.instance_seen < self._flooding.window()

    def check_instance(self, node: RouterNode, instance: int, version: int, now: float) -> None:
        """Record the instance in a router's message, and reset the router's state if it has restarted (inter-router.md
        7.5). inter-router-protocol.md 4.3.
        """
        node.instance_seen = now
        if node.instance == instance:
            return
        if node.instance is not None:
            self._outbox.log("ROUTER_LS", INFO, f"Detected Restart of Router Node {node.id}")
            node.edges = ()
            node.ls_seq = node.wanted_ls = 0
            node.need_ls = True
            self._mobile.reset(node)
            self.schedule(now)
            self._requests.add(node, True, now)
        node.instance = instance
        node.version = version

    def request(self, message: LinkStateRequest, now: float) -> None:
        """Answer an LSR."""
        node = self._nodes.create(message.id, now)
        if node is not None:
            self._answer(node)

    def _answer(self, node: RouterNode) -> None:
        edges = self._table.announced_edges()
        if not self._nodes.only_ours:
            edges = tuple(edge for edge in edges if self._nodes.visible(edge[0]) or edge[0] == node.id)
        tail = messages.encode_link_state(
            self._local.id, self._local.instance, self._local.ls_seq, edges, messages.to_router_ls(node.id)
        )
        node.owed = not self._flooding.to_router(node, tail)

    def update(self, message: LinkStateUpdate, link: ControlLink, tail: bytes, pushed: bool, now: float) -> None:
        """Handle an LSU. tail: of the message. pushed: sent by a Sluice neighbour without request."""
        node = self._nodes.create(message.id, now)
        if node is None:
            return
        announced = self._table.instance_of(node.id)
        if announced is not None and message.instance not in (0, announced):
            # The update is from before a restart, or the neighbour's clock was set back. Notify the neighbour.
            if pushed and message.instance > announced:
                self._flooding.to_ours_only(node.id, tail)
            return
        if node.instance is None:
            node.instance = message.instance or None
            node.instance_seen = now
        elif message.instance > node.instance:
            self.check_instance(node, message.instance, message.version, now)
        elif message.instance < node.instance and message.instance:
            return  # from before the restart
        if pushed and message.mobile_seq > max(node.mobile_seq, node.wanted_mobile):
            node.wanted_mobile = message.mobile_seq
            self._requests.add(node, True, now)
        if message.ls_seq <= node.ls_seq:
            node.need_ls = node.need_ls and message.ls_seq < node.ls_seq
            return
        if len(message.peers) > self._local.limits.neighbours:
            most = self._local.limits.neighbours
            text = f"Link state of router {node.id} ignored: it has more than {most} neighbours"
            self._outbox.log_once("ROUTER_LS", ERROR, text)
            return
        node.ls_seq = message.ls_seq
        node.last_seen = now - message.age if pushed else now
        node.need_ls = node.looked_for = False
        self._nodes.set_foreign(node, message.foreign if pushed else True)
        edges = tuple(message.peers.items())
        if edges != node.edges:
            node.edges = edges
            for peer in message.peers:
                named = self._nodes.create(peer, now)
                if named is not None and named.need_ls:
                    self._requests.add(named, link.ours, now)
            self.schedule(now)
        if pushed:
            self._flooding.to_ours(tail, link.peer)
        elif node.instance is not None:
            self._flooding.to_ours(self.encode(node, node.instance, now), link.peer)

    def encode(self, node: RouterNode, instance: int, now: float) -> bytes:
        """Return the link state of another router as a message for a Sluice neighbour."""
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

    # -- time

    def went_on(self, late: float, now: float) -> None:
        """Extend the age of link states by `late` seconds during which this router did not run."""
        for node in self._nodes:
            node.last_seen = min(now, node.last_seen + late)

    def maintain(self, now: float) -> None:
        """Expire old link states, and remove routers that no other router lists (inter-router.md 7.3)."""
        self.maintain_at = now + self._local.timers.maintenance
        named = {peer for node in self._nodes for peer, _ in node.edges}
        for node in list(self._nodes):
            if node.path is not None and not node.foreign:
                node.last_seen = now  # the path has only Sluice routers, each of which receives the HELLOs of the next
            elif node.edges and now - node.last_seen > self._local.timers.remote_ls_max_age:
                self._outbox.log("ROUTER_LS", DEBUG, f"Link state of router {node.id} has expired")
                node.edges = ()
                node.ls_seq = node.wanted_ls = 0
                node.need_ls = True
                self.schedule(now)
            adjacent = node.id in self._table.announced or node.id in self._table.held
            if node.edges or adjacent or node.id in named:
                node.unlisted_ticks = 0
                continue
            node.unlisted_ticks += 1
            if node.unlisted_ticks > self._local.timers.node_ticks:
                self._mobile.forget(node)
                self._nodes.remove(node)
                self._requests.remove(node)
                self.schedule(now)

    def compute(self, now: float) -> None:
        """Compute the paths and report changes (inter-router.md 8)."""
        self.compute_at = NEVER
        self._computed.done(now)
        collection: dict[str, Edges] = {node.id: node.edges for node in self._nodes}
        collection[self._local.id] = self._table.edges()
        if self._local.timers.sync_limit:
            # A neighbour may use this router as soon as it is notified of its links, before its own link state lists
            # the link to this router. Without that link, messages that it sends on would have no valid origin.
            for neighbour in self._table.announced.values():
                edges = collection.get(neighbour.id)
                if edges is not None and neighbour.ours and self._local.id not in dict(edges):
                    collection[neighbour.id] = (*edges, (self._local.id, neighbour.cost))
        bits = {node.id: node.index for node in self._nodes}
        bits[self._local.id] = 0
        paths, radius = compute(self._local.id, collection, bits)
        if radius != self._nodes.radius:
            self._nodes.radius = radius
            self._outbox.change(RadiusChanged(radius))
        for node in self._nodes:
            path = paths.get(node.id)
            if path is None:
                if node.path is not None:
                    node.path = None
                    self._outbox.log("ROUTER_LS", NOTICE, f"Node {node.id} is not reachable")
                    self._outbox.change(Unreachable(node.index))
                continue
            links = self._table.announced[path.next_hop].links
            next_hop = self._nodes.by_id[path.next_hop].index
            before = node.path
            if before is None:
                if node.need_ls or self._requests.awaits_path(node):
                    self._requests.add(node, self._table.links[links[0]].ours, now)
            elif (
                before.links == links
                and before.next_hop == next_hop
                and before.cost == path.cost
                and before.valid_origins == path.valid_origins
            ):
                continue
            came = before is None
            node.path = PathChanged(node.index, links, next_hop, path.cost, path.valid_origins)
            self._outbox.change(node.path)
            if came and node.owed:
                self._answer(node)
