"""Draws of rounds. A round depends on its seed alone, never on time or on the router."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

MIB = 1 << 20
WIDE = (1 << 31) - 1
#: Octets of all messages of a round, and of the largest one.
ROUND_OCTETS = 10 * MIB
LARGEST = 4 * MIB
#: Messages for one address: too few to fill a queue, so that no presettled message may be dropped.
MOST_MESSAGES = 120
ROUTED = ("in", "out")
ADDRESSED = ("balanced", "closest", "multicast")
AUTO = ("auto_in", "auto_out")

#: Kinds of permanent misbehaviour.
GRUDGES = ("deaf", "shut", "unsettled", "no credit", "half a stream", "deaf broker", "shut broker", "busy")


@dataclass(eq=False)
class AddressSpec:
    """Address of one round. `kind`: a distribution, or a link route or auto link by its direction."""

    text: str
    kind: str
    #: connection of its broker
    broker: ConnectionSpec | None = None
    #: a party here never behaves, so messages to the address may fail
    grudge: bool = False

    def __str__(self) -> str:
        return f"{self.text} ({self.kind})"


@dataclass(frozen=True)
class MessageSpec:
    """Message to send. Abort and pause happen after so many octets."""

    size: int
    settled: bool = False
    abort_at: int | None = None
    pause_at: int | None = None
    pause: float = 0.0


@dataclass(eq=False)
class ProducerSpec:
    """Sending link. `cut`: (pattern, octets) of frames. `drain`: reaction to a drain."""

    uid: int
    address: AddressSpec
    messages: Sequence[MessageSpec]
    anonymous: bool = False
    cut: tuple[str, int] = ("full", 0)
    pace: float = 0.0
    drain: str = "send"
    #: sends for ever, repeating its last message
    endless: bool = False
    delay: float = 0.0


@dataclass(eq=False)
class ConsumerSpec:
    """Receiving link. `credit`: (pattern, number). `settle`: (pattern, seconds, number)."""

    uid: int
    address: AddressSpec
    credit: tuple[str, int] = ("window", 100)
    settle: tuple[str, float, int] = ("now", 0.0, 1)
    odd: float = 0.0
    delay: float = 0.0
    grudge: str = ""


@dataclass(eq=False)
class SessionSpec:
    """Session: incoming window in frames, the rule for reopening it, and the first transfer number."""

    window: int = WIDE
    reopen: str = "half"
    first_id: int = 0
    links: list[ProducerSpec | ConsumerSpec] = field(default_factory=list)
    shut: bool = False


@dataclass(eq=False)
class ConnectionSpec:
    """Connection. `role`: client, visitor (a broker that connects) or host (a broker that a connector connects to).

    Role `behind`: clients of a neighbour. `gush`: write all that credit and windows allow before reading again.
    """

    name: str
    router: int = 0
    role: str = "client"
    frame: int = 16384
    order: str = "turns"
    gush: bool = False
    receive_buffer: int | None = None
    listener: str = "clients"
    sessions: list[SessionSpec] = field(default_factory=list)
    #: never reads
    deaf: bool = False

    @property
    def broker(self) -> bool:
        """True if the router attaches the links."""
        return self.role in ("visitor", "host")


@dataclass(frozen=True)
class Incident:
    """Incident: its kind, party, time and duration."""

    at: float
    what: str
    connection: ConnectionSpec
    session: SessionSpec | None = None
    link: ProducerSpec | ConsumerSpec | None = None
    seconds: float = 0.0
    closed: bool = True


@dataclass(eq=False)
class Scenario:
    """Round to be played."""

    seed: int
    kind: str
    grudge: str = ""
    theme: str = ""
    seconds: float = 0.4
    addresses: list[AddressSpec] = field(default_factory=list)
    connections: list[ConnectionSpec] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)

    def links(self) -> list[tuple[ConnectionSpec, SessionSpec, ProducerSpec | ConsumerSpec]]:
        """Return all links with their connections and sessions."""
        return [(c, s, link) for c in self.connections for s in c.sessions for link in s.links]


THEMES = ("mixed", "mixed", "small", "streams", "streams", "windows", "gateway", "gateway", "own answers")


class ScenarioGenerator:
    """Draw of a scenario. `routers`: number of routers to connect to."""

    def __init__(self, seed: int, kind: str, routers: int, neighbour: bool) -> None:
        self.rng = random.Random(f"{seed}:{kind}:{routers}:{neighbour}")
        self.routers = routers
        self.neighbour = neighbour
        self.scenario = Scenario(seed, kind)
        self.left = ROUND_OCTETS
        self._uids = 0

    def __call__(self) -> Scenario:
        """Draw and return the scenario."""
        rng, scenario = self.rng, self.scenario
        scenario.theme = rng.choice(THEMES)
        scenario.seconds = rng.choice((0.1, 0.3, 0.6))
        if scenario.kind == "grudge":
            scenario.grudge = rng.choice(GRUDGES)
        if scenario.theme == "own answers" and scenario.kind != "grudge":
            self._own_answers()
            return scenario
        for number in range(rng.randint(1, 4)):
            self._connection(f"c{number}", "client")
        if self.neighbour:
            scenario.connections.append(ConnectionSpec("n", role="behind", sessions=[SessionSpec()]))
        brokers = rng.randint(1, 2) if scenario.theme == "gateway" else rng.choice((0, 0, 1))
        if scenario.grudge.endswith("broker"):
            brokers = max(1, brokers)
        for number in range(brokers):
            self._connection(f"b{number}", rng.choice(("visitor", "host")))
        for number in range(rng.randint(2, 5)):
            self._address(number)
        self._one_who_never_behaves()
        if scenario.kind != "grudge" and rng.random() < 0.6:
            for _ in range(rng.randint(1, 4)):
                self._incident()
        scenario.incidents.sort(key=lambda incident: incident.at)
        return scenario

    # --- connections --------------------------------------------------------------------------------------------------

    def _connection(self, name: str, role: str) -> ConnectionSpec:
        rng = self.rng
        small = self.scenario.theme == "windows"
        spec = ConnectionSpec(
            name,
            rng.randrange(self.routers),
            role,
            frame=rng.choice((512, 600, 1000, 4096, 16384, 65536, 1 << 20)),
            order=rng.choice(("turns", "turns", "serial", "random")),
            gush=rng.random() < 0.15,
            receive_buffer=rng.choice((None, 4096, 32768)),
            listener=rng.choice(("clients", "clients", "small")) if role == "client" else "brokers",
        )
        for _ in range(1 if role != "client" else rng.choice((1, 1, 1, 2, 3))):
            spec.sessions.append(
                SessionSpec(
                    rng.choice((1, 2, 3, 10))
                    if small and rng.random() < 0.7
                    else rng.choice((1, 5, 20, 200, WIDE, WIDE)),
                    rng.choice(("each", "half", "zero")),
                    rng.choice((0, 0, 1, (1 << 31) - 3, (1 << 32) - 3)),
                )
            )
        if rng.random() < 0.05:
            spec.sessions[0].window = (1 << 32) - 1
        self.scenario.connections.append(spec)
        return spec

    def _clients(self) -> list[ConnectionSpec]:
        return [spec for spec in self.scenario.connections if spec.role == "client" and not spec.deaf]

    def _ends(self) -> list[ConnectionSpec]:
        """Return the connections that may have links of addresses: clients, and a neighbour with the weight of all of
        them.
        """
        clients = self._clients()
        if self.scenario.grudge == "busy":
            return clients  # the neighbour of the tests is slow, and would be fully occupied
        behind = [spec for spec in self.scenario.connections if spec.role == "behind"]
        return clients + behind * len(clients)

    def _brokers(self) -> list[ConnectionSpec]:
        return [spec for spec in self.scenario.connections if spec.broker and not spec.deaf]

    def _place(self, connections: list[ConnectionSpec], link: ProducerSpec | ConsumerSpec) -> ConnectionSpec:
        spec = self.rng.choice(connections)
        self.rng.choice(spec.sessions).links.append(link)
        return spec

    # --- addresses ----------------------------------------------------------------------------------------------------

    def _address(self, number: int, kind: str = "", grudge: bool = False) -> AddressSpec:
        """Draw an address with its links."""
        rng, brokers = self.rng, self._brokers()
        gateway = self.scenario.theme == "gateway"
        kind = kind or rng.choice(ADDRESSED + (ROUTED + AUTO if brokers else ()) + (ROUTED * 3 if gateway else ()))
        name = f"s{self.scenario.seed}.{'g' if grudge else 'a'}{number}"
        broker = rng.choice(brokers) if kind in ROUTED + AUTO else None
        text = f"{kind}/{name}" if kind in ADDRESSED else f"balanced/{name}" if kind in AUTO else ""
        if broker is not None and kind in ROUTED:
            text = f"{broker.name}{kind}.{name}"
        address = AddressSpec(text, kind, broker, grudge)
        self.scenario.addresses.append(address)
        if kind in ROUTED:
            for end in range(rng.randint(1, 3)):
                own = AddressSpec(f"{text}.{end}", kind, broker, grudge)
                self.scenario.addresses.append(own)
                client, other = (self.producer(own), self.consumer(own))
                if kind == "out":
                    self._place([broker], client) if broker else None
                    self._place(self._clients(), other)
                else:
                    self._place(self._clients(), client)
                    self._place([broker], other) if broker else None
            self.scenario.addresses.remove(address)
            return address
        producers, consumers = rng.randint(1, 4), rng.randint(1, 3)
        same = rng.choice(self._ends()) if self.scenario.theme == "streams" and rng.random() < 0.7 else None
        for _ in range(1 if kind == "auto_in" else producers):
            where = [broker] if kind == "auto_in" and broker else [same] if same else self._ends()
            self._place(where, self.producer(address, producers))
        for _ in range(1 if kind == "auto_out" else consumers):
            where = [broker] if kind == "auto_out" and broker else self._ends()
            self._place(where, self.consumer(address))
        return address

    def producer(self, address: AddressSpec, others: int = 1) -> ProducerSpec:
        """Draw a producer of an address that has `others` producers."""
        rng = self.rng
        self._uids += 1
        settled = rng.choice((0.0, 0.0, 0.3, 1.0))
        messages: list[MessageSpec] = []
        aborts = rng.random() < 0.15
        for _ in range(rng.randint(1, max(1, min(40, MOST_MESSAGES // others)))):
            size = self._size()
            if size > self.left:
                break
            self.left -= size
            pause = rng.randint(0, size) if size > 1000 and rng.random() < 0.05 else None
            abort = rng.randint(0, size - 1) if aborts and size and rng.random() < 0.2 else None
            messages.append(MessageSpec(size, rng.random() < settled, abort, pause, rng.uniform(0.01, 0.3)))
        return ProducerSpec(
            self._uids,
            address,
            messages,
            anonymous=address.kind in ADDRESSED and not self.neighbour and rng.random() < 0.15,
            cut=rng.choice((("full", 0), ("full", 0), ("random", 0), ("fixed", rng.randint(1, 20000)), ("odd", 0))),
            pace=rng.choice((0.0, 0.0, 0.0, 0.002, 0.01)),
            drain=rng.choice(("send", "give")),
            delay=rng.choice((0.0, 0.0, 0.05, 0.2)),
        )

    def _size(self) -> int:
        rng, theme = self.rng, self.scenario.theme
        weights = {
            "streams": (1, 1, 2, 8, 4),
            "small": (8, 4, 0, 0, 0),
            "windows": (4, 6, 4, 1, 0),
        }.get(theme, (4, 5, 3, 2, 1))
        low, high = rng.choices(
            ((0, 100), (100, 5000), (5000, 60000), (100_000, 400_000), (MIB, LARGEST)), weights=weights
        )[0]
        return rng.randint(low, high)

    def consumer(self, address: AddressSpec) -> ConsumerSpec:
        """Draw a consumer of an address."""
        rng = self.rng
        self._uids += 1
        number = rng.choice((1, 2, 5, 10, 50, 300))
        pattern = rng.choice(("one", "window", "window", "burst", "drain", "settled"))
        if rng.random() < 0.02:
            pattern, number = "window", rng.choice(((1 << 31) - 1, 1 << 31, (1 << 32) - 1))
        settle = rng.choice(("now", "now", "late", "batch", "two", "hold"))
        return ConsumerSpec(
            self._uids,
            address,
            (pattern, number),
            (settle, rng.choice((0.0, 0.01, 0.1, 0.3)), rng.choice((2, 5, 10, 100))),
            odd=rng.choice((0.0, 0.0, 0.2)),
            delay=rng.choice((0.0, 0.0, 0.0, 0.05, 0.3)),
        )

    # --- incidents ----------------------------------------------------------------------------------------------------

    def _incident(self) -> None:
        rng = self.rng
        connection, session, link = rng.choice(self.scenario.links())
        what = rng.choice(("detach", "detach", "detach", "end", "drop", "close", "shut", "deaf", "flap"))
        if connection.role == "behind":
            return
        if connection.broker and what in ("end",):
            what = "detach"
        if what == "flap" and not self._brokers():
            what = "detach"
        if what == "detach" and connection.broker and link.address.kind in AUTO and rng.random() < 0.9:
            what = "shut"  # the router would take seconds to attach it again
        if what == "flap":
            connection = rng.choice(self._brokers())
        if connection.role == "host" and what in ("drop", "close"):
            what = "shut"
        self.scenario.incidents.append(
            Incident(
                rng.uniform(0.0, self.scenario.seconds),
                what,
                connection,
                session,
                link,
                rng.choice((0.0, 0.0, 0.02, 0.2)),
                rng.random() < 0.7,
            )
        )

    def _own_answers(self) -> None:
        """Draw one connection that sends large messages to itself, and grants credit behind its own output."""
        rng = self.rng
        spec = self._connection("c0", "client")
        spec.gush, spec.frame, spec.listener = True, rng.choice((16384, 65536)), "clients"
        session = spec.sessions[0]
        session.window = WIDE
        address = AddressSpec(f"balanced/s{self.scenario.seed}.own", "balanced")
        self.scenario.addresses.append(address)
        messages = [MessageSpec(rng.randint(MIB // 2, MIB)) for _ in range(rng.randint(8, 50))]
        number = rng.choice((2, 4, 10))
        session.links.append(ConsumerSpec(1, address, ("settled", number), ("now", 0.0, 1)))
        session.links.append(ProducerSpec(2, address, messages))

    def _one_who_never_behaves(self) -> None:
        """Draw the permanent misbehaviour, with addresses of its own, and producers or consumers among the others."""
        rng, grudge = self.rng, self.scenario.grudge
        if not grudge:
            return
        self.left = max(self.left, 4 * MIB)
        if grudge.endswith("broker"):
            broker = rng.choice(self._brokers())
            broker.deaf = grudge == "deaf broker"
            if broker.deaf:
                broker.receive_buffer = 4096
            broker.sessions[0].window = rng.choice((0, 1, 5))
            broker.sessions[0].shut = True
            for connection, _session, link in self.scenario.links():
                if link.address.broker is broker or connection is broker:
                    link.address.grudge = True
            return
        kinds = list(ADDRESSED) + (["out", "auto_in"] if self._brokers() else [])
        address = self._address(9, rng.choice(kinds), grudge=True)
        mine = [a for a in self.scenario.addresses if a is address or a.text.startswith(address.text + ".")]
        if grudge == "half a stream":
            for _c, _s, link in self.scenario.links():
                if link.address in mine and isinstance(link, ProducerSpec):
                    link.messages = [MessageSpec(MIB, pause_at=rng.choice((1000, 200_000, 700_000)), pause=1e9)]
            return
        if grudge == "busy":
            self._busy(mine)
            return
        own = None
        if grudge in ("deaf", "shut"):
            own = self._connection("g", "client")
            own.deaf = grudge == "deaf"
            own.receive_buffer = 4096
            own.sessions[0].window = rng.choice((0, 1, 10)) if grudge == "shut" else WIDE
            own.sessions[0].shut = grudge == "shut"
        for _c, session, link in self.scenario.links():
            if link.address in mine and isinstance(link, ConsumerSpec):
                link.credit, link.delay = ("window", 1000), 0.0
                link.grudge = grudge
                if own is not None:
                    session.links.remove(link)
                    own.sessions[0].links.append(link)
                elif grudge == "no credit":
                    link.credit = ("none", 0)
                else:
                    link.settle = ("never", 0.0, 1)
        for _c, _s, link in self.scenario.links():
            if link.address in mine and isinstance(link, ProducerSpec):
                large = rng.choice((1000, 60_000, 300_000, MIB))
                link.messages = [MessageSpec(large, rng.random() < 0.2) for _ in range(min(60, 3 * MIB // large))]

    def _busy(self, mine: list[AddressSpec]) -> None:
        """Draw a consumer with an endless backlog, in a session with other links and a small window."""
        rng = self.rng
        small = rng.choice((1, 2, 4, 10))
        for connection, session, link in self.scenario.links():
            if link.address not in mine:
                continue
            if isinstance(link, ProducerSpec):
                size = rng.choice((100, 5000))
                link.messages, link.endless, link.pace = [MessageSpec(size)], True, 0.0
                link.cut, link.delay = ("full", 0), 0.0
            else:
                link.credit, link.settle, link.delay, link.odd = ("window", 1000), ("now", 0.0, 1), 0.0, 0.0
                session.window = small
                session.reopen = "zero"
                if connection.role != "client":
                    continue
                # Other links in the same session, behind it.
                if any(each.text.endswith("a10") for each in self.scenario.addresses):
                    continue
                quiet = self._address(10, "balanced")
                for _c, other, one in self.scenario.links():
                    if one.address is quiet and isinstance(one, ConsumerSpec) and other is not session:
                        other.links.remove(one)
                        session.links.append(one)


def draw(seed: int, kind: str, routers: int = 1, neighbour: bool = False) -> Scenario:
    """Return the scenario of a seed. `neighbour`: there is a neighbour of 1.19, with clients."""
    return ScenarioGenerator(seed, kind, routers, neighbour)()
