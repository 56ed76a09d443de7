"""Synchronisation of Sluice neighbours: each sends, without request, what the other lacks.

inter-router-protocol.md 5.5, 5.6, 5.8.

1.19 requests link state and addresses of every router through the whole network, which is expensive with hundreds of
routers. When two Sluice routers become neighbours, they exchange summaries of their state, and each sends what the
other lacks. A router relays news to its other Sluice neighbours, in the messages of 1.19 (LSU and absolute MAU) with
an additional entry in each. Routers of 1.19 never receive these messages, and send requests as always.
"""

from collections.abc import Mapping

from sluice.supervisor.network.protocol import messages
from sluice.supervisor.network.protocol.flooding import Flooding
from sluice.supervisor.network.protocol.link_state import LinkStates
from sluice.supervisor.network.protocol.local_router import LocalRouter
from sluice.supervisor.network.protocol.messages import Summary
from sluice.supervisor.network.protocol.mobile import Mobile
from sluice.supervisor.network.protocol.neighbour_table import ControlLink, Neighbour, NeighbourTable
from sluice.supervisor.network.protocol.nodes import RouterNode, RouterNodes
from sluice.supervisor.network.protocol.outbox import EngineOutbox
from sluice.supervisor.network.protocol.outputs import NeighbourSynced
from sluice.supervisor.network.protocol.requests import RequestQueue
from sluice.supervisor.network.protocol.timers import NEVER

Known = Mapping[str, tuple[int, int, int]]  # instance, link-state sequence and mobile sequence by router id


class Sync:
    """Exchange of state with neighbours, and requests for missing data. Owner: the engine."""

    def __init__(
        self,
        local: LocalRouter,
        nodes: RouterNodes,
        table: NeighbourTable,
        flooding: Flooding,
        outbox: EngineOutbox,
        requests: RequestQueue,
        mobile: Mobile,
        link_state: LinkStates,
    ) -> None:
        self._local = local
        self._nodes = nodes
        self._table = table
        self._flooding = flooding
        self._outbox = outbox
        self._requests = requests
        self._mobile = mobile
        self._link_state = link_state
        self._known_by: dict[str, Known] = {}  # summaries of unready neighbours of which state is missing, by id
        self._synced: set[str] = set()  # unready neighbours of which all state has arrived
        self._reported: set[str] = set()  # synced neighbours that were reported
        self._ready: set[str] = set()  # Sluice neighbours that the local link state may list

    def neighbour_changed(self, neighbour: Neighbour, worse: bool, now: float) -> None:
        """Handle a neighbour that appeared, was lost, or changed its links or cost. worse: see NeighbourListener."""
        limit = self._local.timers.sync_limit
        if not neighbour.links:
            self._ready.discard(neighbour.id)
            self._forget(neighbour.id)
        elif limit and neighbour.ours and neighbour.id not in self._ready:
            self._table.unready.setdefault(neighbour.id, now + limit)
        self._link_state.own_changed(worse, now)
        if neighbour.links:
            # Also when the link to the neighbour changes, because messages in flight on the old link may be lost.
            node = self._nodes.by_id[neighbour.id]
            if neighbour.ours:
                self._greet(neighbour)
            if node.need_ls:
                self._requests.add(node, neighbour.ours, now)

    def _greet(self, neighbour: Neighbour) -> None:
        """Send a summary of the known state to a new neighbour."""
        known = {
            node.id: (node.instance, node.ls_seq, node.mobile_seq)
            for node in self._nodes
            if node.instance is not None and (node.ls_seq or node.mobile_seq)
        }
        local = self._local
        known[local.id] = (local.instance, local.ls_seq, local.mobile_seq)
        self._flooding.to_link(neighbour.links[0], messages.encode_summary(local.id, local.instance, known))

    def deadline(self) -> float:
        """Return the time at which a neighbour counts as ready, whatever is missing."""
        return min(self._table.unready.values(), default=NEVER)

    def check(self, now: float) -> None:
        """Report unready neighbours once all state of each of them has arrived. Make those ready whose time is over.

        A neighbour alone is not reported: messages that come from another one by a path through this router are valid
        only if this router knows the way that they have come.
        """
        for router_id in list(self._known_by):
            if self._has_all(self._known_by[router_id]):
                del self._known_by[router_id]
                self._synced.add(router_id)
        unreported = self._table.unready.keys() - self._reported
        if unreported and unreported <= self._synced:
            self._reported |= unreported
            for router_id in sorted(unreported):
                self._outbox.change(NeighbourSynced(router_id))
        for router_id in [found for found, limit in self._table.unready.items() if limit <= now]:
            self.ready(router_id, now)

    def _has_all(self, known: Known) -> bool:
        """Return whether this router has everything that a summary lists."""
        for router_id, (instance, ls_seq, mobile_seq) in known.items():
            node = self._nodes.by_id.get(router_id)
            if router_id == self._local.id or (node is not None and (node.instance or 0) > instance):
                continue
            if node is None or node.instance != instance or node.ls_seq < ls_seq or node.mobile_seq < mobile_seq:
                return False
        return True

    def ready(self, router_id: str, now: float) -> None:
        """List a neighbour in the local link state from now on."""
        if router_id in self._table.unready:
            self._forget(router_id)
            self._ready.add(router_id)
            self._link_state.own_changed(False, now)

    def _forget(self, router_id: str) -> None:
        """Forget a neighbour that is ready or lost."""
        self._table.unready.pop(router_id, None)
        self._known_by.pop(router_id, None)
        self._synced.discard(router_id)
        self._reported.discard(router_id)

    def answer(self, message: Summary, link: ControlLink, now: float) -> None:
        """Answer a summary by sending the neighbour what it lacks."""
        if message.id in self._table.unready:
            self._known_by[message.id] = message.routers
        instance, ls_seq, mobile_seq = message.routers.get(self._local.id, (0, -1, 0))
        if instance != self._local.instance:
            ls_seq, mobile_seq = -1, 0
        if ls_seq < self._local.ls_seq:
            self._link_state.push_own(link.number)
        if mobile_seq < self._local.mobile_seq:
            self._mobile.push_own(link.number)
        for node in self._nodes:
            if node.instance is None or node.id == message.id:
                continue
            instance, ls_seq, mobile_seq = message.routers.get(node.id, (0, 0, 0))
            if instance > node.instance:
                continue
            if instance < node.instance:
                ls_seq = mobile_seq = 0
            if node.ls_seq > ls_seq:
                self._flooding.to_link(link.number, self._link_state.encode(node, node.instance, now))
            if node.mobile_seq > mobile_seq:
                for tail in self._mobile.encode(node, node.instance):
                    self._flooding.to_link(link.number, tail)

    def send_requests(self, now: float) -> None:
        """Request missing data: first from a Sluice neighbour, for all routers at once, then from its origin."""
        grace = now + self._local.timers.pull_grace
        asked: dict[str, Neighbour] = {}
        for node in self._requests.take_due(now):
            link = self._flooding.link_to(node)
            if not node.need_ls and node.wanted_ls <= node.ls_seq and node.wanted_mobile <= node.mobile_seq:
                node.looked_for = False
                node.tries = 0
            elif link is None:
                self._requests.add_at(node, NEVER)
            elif not node.need_ls and node.wanted_ls <= node.ls_seq and self._mobile.is_arriving(node, now):
                self._requests.add_at(node, grace)
            elif self._table.links[link].ours and not node.looked_for:
                neighbour = self._table.announced[str(self._table.links[link].peer)]
                asked[neighbour.id] = neighbour
                node.looked_for = True
                self._requests.add_at(node, grace)
            else:
                self._ask(node, now)
        for neighbour in asked.values():
            self._greet(neighbour)

    def _ask(self, node: RouterNode, now: float) -> None:
        """Request missing data of a router from the router itself."""
        node.looked_for = False
        if node.need_ls or node.wanted_ls > node.ls_seq:
            self._flooding.to_router(
                node, messages.encode_link_state_request(self._local.id, messages.to_router_ls(node.id))
            )
        self._mobile.ask(node, now)
        if node.tries < self._local.timers.tries:
            self._requests.add_at(node, now + 2**node.tries)
            node.tries += 1
