"""Random conversations of producers and consumers, played against a model.

A case is plain JSON, and each event is independent of the others, so that tests/fuzz/harness.py can shorten a failing
case.
"""

from collections.abc import Callable
from random import Random
from typing import Any, Final

import sluice.router.testing.engine as engine
from tests.component.engine.deliveries import states
from tests.component.engine.deliveries.client import FIRST, SERIAL, ClientLink, ClientSession, ModelledClient
from tests.component.engine.deliveries.model import LOSSES, DeliveryModel
from tests.component.engine.deliveries.topologies import CAPACITY, ConversationTopology, open_topology
from tests.peer.types import UByte

Case = dict[str, Any]
Event = list[Any]

PLACES: Final = ("router", "router", "hop", "edge", "routed")
PUMPS: Final = 10_000  # most iterations of one `rest`; more is an endless conversation, whatever the windows
#: Octets of states that one event causes, below the bound above which a session keeps only the kinds of states.
STATE_OCTETS: Final = 200_000
FIRST_IDS: Final = (0, 1000, SERIAL - 1, SERIAL - 5, SERIAL - 300, SERIAL // 2 - 10)
WINDOWS: Final = (3, 20, 2048, 2048)
SIZES: Final = (10, 10, 10, 300, 40_000)


# -- cases ------------------------------------------------------------------------------------------------------------


def conversation(rng: Random, *, many: bool, describe: Callable[[Random], bytes], events: int) -> Case:
    """Return a random case. many: thousands of deliveries are in flight. describe: returns an encoded state."""
    found: list[Event] = []
    case = {
        "place": rng.choice(PLACES),
        "workers": rng.choice((1, 3)),
        "consumers": [end(rng) for _ in range(rng.randint(1, 3))],
        "producers": [end(rng) for _ in range(rng.randint(1, 3))],
        "events": found,
    }
    while len(found) < events:
        found += random_events(rng, many, describe)
    return case


def end(rng: Random) -> dict[str, Any]:
    """Describe a client and its sessions, each with one or two links."""
    return {
        "router": rng.randrange(2),
        "worker": rng.randrange(3),
        "mode": rng.randrange(2),
        "sessions": [
            {
                "window": rng.choice(WINDOWS),
                "first": rng.choice(FIRST_IDS),
                "credits": [rng.choice((5, 200, CAPACITY)) for _ in range(rng.randint(1, 2))],
            }
            for _ in range(rng.randint(1, 2))
        ],
    }


def random_events(rng: Random, many: bool, describe: Callable[[Random], bytes]) -> list[Event]:
    """Return one event, or a few events of one client that the router reads in one batch."""
    count = rng.choice((1, 5, 50, 400, 1500)) if many else rng.choice((1, 1, 2, 5, 20))
    which = rng.randrange(12)
    choice = rng.random()
    if choice < 0.3:
        state = describe(rng).hex() if rng.random() < (0.05 if many else 0.3) else None
        return [["send", which, count, rng.choice(SIZES) if count < 50 else 10, rng.random() < 0.1, state]]
    if choice < 0.75:
        return [report(rng, which, many, describe) for _ in range(rng.choice((1, 1, 2, 4)))]
    if choice < 0.85:
        number = rng.choice((1, 2, 4))
        alike = rng.random() < 0.3
        kinds = [one.hex() for one in (states.siblings(rng, 4) if alike else [describe(rng) for _ in range(number)])]
        return [["shuffle", which, rng.random() < 0.7, rng.getrandbits(32), count, rng.choice((1, 3, 20, 200)), kinds]]
    if choice < 0.9:
        return [["credit", which, rng.choice((1, 10, CAPACITY))]]
    if choice < 0.96:
        return [["block", rng.randrange(6), rng.random() < 0.4]]
    return [[rng.choice(("detach", "detach", "end", "lose")), which]]


def report(rng: Random, which: int, many: bool, describe: Callable[[Random], bytes]) -> Event:
    """Return a disposition for a range that ends `back` ids before the last delivery of its session."""
    back = rng.choice((0, 1, 2, 7, 30, rng.randrange(2000 if many else 40)))
    count = rng.choice((1, 1, 2, 3, 10, 64, 65, 300, rng.randrange(1, 4000 if many else 60), 1 << 30))
    state = describe(rng).hex() if rng.random() < 0.85 else None
    settled = rng.random() < 0.5
    return ["report", which, rng.random() < 0.65, back, count, state, settled, rng.random() < 0.2]


# -- playing ----------------------------------------------------------------------------------------------------------


class DeliveryConversation:
    """Conversation on its routers."""

    def __init__(self, where: ConversationTopology, case: Case) -> None:
        self.place = where
        self.deliveries: dict[int, DeliveryModel] = {}
        self.address = "routed.a" if where.routed else "closest.a" if len(case["consumers"]) % 2 else "balanced.a"
        self.clients: list[ModelledClient] = []
        self.pending: ModelledClient | None = None  # client whose frames the router has not read
        self.consumers: list[ClientLink] = []
        self.producers: list[ClientLink] = []
        self.container: ModelledClient | None = None
        if where.routed:
            self.container = self.connect({"router": 0, "worker": 1}, "broker", "broker")
            self.rest()
        for number, described in enumerate(case["consumers"]):
            self.consumers += self.add(described, f"c{number}", sends=False)
        where.learn()
        for number, described in enumerate(case["producers"]):
            self.producers += self.add(described, f"p{number}", sends=True)
        where.learn()
        self.rest()

    def connect(self, described: dict[str, Any], name: str, listener: str = "main") -> ModelledClient:
        peer = self.place.connect(described["router"], described["worker"], listener)
        client = ModelledClient(peer, name, self.deliveries, routed=self.place.routed)
        self.clients.append(client)
        return client

    def add(self, described: dict[str, Any], name: str, *, sends: bool) -> list[ClientLink]:
        """Connect a client. Return its links, or the container's links at their other ends."""
        client = self.connect(described, name)
        grants: list[tuple[ClientLink, int]] = []
        for each in described["sessions"]:
            session = client.begin(each["window"], each["first"])
            for credit in each["credits"]:
                link = session.attach(self.address, sends, rcv_settle_mode=UByte(described["mode"]))
                link.mode = described["mode"]
                grants.append((link, credit))
        self.rest()
        if not sends:
            for record in client.peer.client.links.by_number.values():
                first = described["sessions"][0]["first"]
                engine.set_delivery_ids(record.link.session, first, 0)
        links = [link for link, _credit in grants]
        if self.container is not None:
            others, self.container.answered = self.container.answered, []
            assert len(others) == len(links)
            (self.consumers if sends else self.producers).extend(others)
            if sends:
                grants = [(other, credit) for other, (_link, credit) in zip(others, grants, strict=True)]
        if not sends or self.container is not None:
            for link, credit in grants:
                link.grant(credit)
        return links

    # -- events --------------------------------------------------------------------------------------------------------

    def play(self, event: Event) -> None:
        name, *arguments = event
        getattr(self, f"on_{name}")(*arguments)

    def link(self, links: list[ClientLink], which: int) -> ClientLink | None:
        """Return one of the live links. The routers come to rest first if another client was the last to write."""
        alive = [link for link in links if not link.ended]
        if not alive:
            return None
        found = alive[which % len(alive)]
        if self.pending is not found.session.client:
            self.rest()
            self.pending = found.session.client
        return None if found.ended else found

    def on_send(self, which: int, count: int, size: int, settled: bool, state: str | None) -> None:
        link = self.link(self.producers, which)
        if link is None:
            return
        octets = None if state is None else bytes.fromhex(state)
        frames = 1 + size // 15_000
        window = link.session.remote_window // frames
        for _ in range(min(count, link.credit, window, STATE_OCTETS // len(octets or b"x"))):
            delivery = DeliveryModel(len(self.deliveries), self.place.routed, settled, [octets])
            delivery.settled_by_router = link.mode == FIRST
            self.deliveries[delivery.number] = delivery
            if any(each.ended for each in self.consumers):
                # Either there is no consumer, or another router does not know yet that its own consumers have gone.
                delivery.may_end = LOSSES
            link.session.send(link, delivery, size, octets)

    def on_report(
        self, which: int, role: bool, back: int, count: int, state: str | None, settled: bool, batchable: bool
    ) -> None:
        link = self.link(self.consumers if role else self.producers, which)
        if link is None:
            return
        session = link.session
        if role and not session.received:
            return
        last = (session.last_came if role else session.next_id - 1) - back
        octets = None if state is None else bytes.fromhex(state)
        if octets is not None and len(octets) > states.SHORT_OCTETS:
            count = min(count, STATE_OCTETS // len(octets))
        self.say(session, role, last - count + 1, count, octets, settled=settled, batchable=batchable)

    def say(
        self, session: ClientSession, role: bool, first: int, count: int, state: bytes | None, *, settled: bool,
        batchable: bool = False,
    ) -> None:  # fmt: skip
        session.disposition(role, first % SERIAL, count, state, settled=settled, batchable=batchable)

    def on_shuffle(self, which: int, role: bool, seed: int, most: int, width: int, kinds: list[str]) -> None:
        """Settle up to `most` of the latest deliveries in shuffled ranges of up to `width`, some in two steps."""
        link = self.link(self.consumers if role else self.producers, which)
        if link is None:
            return
        rng = Random(seed)
        session = link.session
        if role and not session.received:
            return
        last = session.last_came if role else session.next_id - 1
        most = min(most, STATE_OCTETS // max(len(kind) for kind in kinds))
        ranges = []
        at = last - most + 1
        while at <= last:
            count = min(rng.randint(1, width), last - at + 1)
            ranges.append((at, count))
            at += count
        rng.shuffle(ranges)
        for first, count in ranges:
            state = bytes.fromhex(rng.choice(kinds))
            if rng.random() < 0.3:
                self.say(session, role, first, count, state, settled=False)
                if rng.random() < 0.5:
                    continue
            self.say(session, role, first, count, state if rng.random() < 0.8 else None, settled=True)

    def on_credit(self, which: int, credit: int) -> None:
        link = self.link(self.consumers, which)
        if link is not None:
            link.grant(credit)

    def on_block(self, which: int, blocked: bool) -> None:
        client = self.clients[which % len(self.clients)]
        self.rest()
        if not client.gone:
            client.peer.blocked = blocked
            self.rest()

    def on_detach(self, which: int) -> None:
        link = self.link([*self.consumers, *self.producers], which)
        if link is not None:
            link.session.put("detach", handle=link.handle, closed=True)
            self.lose([link])

    def on_end(self, which: int) -> None:
        link = self.link([*self.consumers, *self.producers], which)
        if link is not None and link.session.client is not self.container:
            link.session.put("end")
            link.session.ended = True
            self.lose(link.session.links)

    def on_lose(self, which: int) -> None:
        link = self.link([*self.consumers, *self.producers], which)
        if link is None or link.session.client is self.container:
            return
        client = link.session.client
        self.rest()
        client.gone = True
        client.peer.lose()
        self.lose([each for session in client.sessions for each in session.links])
        self.rest()

    def lose(self, links: list[ClientLink]) -> None:
        """Tell the model that the router has seen the end of these links."""
        for link in links:
            if link.ended:
                continue
            link.ended = True
            if self.place.routed:
                self.exclude_deliveries(link)
                continue
            for delivery in link.deliveries:
                if link.sends:
                    delivery.lose_producer()
                else:
                    delivery.lose_consumer()
            if not link.sends:
                for delivery in self.deliveries.values():
                    if not delivery.received and not delivery.over:
                        delivery.may_end = LOSSES

    def exclude_deliveries(self, link: ClientLink) -> None:
        """Exclude the deliveries of a routed link from the model, since one end of the link has gone."""
        for delivery in link.deliveries:
            delivery.excluded = True
        for delivery in self.deliveries.values():
            if not delivery.received:
                delivery.excluded = True

    # -- rest ----------------------------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Let routers and clients read until nothing moves, then check that every report has arrived."""
        self.pending = None
        for _ in range(PUMPS):
            moved = False
            for client in self.clients:
                moved |= client.write()
            self.place.settle()
            for client in self.clients:
                if not client.gone and not client.peer.blocked:
                    moved |= client.read()
            if not moved:
                break
        else:
            raise AssertionError(f"still not quiet after {PUMPS} times")
        self.check()

    def check(self) -> None:
        for client in self.clients:
            if client.gone or client.peer.blocked:
                continue
            for session in client.sessions:
                if session.ended:
                    continue
                for number, delivery in session.sent.items():
                    if not delivery.excluded:
                        delivery.to_producer.check_complete(f"{client.name}, id {number}, {delivery.where}")
                for number, delivery in session.received.items():
                    if not delivery.excluded and not delivery.consumer_lost:
                        delivery.to_consumer.check_complete(f"{client.name}, id {number}, {delivery.where}")
        self.place.check_quiet()

    def finish(self) -> None:
        """Let all deliveries end, and check that each of them has ended."""
        self.rest()
        for client in self.clients:
            if not client.gone:
                client.peer.blocked = False
        self.rest()
        for link in self.consumers:
            if not link.ended:
                link.grant(CAPACITY)
        self.rest()
        while self.take_all():
            self.rest()
        for session in (session for client in self.clients for session in client.sessions):
            for delivery in session.sent.values():
                ended = delivery.over or delivery.producer_lost or delivery.excluded
                assert ended, f"{delivery.where} does not end"

    def take_all(self) -> bool:
        """Let consumers settle all open deliveries and grant credit for the rest. Return True if there were any."""
        links = [link for link in self.consumers if not link.ended]
        open_ids = [
            (link.session, number)
            for link in links
            for number, one in link.session.received.items()
            if not (one.over or one.consumer_lost)
        ]
        for session, number in dict.fromkeys(open_ids):
            session.disposition(True, number, 1, states.ACCEPTED, settled=True, batchable=False)
        for link in links:
            if open_ids and link.credit < CAPACITY:
                link.grant(CAPACITY)
        return bool(open_ids)


def run(case: Case) -> None:
    """Play a case. Raises AssertionError where the routers and the model differ."""
    with open_topology(case["place"], case["workers"]) as where:
        play = DeliveryConversation(where, case)
        for event in case["events"]:
            play.play(event)
        play.finish()


# -- targets ----------------------------------------------------------------------------------------------------------


def settlement(rng: Random) -> Case:
    """Return a case with thousands of deliveries, settled in shuffled ranges."""
    return conversation(rng, many=True, describe=settlement_state, events=30)


def settlement_state(rng: Random) -> bytes:
    return states.state(rng) if rng.random() < 0.1 else states.plain_state(rng)


def delivery_states(rng: Random) -> Case:
    """Return a case with states in all encodings."""
    return conversation(rng, many=False, describe=states.state, events=40)


TARGETS: Final = {"settlement": settlement, "states": delivery_states}
