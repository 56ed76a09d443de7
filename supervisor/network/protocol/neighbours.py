"""HELLO, and neighbours with their connections (inter-router.md 6)."""

from collections.abc import Callable
from typing import Final

from supervisor.network.protocol.damping import Damping
from supervisor.network.protocol.messages import Hello, encode_hello
from supervisor.network.protocol.nodes import LocalRouter
from supervisor.network.protocol.outbox import CRITICAL, DEBUG, INFO, NOTICE, WARNING, Outbox
from supervisor.network.protocol.paths import Edges
from supervisor.network.protocol.timers import Timers

_MAX_HELLO_IDS: Final = 4096  # ids; each is forgotten a few seconds after its last HELLO
_FORGET: Final = 600.0  # seconds after which a lost neighbour's penalty is dropped


class Link:
    """The control link of an inter-router connection."""

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
        self.only = only  # the id that the router on it may have; None: any
        self.peer: str | None = None  # sender of HELLO on it
        self.confirmed: float | None = None  # when its last HELLO named this router
        self.instance: int | None = None  # of its last HELLO
        self.process = 0  # likewise
        # Since when its HELLOs say another instance or process than those of the same id on other links. Unused then.
        self.doubted: float | None = None
        self.named_peer = False  # our last HELLO on it named the peer
        self.answers = 0  # HELLOs sent on it out of turn since the last one in turn


class Neighbour:
    """A router at the other end of one or more links."""

    __slots__ = ("announced", "cost", "damping", "forget_at", "id", "instance", "links", "ours", "process")

    def __init__(self, router_id: str, damping: Damping) -> None:
        self.id = router_id
        self.damping = damping
        self.announced = False  # it is in our link state
        self.cost = 0
        self.links: tuple[int, ...] = ()  # those in use; several: a bundle
        self.ours = False
        self.instance: int | None = None  # of its HELLOs
        self.process = 0  # likewise
        self.forget_at: float | None = None


def _same(link: Link, neighbour: Neighbour) -> bool:
    """Whether the last HELLO on a link is of the process that is the neighbour."""
    return (link.instance, link.process) == (neighbour.instance, neighbour.process)


class Neighbours:
    """Owner: the engine. `changed(neighbour, worse, now)` is called when one comes, goes, or changes links or cost.

    worse: something is lost, to be announced at once.
    """

    def __init__(
        self,
        local: LocalRouter,
        timers: Timers,
        outbox: Outbox,
        start: bytes,
        changed: Callable[[Neighbour, bool, float], None],
        reached: Callable[[str], bool],
    ) -> None:
        """start: of messages that this router originates. reached: there is a path to a router."""
        self._local = local
        self.timers = timers
        self._outbox = outbox
        self._start = start
        self._changed = changed
        self._reached = reached
        self._last_hello: dict[str, float] = {}  # by id: time of its last HELLO
        self.links: dict[int, Link] = {}
        self.known: dict[str, Neighbour] = {}  # announced ones, those to be announced later, and lost ones for a while
        self.announced: dict[str, Neighbour] = {}  # in the order in which they came
        self.held: set[str] = set()  # would be announced but for damping
        self.hello_at = 0.0

    # -- links

    def link_up(self, number: int, cost: int, ours: bool, now: float, only: str | None = None) -> None:
        link = self.links.get(number)
        if link is None:
            link = self.links[number] = Link(number, cost, ours, only)
            self._send_hello(link)
        elif link.cost != cost:
            link.cost = cost
            if link.peer is not None:
                self._update(link.peer, now)

    def link_down(self, number: int, now: float) -> None:
        link = self.links.pop(number, None)
        if link is not None and link.peer is not None:
            self._update(link.peer, now)

    def any_of_1_19(self) -> bool:
        return any(not link.ours for link in self.links.values())

    # -- HELLO

    def _hello(self, ours: bool, unseen: str | None = None) -> bytes:
        """ours: for Sluice neighbours. unseen: an id that it does not name."""
        seen = [router_id for router_id in self._last_hello if router_id != unseen]
        process = self._local.process if ours else 0
        return self._start + encode_hello(self._local.id, self._local.instance, seen, process)

    def _names_peer(self, link: Link) -> bool:
        return link.doubted is not None or link.peer in self._last_hello

    def _send_hello(self, link: Link) -> None:
        """HELLO on one link, out of turn."""
        link.answers += 1
        link.named_peer = self._names_peer(link)
        self._outbox.send(link.number, self._hello(link.ours, None if link.doubted is None else link.peer))

    def send_hellos(self, now: float) -> None:
        """HELLO on all links, in turn."""
        self.hello_at = now + self.timers.hello_interval
        if not self.links:
            return
        octets = {ours: self._hello(ours) for ours in {link.ours for link in self.links.values()}}
        for link in self.links.values():
            link.named_peer = self._names_peer(link)
            link.answers = 0
            doubted = link.doubted is not None
            self._outbox.send(link.number, self._hello(link.ours, link.peer) if doubted else octets[link.ours])

    def hello(self, number: int, message: Hello, now: float) -> bool:
        """A HELLO has come. True: each router gets the HELLOs of the other."""
        link = self.links[number]
        if link.only is not None and message.id != link.only:
            text = f"HELLO of router '{message.id}' dropped: it came from '{link.only}', and allowedRouters counts"
            self._outbox.log("ROUTER_HELLO", WARNING, text, "another id")
            return False
        if message.id == self._local.id:
            if message.instance != self._local.instance or message.process not in (0, self._local.process):
                self.log_duplicate()
            return False
        if message.id not in self._last_hello and max(len(self._last_hello), len(self.known)) >= _MAX_HELLO_IDS:
            return False
        self._last_hello[message.id] = now
        if link.peer != message.id:
            if link.confirmed is not None and self._local.id not in message.seen:
                return False  # another id on a neighbour's link: only noted
            before, link.peer = link.peer, message.id
            link.confirmed, link.named_peer = None, False
            link.instance = link.doubted = None
            link.process = 0
            if before is not None:
                self._update(before, now)
        if not link.named_peer and link.answers < self.timers.hello_answers:
            self._send_hello(link)
        if self._local.id not in message.seen:
            return False
        neighbour = self.known.get(message.id)
        if neighbour is None:
            neighbour = self.known[message.id] = Neighbour(message.id, Damping(self.timers))
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

    def _doubt(self, link: Link, neighbour: Neighbour, message: Hello, now: float) -> bool:
        """Whether a link belongs to another router that has the id of the neighbour by mistake.

        It does if its instance or process differs from that of confirmed links. These may be of a process that has
        ended, and then fall silent; if they continue, that is the proof. A router changes its instance on the same
        links when its clock was set back.
        """
        trusted = _same(link, neighbour)
        link.instance, link.process = message.instance, message.process
        others = [
            other
            for other in self.links.values()
            if other is not link and other.peer == neighbour.id and other.confirmed is not None
        ]
        if _same(link, neighbour):
            doubted = [other.doubted for other in others if other.doubted is not None]
            if doubted and now - min(doubted) >= self.timers.hello_interval:
                self._outbox.log_once(
                    "ROUTER_HELLO",
                    CRITICAL,
                    f"Detected two routers with the id {neighbour.id}: each router of a network needs its own id; the"
                    " one that was there first is used",
                )
            return False
        if not trusted and any(_same(other, neighbour) for other in others):
            return True
        neighbour.instance, neighbour.process = message.instance, message.process
        return False

    def log_duplicate(self) -> None:
        """Another router has the id of this one."""
        self._outbox.log_once(
            "ROUTER_HELLO",
            CRITICAL,
            f"Detected another router with the id of this one, {self._local.id}: each router of a network needs its own"
            " id",
        )

    def instance_of(self, router_id: str) -> int | None:
        """The instance in the HELLOs of a neighbour; None: it is none."""
        neighbour = self.known.get(router_id)
        if neighbour is None or not (neighbour.announced or router_id in self.held):
            return None
        return neighbour.instance

    # -- adjacency

    def _choose(self, neighbour: Neighbour) -> tuple[int, tuple[int, ...], bool]:
        """(cost, links, ours); no links: none is confirmed.

        For Sluice all links of the lowest cost; for 1.19, which uses one connection to a neighbour, one.
        """
        usable = [
            link
            for link in self.links.values()
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
        neighbour = self.known.get(router_id)
        if neighbour is None:
            return
        cost, links, ours = self._choose(neighbour)
        if not links:
            self.held.discard(router_id)
            neighbour.forget_at = now + _FORGET
            if neighbour.announced:
                self._lose(neighbour, now)
            return
        if not neighbour.announced:
            if now < self._held_until(neighbour):
                if router_id not in self.held:
                    wait = self._held_until(neighbour) - now
                    self._outbox.log(
                        "ROUTER_LS", NOTICE, f"Neighbor Router {router_id} is unstable: not used for {wait:.1f} s"
                    )
                self.held.add(router_id)
                return
            self.held.discard(router_id)
            neighbour.announced = True
            self.announced[router_id] = neighbour
            neighbour.cost, neighbour.links, neighbour.ours = cost, links, ours
            self._outbox.log("ROUTER_LS", DEBUG, f"Node {router_id} link set: link_id={links[0]}")
            self._changed(neighbour, False, now)
        elif (cost, links) != (neighbour.cost, neighbour.links):
            worse = cost > neighbour.cost or not set(neighbour.links) <= set(links)
            neighbour.cost, neighbour.links, neighbour.ours = cost, links, ours
            self._changed(neighbour, worse, now)

    def _held_until(self, neighbour: Neighbour) -> float:
        damping = neighbour.damping
        return damping.held_until if self._reached(neighbour.id) else damping.held_alone_until

    def _lose(self, neighbour: Neighbour, now: float) -> None:
        neighbour.announced = False
        del self.announced[neighbour.id]
        self._outbox.log("ROUTER_LS", INFO, f"Link to Neighbor Router Lost - link_tag={neighbour.links[0]}")
        neighbour.links = ()
        neighbour.damping.lost(now)
        self._changed(neighbour, True, now)

    def edges(self) -> Edges:
        """The local link state."""
        return tuple((neighbour.id, neighbour.cost) for neighbour in self.announced.values())

    # -- time

    def went_on(self, now: float) -> None:
        """This router did not run for a while: the time-outs of HELLOs begin again."""
        for router_id in self._last_hello:
            self._last_hello[router_id] = now
        for link in self.links.values():
            if link.confirmed is not None:
                link.confirmed = now

    def expire(self, now: float) -> None:
        """Remove silent neighbours."""
        oldest = now - self.timers.hello_max_age
        for router_id in [router_id for router_id, last in self._last_hello.items() if last < oldest]:
            del self._last_hello[router_id]
        for link in list(self.links.values()):
            if link.peer is not None and link.confirmed is not None and link.confirmed < oldest:
                link.confirmed = None
                self._update(link.peer, now)
        for neighbour in [found for found in self.known.values() if found.forget_at is not None]:
            if neighbour.forget_at is not None and neighbour.forget_at < now:
                del self.known[neighbour.id]

    def release(self, now: float) -> None:
        """Announce neighbours whose delay is over."""
        for router_id in [found for found in self.held if self._held_until(self.known[found]) <= now]:
            self._update(router_id, now)

    def deadline(self) -> float:
        if not self.held:
            return self.hello_at
        return min(self.hello_at, *(self._held_until(self.known[found]) for found in self.held))
