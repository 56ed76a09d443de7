"""Do reconnecting pairs meet on one worker? `python -m loadtests.reconnecting [--pairs N] [--workers N ...]`.

Pairs of a producer and a consumer, each a connection with a container id of its own, connect, leave, and reconnect in
another order. Each pair sends the same number of messages. The test counts the deliveries that cross workers, and the
connections of the fullest worker relative to the average: with `rememberedContainers: 0`, and with the default. Exit
status: 0 if the share is at most half of chance (1 - 1/workers) with a skew of at most 1.1, 1 if not, 2 if the test
cannot run.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import psutil

from loadtests.processes import DEFAULT_ROUTER, BenchRouter, MeasureError, raise_file_limit
from tests.peer import message
from tests.peer.peer import AmqpPeer, PeerLink, PeerReceiver, PeerSender
from tests.peer.wire import PeerError

MESSAGES = 10  # messages of a pair
SEED = 43  # seed of the order in which clients reconnect
GONE_WITHIN = 60.0  # seconds until connections must be closed
MOST_SKEW = 1.1
TURNS = 3  # times that the clients connect; the router does not know them the first time


@dataclass(frozen=True)
class PlacementResult:
    """Placement of a router's clients in the last turn.

    across: share of deliveries between two workers. skew: skew of connections. seconds: time for all clients to
    reconnect and attach.
    """

    workers: int
    remembered: bool
    deliveries: int
    across: float
    skew: float
    seconds: float

    @property
    def met(self) -> bool:
        """True if share and skew are within their limits."""
        return self.across <= (1 - 1 / self.workers) / 2 and self.skew <= MOST_SKEW


def configuration(workers: int, remembered: bool) -> str:
    """Return the configuration of a router with `workers` workers."""
    own = "" if remembered else "    rememberedContainers: 0\n"
    return (
        f"router {{\n    mode: standalone\n    id: bench\n    workerThreads: {workers}\n{own}}}\n"
        "listener {\n    host: 127.0.0.1\n    port: 0\n    idleTimeoutSeconds: 600\n}\n"
    )


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
    until = time.monotonic() + GONE_WITHIN
    while places(pid):
        if time.monotonic() > until:
            raise MeasureError("connections are not closed")
        time.sleep(0.05)


def measure(workers: int, pairs: int, remembered: bool, command: Sequence[str]) -> PlacementResult:
    """Let clients connect and leave. Raises MeasureError or PeerError."""
    order = random.Random(SEED)
    with BenchRouter(workers, command, text=configuration(workers, remembered)) as router:
        for turn in range(TURNS):
            began = time.monotonic()
            senders, receivers = come(router.port, pairs, order)
            seconds = time.monotonic() - began
            if turn + 1 < TURNS:
                leave(router.pid, [*senders, *receivers])
        deliveries = across = 0
        at = places(router.pid)
        for sender, receiver in zip(senders, receivers, strict=True):
            sender.wait_credit()
            for _ in range(MESSAGES):
                sender.send(message.message("x"), settled=True)
                receiver.next()
            deliveries += MESSAGES
            one, other = (at[peer.socket.getsockname()[1]] for peer in (sender.peer, receiver.peer))
            across += MESSAGES if one != other else 0
        counts = Counter(at.values())
        leave(router.pid, [*senders, *receivers])
    skew = max(counts.values()) * workers / counts.total()
    return PlacementResult(workers, remembered, deliveries, across / deliveries, skew, seconds)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line. Return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtests.reconnecting", description="Do pairs that come back meet on one worker?"
    )
    parser.add_argument("--pairs", type=int, default=500, help="(%(default)s)")
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4], help="(2 4)")
    parser.add_argument("--router", default=shlex.join(DEFAULT_ROUTER), help="its command (%(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args(words)
    raise_file_limit()
    met = True
    for workers in options.workers:
        for remembered in (False, True):
            try:
                found = measure(workers, options.pairs, remembered, shlex.split(options.router))
            except (MeasureError, PeerError, OSError) as error:
                print(f"reconnecting: {error}", file=sys.stderr)
                return 2
            met = met and (not remembered or found.met)
            if options.json:
                print(json.dumps(asdict(found)))
            else:
                print(
                    f"{workers} workers, {'remembered' if remembered else 'not remembered'}: {found.across:.1%} of "
                    f"{found.deliveries} deliveries across, skew {found.skew:.3f}, all back in {found.seconds:.1f} s",
                    flush=True,
                )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
