"""Row about single steps that clients can cause, in a router with many objects: their CPU time must not grow with the
number of objects.

Each step is measured in a router without sockets (engine, table and supervisor are the real ones) that has N copies,
queued deliveries, addresses, consumers, producers or links. A step that iterates over all N costs in proportion to N.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from loadtests.measuring import FULL, Bench
from loadtests.report import Figure, ratio_at_most
from tests.component.engine.host import InProcessPeer, InProcessRouter, configuration
from tests.peer.frames import ACCEPTED
from tests.peer.talk import consumer, flow, message, producer, say, settle, start, transfer

#: Cache misses at a larger N make a constant step a few times as expensive. A walk over all objects costs sixteen
#: times as much.
MOST_GROWTH: Final = 5.0
SIZES: Final = (1000, 16000)  # values of N
QUICK_SIZES: Final = (500, 8000)
STEPS: Final = 1000
CREDIT: Final = 250  # initial credit of a producer
TRIALS: Final = 3

#: Function that prepares N objects and returns the function of the steps, and their number.
CostlySteps = Callable[[InProcessRouter, int], tuple[Callable[[], object], int]]


def quiet(peer: InProcessPeer) -> InProcessPeer:
    """Drop the output for a peer, and return the peer."""
    peer.take()
    return peer


def client(router: InProcessRouter, octets: bytes) -> InProcessPeer:
    """Connect a client that has sent these frames and received the answers."""
    peer = router.connect()
    peer.feed(start() + octets)
    router.settle()
    return quiet(peer)


def multicast(router: InProcessRouter, size: int) -> tuple[Callable[[], object], int]:
    """Consumers of a multicast settle it one after the other."""
    receivers = client(router, b"".join(consumer(handle, "multicast.a") for handle in range(size)))
    sender = client(router, producer(0, "multicast.a"))
    sender.feed(transfer(0, 0, message(b"x")))
    router.settle()
    quiet(receivers)
    octets = b"".join(settle(number, None, ACCEPTED) for number in range(size))
    return lambda: receivers.feed(octets), size


def multicast_backwards(router: InProcessRouter, size: int) -> tuple[Callable[[], object], int]:
    """Consumers of a multicast settle it one after the other, in reverse order."""
    receivers = client(router, b"".join(consumer(handle, "multicast.a") for handle in range(size)))
    sender = client(router, producer(0, "multicast.a"))
    sender.feed(transfer(0, 0, message(b"x")))
    router.settle()
    quiet(receivers)
    octets = b"".join(settle(number, None, ACCEPTED) for number in reversed(range(size)))
    return lambda: receivers.feed(octets), size


def full_queue(router: InProcessRouter, size: int, address: str) -> InProcessPeer:
    """Queue `size` unsettled deliveries for a consumer without credit. Return another producer."""
    client(router, consumer(0, address, 0))
    senders = -(-size // CREDIT)
    octets = b"".join(producer(handle, address) for handle in range(senders))
    octets += b"".join(transfer(number // CREDIT, number, message(b"x")) for number in range(size))
    client(router, octets)
    return client(router, producer(0, address))


def drop_oldest(router: InProcessRouter, size: int) -> tuple[Callable[[], object], int]:
    """Send presettled deliveries to a full queue that drops its oldest ones."""
    sender = full_queue(router, size, "oldest.a")
    octets = b"".join(transfer(0, number, message(b"x"), settled=True) for number in range(STEPS))
    return lambda: sender.feed(octets), STEPS


def throttle(router: InProcessRouter, size: int) -> tuple[Callable[[], object], int]:
    """Send presettled deliveries to a full queue that drops them because the consumer has lacked credit for a while."""
    sender = full_queue(router, size, "balanced.a")
    router.pass_time(2000)
    octets = b"".join(transfer(0, number, message(b"x"), settled=True) for number in range(STEPS))
    return lambda: sender.feed(octets), STEPS


def refused(router: InProcessRouter, size: int) -> tuple[Callable[[], object], int]:
    """Refuse a receiver beside `size` addresses."""
    client(router, b"".join(consumer(handle, f"balanced.{handle}") for handle in range(size)))
    asking = client(router, b"")
    attaches = [consumer(handle, "", 0) + say("detach", handle=handle, closed=True) for handle in range(100)]

    def ask() -> None:
        for octets in attaches:
            asking.feed(octets)
            router.settle()

    return ask, len(attaches)


def early_loss(router: InProcessRouter, size: int) -> tuple[Callable[[], object], int]:
    """Lose the connection of receivers before they are answered."""
    client(router, b"".join(consumer(handle, f"balanced.{handle}") for handle in range(size)))
    asking = client(router, b"")
    asking.feed(b"".join(consumer(handle, f"balanced.{handle}", 0) for handle in range(STEPS)))
    return asking.lose, STEPS


def one_address(router: InProcessRouter, size: int) -> tuple[Callable[[], object], int]:
    """Detach one of the consumers of an address."""
    receivers = client(router, b"".join(consumer(handle, "balanced.a") for handle in range(size)))
    detaches = [say("detach", handle=handle, closed=True) for handle in range(size // 2, size // 2 + 200)]

    def detach() -> None:
        for octets in detaches:
            receivers.feed(octets)
            router.settle()

    return detach, len(detaches)


def many_producers(router: InProcessRouter, size: int) -> tuple[Callable[[], object], int]:
    """Attach a consumer to an address whose producers have credit, and detach it."""
    client(router, consumer(0, "balanced.a"))
    client(router, b"".join(producer(handle, "balanced.a") for handle in range(size)))
    coming = client(router, b"")
    attaches = [consumer(handle, "balanced.a", 0) + say("detach", handle=handle, closed=True) for handle in range(200)]

    def come() -> None:
        for octets in attaches:
            coming.feed(octets)
            router.settle()

    return come, len(attaches)


def ready_links(router: InProcessRouter, size: int) -> tuple[Callable[[], object], int]:
    """Detach receivers whose session has more to send, on `size` links, than the client reads."""
    octets = b"".join(consumer(handle, "multicast.a", 0) for handle in range(size))
    receivers = client(router, octets)
    sender = client(router, producer(0, "multicast.a"))
    sender.feed(transfer(0, 0, message(b"x"), settled=True))
    router.settle()
    receivers.blocked = True
    receivers.feed(b"".join(flow(handle, 10) for handle in range(size)))
    detaches = b"".join(say("detach", handle=handle, closed=True) for handle in reversed(range(size)))
    return lambda: receivers.feed(detaches), size


def empty_range(router: InProcessRouter, size: int) -> tuple[Callable[[], object], int]:
    """Settle delivery-ids that the receiver does not have, after it has had `size` deliveries at a time."""
    receiver = client(router, consumer(0, "balanced.a"))
    senders = -(-size // CREDIT)
    octets = b"".join(producer(handle, "balanced.a") for handle in range(senders))
    octets += b"".join(transfer(number // CREDIT, number, message(b"x")) for number in range(size))
    sender = client(router, octets)
    receiver.feed(settle(0, size - 1, ACCEPTED))
    router.settle()
    quiet(receiver)
    quiet(sender)
    octets = b"".join(settle(size + number, size + number + 999, ACCEPTED) for number in range(STEPS))
    return lambda: receiver.feed(octets), STEPS


STEPS_OF: Final[dict[str, CostlySteps]] = {
    "multicast": multicast,
    "multicast-backwards": multicast_backwards,
    "drop-oldest": drop_oldest,
    "throttle": throttle,
    "empty-range": empty_range,
    "refused": refused,
    "early-loss": early_loss,
    "one-address": one_address,
    "many-producers": many_producers,
    "ready-links": ready_links,
}


def step_cost(prepare: CostlySteps, size: int) -> float:
    """Return the CPU time of one step in microseconds, the best of TRIALS."""
    best = float("inf")
    for _ in range(TRIALS):
        with ExitStack() as stack:
            router = InProcessRouter(text=configuration("linkCapacity: 250"), links=size + 2000, addresses=size + 2000)
            stack.callback(router.close)
            work, steps = prepare(router, size)
            gc.collect()
            gc.disable()
            stack.callback(gc.enable)
            before = time.process_time()
            work()
            best = min(best, (time.process_time() - before) / steps)
    return best * 1e6


def costs(bench: Bench) -> list[Figure]:
    """Measure each step beside few and beside many objects."""
    few, many = SIZES if bench.effort is FULL else QUICK_SIZES
    return [
        Figure(
            f"{name}: a step, N = {many:,}",
            step_cost(prepare, many),
            "µs",
            ratio_at_most(MOST_GROWTH),
            step_cost(prepare, few),
            f"N = {few:,}",
        )
        for name, prepare in STEPS_OF.items()
    ]
