"""Generator of conversations between several random peers and a router."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.component.engine.replay import BETWEEN, Event
from tests.peer.random_peer import Habits, RandomPeer

BROKER = "broker"
LISTENERS = ("main", "main", "kept", "tenants", BROKER)
RING = 1 << 20  # octets, as in the supervisor: a quarter holds the largest record


@dataclass(frozen=True)
class OtherRouters:
    """Other routers of a conversation: the role of the tested router, and the routers that connect to it."""

    kind: str  # key of a case that gives the router its role
    model: type[RandomPeer]
    about: Callable[[Random, int, int], list[Event]]  # events that describe a router to the tested one


def timing(rng: Random, workers: int) -> list[Event]:
    """Return single wakes of workers and of the supervisor, between which input may arrive, and the order within a
    wake."""
    events: list[Event] = []
    for _ in range(rng.choice((0, 0, 0, 1, 1, 4))):
        choice = rng.random()
        if choice < 0.55:
            events.append(["supervise", rng.randrange(workers)])
        elif choice < 0.9:
            events.append(["wake", rng.randrange(workers)])
        else:
            events.append(["order", rng.randrange(workers), rng.randrange(4)])
    return events


def conversation(
    rng: Random,
    workers: int,
    others: OtherRouters | None = None,
    steps: Iterable[int] | None = None,
    habits: Habits | None = None,
) -> dict[str, Any]:
    """Return a case for `tests.component.engine.replay.play`.

    steps: number of events, each of which has its own decisions; wakes of workers and supervisor are decisions, too.
    None: the length of the case is a decision. habits: of all peers; None: a decision in a case with steps, else the
    default.
    """
    events: list[Event] = []
    clients: dict[int, RandomPeer] = {}
    rudeness = rng.choice((habits or Habits()).rudeness)
    most = rng.choice((1, 2, 3, 5))
    single_turns = steps is not None
    habits = habits or (Habits() if steps is None else Habits.chosen(rng))
    if steps is None:
        steps = range(rng.choice((10, 40, 150, 400)))
    orders: list[Event] = []
    if single_turns:
        orders = [["order", worker, rng.randrange(3)] for worker in range(workers)]
    next_number = index = 0
    routed: list[tuple[str, bool]] = []

    def feed(client: RandomPeer, octets: bytes) -> None:
        if client.now_spoiled and not client.spoiled:
            client.spoiled = True
            events.append(["spoiled", client.number])
        kind = "put" if single_turns and rng.random() < 0.5 else "feed"
        octets = client.pending + octets
        keep = rng.randrange(len(octets)) if octets and rng.random() < 0.1 else 0
        client.pending = octets[len(octets) - keep :] if keep else b""
        sent = octets[: len(octets) - keep]
        if rng.random() < 0.05 and len(sent) < 2000:
            events.extend([kind, client.number, sent[at : at + 7].hex()] for at in range(0, len(sent), 7))
        elif sent:
            events.append([kind, client.number, sent.hex()])

    for _ in steps:
        events += orders
        orders = []
        if others is not None and others.kind == "network" and rng.random() < 0.02 and index:
            key = rng.choice(("M0balanced.a", "M0multicast.a", "M0closest.a"))
            events.append([rng.choice(("announce", "withdraw")), rng.randrange(1, index + 1), key])
        if others is not None and len(clients) <= most and rng.random() < 0.3:
            index = index % 3 + 1
            client = clients[next_number] = others.model(rng, next_number, rudeness, routed)
            client.habits = habits
            events.append(["open", next_number, rng.randrange(workers), BETWEEN])
            feed(client, client.begin_connection())
            events.extend(others.about(rng, next_number, index))
            next_number += 1
            continue
        if len(clients) < most and rng.random() < 0.5:
            client = clients[next_number] = RandomPeer(rng, next_number, rudeness, routed)
            client.habits = habits
            listener = rng.choice(LISTENERS)
            client.broker = listener == BROKER
            events.append(["open", next_number, rng.randrange(workers), listener])
            feed(client, client.begin_connection())
            next_number += 1
            continue
        if not clients:
            continue
        client = rng.choice(list(clients.values()))
        if single_turns:
            events.extend(timing(rng, workers))
        feed(client, client.act())
        choice = rng.random()
        if single_turns and choice < 0.2:
            continue
        if choice < 0.35:
            events.append(["settle"])
        elif choice < 0.37:
            events.append(["time", rng.choice((1, 600, 1100, 5000))])
        elif choice < 0.39:
            events.append([rng.choice(("block", "unblock", "unblock")), client.number])
        elif choice < 0.395 or not client.open:
            events.append(["lose", client.number])
            del clients[client.number]
    case = {"workers": workers, "ring": RING, "spread": habits.spread, "events": events}
    return case | ({others.kind: True} if others else {})
