"""Row about reconnecting pairs: whether they meet on one worker.

Pairs of a producer and a consumer, each a connection with a container id of its own, connect, leave, and reconnect in
another order. The measured share is that of the deliveries that cross workers, with the default
`rememberedContainers`, beside a router that remembers none.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import psutil

from loadtests.configuration import configuration_text, listener, router_section
from loadtests.management import wait_until
from loadtests.measuring import FULL, Bench
from loadtests.report import Figure, at_most
from tests.peer import message
from tests.peer.peer import AmqpPeer, PeerLink, PeerReceiver, PeerSender

PAIRS, QUICK_PAIRS = 500, 100
WORKERS = (2, 4)
MESSAGES = 10  # messages of a pair
SEED = 43  # seed of the order in which clients reconnect
MOST_SKEW = 1.1
TURNS = 3  # times that the clients connect; the router does not know them the first time


class ClientPlacement(NamedTuple):
    """Placement of a router's clients in the last turn.

    across: share of deliveries between two workers. skew: connections of the fullest worker, relative to the average.
    seconds: time for all clients to reconnect and attach.
    """

    across: float
    skew: float
    seconds: float


def places(pid: int) -> dict[int, int]:
    """Return the process id of the worker by client port, for all connections of a router."""
    found: dict[int, int] = {}
    for process in psutil.Process(pid).children(recursive=True):
        for each in process.net_connections("tcp"):
            if each.raddr:
                found[each.raddr.port] = process.pid
    return found


def come(port: int, pairs: int, order: random.Random) -> tuple[list[PeerSender], list[PeerReceiver]]:
    """Connect all clients in random order. Return their links by pair."""
    sides = [(number, receives) for number in range(pairs) for receives in (False, True)]
    order.shuffle(sides)
    senders: dict[int, PeerSender] = {}
    receivers: dict[int, PeerReceiver] = {}
    for number, receives in sides:
        peer = AmqpPeer.opened(port, container_id=f"{'consumer' if receives else 'producer'}-{number}")
        if receives:
            receivers[number] = peer.receiver(f"pair/{number}", MESSAGES)
        else:
            senders[number] = peer.sender(f"pair/{number}", credit=False)
    return [senders[number] for number in range(pairs)], [receivers[number] for number in range(pairs)]


def leave(pid: int, links: Sequence[PeerLink]) -> None:
    """Disconnect all clients. Raises MeasureError."""
    for link in links:
        link.peer.close()
        link.peer.drop()
    wait_until("all connections closed", lambda: len(places(pid)), (0).__eq__)


def placement(bench: Bench, workers: int, pairs: int, remembered: int | None) -> ClientPlacement:
    """Let clients connect and leave. remembered: rememberedContainers; None: the default. Raises MeasureError or
    PeerError.
    """
    order = random.Random(SEED)
    own = router_section(workers, rememberedContainers=remembered)
    text = configuration_text(own, listener(linkCapacity=None, idleTimeoutSeconds=600))
    with bench.router(workers, text) as router:
        for turn in range(TURNS):
            began = time.monotonic()
            senders, receivers = come(router.port, pairs, order)
            seconds = time.monotonic() - began
            if turn + 1 < TURNS:
                leave(router.pid, [*senders, *receivers])
        across = 0
        at = places(router.pid)
        for sender, receiver in zip(senders, receivers, strict=True):
            sender.wait_credit()
            for _ in range(MESSAGES):
                sender.send(message.message("x"), settled=True)
                receiver.next()
            one, other = (at[peer.socket.getsockname()[1]] for peer in (sender.peer, receiver.peer))
            across += one != other
        counts = Counter(at.values())
        leave(router.pid, [*senders, *receivers])
    return ClientPlacement(across / pairs, max(counts.values()) * workers / counts.total(), seconds)


def reconnecting(bench: Bench) -> list[Figure]:
    """Measure the share of deliveries that cross workers, and the distribution of connections."""
    pairs = PAIRS if bench.effort is FULL else QUICK_PAIRS
    figures = []
    for workers in WORKERS:
        none, some = (placement(bench, workers, pairs, remembered) for remembered in (0, None))
        what, than = f"{pairs} pairs come back to {workers} workers", "none remembered"
        most = (1 - 1 / workers) / 2  # half of chance
        figures += [
            Figure(f"{what}: deliveries across", some.across, "of all", at_most(most), none.across, than),
            Figure(f"{what}: fullest worker", some.skew, "times the average", at_most(MOST_SKEW), none.skew, than),
            Figure(f"{what}: all are back", some.seconds, "s", None, none.seconds, than),
        ]
    return figures
