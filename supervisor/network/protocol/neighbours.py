"""HELLO, and neighbours with their connections (inter-router.md 6)."""

from typing import Final, Protocol

from sluice.supervisor.network.protocol.damping import Damping
from sluice.supervisor.network.protocol.local_router import LocalRouter
from sluice.supervisor.network.protocol.messages import Hello, encode_hello
from sluice.supervisor.network.protocol.neighbour_table import ControlLink, Neighbour, NeighbourTable
from sluice.supervisor.network.protocol.nodes import RouterNodes
from sluice.supervisor.network.protocol.outbox import CRITICAL, DEBUG, INFO, NOTICE, WARNING, EngineOutbox

_MAX_HELLO_IDS: Final = 4096  # limit of ids; each expires a few seconds after its last HELLO
_FORGET: Final = 600.0  # seconds after which the penalty of a lost neighbour is dropped


def _same(link: ControlLink, neighbour: Neighbour) -> bool:
    """Return whether the last HELLO on a link is from the same process as the neighbour."""
    return (link.instance, link.process) == (neighbour.instance, neighbour.process)


class NeighbourListener(Protocol):
    """Interface of the module that handles changed neighbours."""

    def neighbour_changed(self, neighbour: Neighbour, worse: bool, now: float) -> None:
        """Handle a neighbour that appeared, was lost, or changed its links or cost.

        worse: there is a loss, to be announced at once.
        """


class Neighbours:
    """HELLO, and the choice of the links to each neighbour. Owner: the engine."""

    def __init__(
        self,
        local: LocalRouter,
        nodes: RouterNodes,
        table: NeighbourTable,
        outbox: EngineOutbox,
        listener: NeighbourListener,
    ) -> None:
        self._local = local
        self._nodes = nodes
        self._table = table
        self._outbox = outbox
        self._listener = listener
        self._last_hello: dict[str, float] = {}  # time of the last HELLO, by id
        self.hello_at = local.started

    # -- links

    def link_up(self, number: int, cost: int, ours: bool, now: float, only: str | None = None) -> None:
        link = self._table.links.get(number)
        if link is None:
            link = self._table.links[number] = ControlLink(number, cost, ours, only)
            self._send_hello(link)
        elif link.cost != cost:
            link.cost = cost
            if link.peer is not None:
                self._update(link.peer, now)
        self._nodes.set_beside_1_19(self._table.has_links_to_1_19())

    def link_down(self, number: int, now: float) -> None:
        # inter-router.md 2.11.
        link = self._table.links.pop(number, None)
        if link is not None and link.peer is not None:
            self._update(link.peer, now)
        self._nodes.set_beside_1_19(self._table.has_links_to_1_19())

    # -- HELLO

    def _hello(self, ours: bool, unseen: str | None = None) -> bytes:
        """Return a HELLO. ours: for Sluice neighbours. unseen: id to leave out."""
        seen = [router_id for router_id in self._last_hello if router_id != unseen]
        process = self._local.process if ours else 0
        return self._local.head + encode_hello(self._local.id, self._local.instance, seen, process)

    def _names_peer(self, link: ControlLink) -> bool:
        return link.doubted is not None or link.peer in self._last_hello

    def _send_hello(self, link: ControlLink) -> None:
        """Send an extra HELLO on one link."""
        link.answers += 1
        link.named_peer = self._names_peer(link)
        self._outbox.send(link.number, self._hello(link.ours, None if link.doubted is None else link.peer))

    def send_hellos(self, now: float) -> None:
        """Send the periodic HELLO on all links."""
        self.hello_at = now + self._local.timers.hello_interval
        if not self._table.links:
            return
        octets = {ours: self._hello(ours) for ours in {link.ours for link in self._table.links.values()}}
        for link in self._table.links.values():
            link.named_peer = self._names_peer(link)
            link.answers = 0
            doubted = link.doubted is not None
            self._outbox.send(link.number, self._hello(link.ours, link.peer) if doubted else octets[link.ours])

    def hello(self, number: int, message: Hello, now: float) -> bool:
        """Handle a HELLO. Returns True if both routers receive each other's HELLOs. inter-router-protocol.md 4.1."""
        link = self._table.links[number]
        if link.only is not None and message.id != link.only:
            text = f"HELLO of router '{message.id}' dropped: allowedRouters admitted this peer as '{link.only}'"
            self._outbox.log("ROUTER_HELLO", WARNING, text, "another id")
            return False
        if message.id == self._local.id:
            if message.instance != self._local.instance or message.process not in (0, self._local.process):
                self.log_duplicate()
            return False
        if message.id not in self._last_hello and max(len(self._last_hello), len(self._table.known)) >= _MAX_HELLO_IDS:
            return False
        self._last_hello[message.id] = now
        if link.peer != message.id:
            if link.confirmed is not None and self._local.id not in message.seen:
                return False  # another id on a neighbour's link is only recorded
            before, link.peer = link.peer, message.id
            link.confirmed, link.named_peer = None, False
            link.instance = link.doubted = None
            link.process = 0
            if before is not None:
                self._update(before, now)
        if not link.named_peer and link.answers < self._local.timers.hello_answers:
            self._send_hello(link)
        if self._local.id not in message.seen:
            return False
        neighbour = self._table.known.get(message.id)
        if neighbour is None:
            neighbour = self._table.known[message.id] = Neighbour(message.id, Damping(self._local.timers))
        if link.confirmed is None and not neighbour.announced and neighbour.instance not in (None, message.instance):
            neighbour.damping.restarted(now)
        was_used = link.confirmed is not None and link.doubted is None
        link.confirmed = now
        used = not self._doubt(link, neighbour, message, now)
        if used:
            link.doubted = None
        elif link.doubted is None:
            link.doubted = now
        if used != was_used:
            neighbour.forget_at = None
            self._update(message.id, now)
        return used

    def _doubt(self, link: ControlLink, neighbour: Neighbour, message: Hello, now: float) -> bool:
        """Return whether a link leads to another router that has the neighbour's id by mistake.

        This is assumed if its instance or process differs from that of confirmed links. The confirmed links may belong
        to a process that has ended, and then fall silent. If they continue, there are two routers. A router whose
        clock was set back changes its instance on the same links.
        """
        trusted = _same(link, neighbour)
        link.instance, link.process = message.instance, message.process
        others = [
            other
            for other in self._table.links.values()
            if other is not link and other.peer == neighbour.id and other.confirmed is not None
        ]
        if _same(link, neighbour):
            doubted = [other.doubted for other in others if other.doubted is not None]
            if doubted and now - min(doubted) >= self._local.timers.hello_interval:
                self._outbox.log_once(
                    "ROUTER_HELLO",
                    CRITICAL,
                    f"Detected two routers with the id {neighbour.id}: each router of a network needs its own id; only"
                    " the first of them is used",
                )
            return False
        if not trusted and any(_same(other, neighbour) for other in others):
            return True
        neighbour.instance, neighbour.process = message.instance, message.process
        return False

    def log_duplicate(self) -> None:
        """Log that another router has the id of this one."""
        self._outbox.log_once(
            "ROUTER_HELLO",
            CRITICAL,
            f"Detected another router with the id of this one, {self._local.id}: each router of a network needs its own"
            " id",
        )

    # -- adjacency

    def _choose(self, neighbour: Neighbour) -> tuple[int, tuple[int, ...], bool]:
        """Return (cost, links, ours) of a neighbour; links is empty if none is confirmed.

        All links of the lowest cost are used for Sluice. One link is used for 1.19, which has one connection to a
        neighbour. inter-router-protocol.md 4.2, 10; inter-router.md 2.10.
        """
        usable = [
            link
            for link in self._table.links.values()
            if link.peer == neighbour.id and link.confirmed is not None and link.doubted is None
        ]
        if not usable:
            return 0, (), False
        if all(link.ours for link in usable):
            cost = min(link.cost for link in usable)
            return cost, tuple(sorted(link.number for link in usable if link.cost == cost)), True
        kept = [link for link in usable if link.number in neighbour.links]
        best = min(kept or usable, key=lambda link: (link.cost, link.number))
        return best.cost, (best.number,), False

    def _update(self, router_id: str, now: float) -> None:
        """Update a neighbour after a change of its links."""
        neighbour = self._table.known.get(router_id)
        if neighbour is None:
            return
        cost, links, ours = self._choose(neighbour)
        if not links:
            self._table.held.discard(router_id)
            neighbour.forget_at = now + _FORGET
            if neighbour.announced:
                self._lose(neighbour, now)
            return
        if not neighbour.announced:
            if now < self._held_until(neighbour):
                if router_id not in self._table.held:
                    wait = self._held_until(neighbour) - now
                    self._outbox.log(
                        "ROUTER_LS", NOTICE, f"Neighbor Router {router_id} is unstable: not used for {wait:.1f} s"
                    )
                self._table.held.add(router_id)
                return
            self._table.held.discard(router_id)
            neighbour.announced = True
            self._table.announced[router_id] = neighbour
            neighbour.cost, neighbour.links, neighbour.ours = cost, links, ours
            self._outbox.log("ROUTER_LS", DEBUG, f"Node {router_id} link set: link_id={links[0]}")
            self._listener.neighbour_changed(neighbour, False, now)
        elif (cost, links) != (neighbour.cost, neighbour.links):
            worse = cost > neighbour.cost or not set(neighbour.links) <= set(links)
            neighbour.cost, neighbour.links, neighbour.ours = cost, links, ours
            self._listener.neighbour_changed(neighbour, worse, now)

    def _held_until(self, neighbour: Neighbour) -> float:
        damping = neighbour.damping
        node = self._nodes.by_id.get(neighbour.id)
        reached = node is not None and node.path is not None
        return damping.held_until if reached else damping.held_alone_until

    def _lose(self, neighbour: Neighbour, now: float) -> None:
        neighbour.announced = False
        del self._table.announced[neighbour.id]
        self._outbox.log("ROUTER_LS", INFO, f"Link to Neighbor Router Lost - link_tag={neighbour.links[0]}")
        neighbour.links = ()
        neighbour.damping.lost(now)
        self._listener.neighbour_changed(neighbour, True, now)

    # -- time

    def instance_raised(self, now: float) -> None:
        """Send HELLOs with the raised local instance in the next tick."""
        self.hello_at = now

    def went_on(self, now: float) -> None:
        """Restart the HELLO timeouts because this router did not run for a while."""
        for router_id in self._last_hello:
            self._last_hello[router_id] = now
        for link in self._table.links.values():
            if link.confirmed is not None:
                link.confirmed = now

    def expire(self, now: float) -> None:
        """Remove silent neighbours."""
        oldest = now - self._local.timers.hello_max_age
        for router_id in [router_id for router_id, last in self._last_hello.items() if last < oldest]:
            del self._last_hello[router_id]
        for link in list(self._table.links.values()):
            if link.peer is not None and link.confirmed is not None and link.confirmed < oldest:
                link.confirmed = None
                self._update(link.peer, now)
        for neighbour in [found for found in self._table.known.values() if found.forget_at is not None]:
            if neighbour.forget_at is not None and neighbour.forget_at < now:
                del self._table.known[neighbour.id]

    def release(self, now: float) -> None:
        """Announce neighbours whose delay has ended."""
        for router_id in [found for found in self._table.held if self._held_until(self._table.known[found]) <= now]:
            self._update(router_id, now)

    def deadline(self) -> float:
        if not self._table.held:
            return self.hello_at
        return min(self.hello_at, *(self._held_until(self._table.known[found]) for found in self._table.held))
