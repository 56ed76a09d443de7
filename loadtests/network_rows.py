"""Rows about networks of routers: one more hop, a lost path, and many routers that discover each other."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

from loadtests.configuration import (
    configuration_text,
    connector,
    listener,
    router_configuration,
    router_section,
)
from loadtests.management import manage, wait_until
from loadtests.measuring import BODY, CREDIT, Bench, Readings
from loadtests.processes import ROOT, BenchRouter, MeasureError, Relay, load
from loadtests.report import Figure, at_most, ratio_at_least
from sluice.router.cli.client import UnknownRouter
from tests.system.router import free_port

# deliveries/s, far below capacity, so that latency is not queueing. At the last rate, seven wakes of four processes
# for each delivery nearly fill the pause before the next one, on two virtual cores that halt when idle.
PACED_RATES = (1_000, 5_000, 10_000)
FIXED_CAPACITY = 250  # linkCapacity of a row: what Dispatch has by default
KNOWN_LIMIT = 60.0  # seconds until routers must know each other
FLOW_LIMIT = 20.0  # seconds until messages must flow
LOSSES = 5  # number of times that a path is cut
FLOW_PAUSE = 0.001  # seconds between two batches of messages while a path is cut
UNSETTLED = 100  # unsettled messages at a time
RING = 32  # routers
ASK_PAUSE = 0.05  # seconds until a router is queried again
CHORD = 5  # distance of a chord's end, from every second router of the ring


def interior(
    name: str,
    listens: int | None = None,
    connects: Iterable[int] = (),
    workers: int = 1,
    capacity: int | None = None,
) -> str:
    """Return the configuration of an interior router: a listener for clients, one for routers, connectors to ports.

    capacity: linkCapacity of the clients' listener; None: it adapts.
    """
    client = listener(linkCapacity=capacity)
    routers = [] if listens is None else [listener("routers", port=listens, role="inter-router")]
    to = [connector(port, role="inter-router") for port in connects]
    return configuration_text(router_section(workers, name, "interior"), client, *routers, *to)


def wait_known(router: BenchRouter, costs: dict[str, int]) -> None:
    """Wait until a router knows exactly these other routers at these costs. Raises MeasureError."""
    with manage(router) as client:
        wait_until(
            f"routers and costs {costs}",
            lambda: {row["id"]: row["cost"] for row in client.rows("router.node") if row["cost"] is not None},
            costs.__eq__,
        )


@contextmanager
def hop(bench: Bench, capacity: int | None = None) -> Iterator[tuple[BenchRouter, BenchRouter]]:
    """Run two routers of one worker each; yield when they know each other."""
    port = free_port()
    a_text, b_text = interior("A", port, capacity=capacity), interior("B", None, [port], capacity=capacity)
    with bench.router(1, a_text) as a, bench.router(1, b_text) as b:
        wait_known(a, {"B": 1})
        wait_known(b, {"A": 1})
        yield a, b


def through(a: BenchRouter, b: BenchRouter, **options: object) -> dict[str, Any]:
    """Run amqpload from one router to another. Return its report."""
    return load(port=a.port, receiver_port=b.port, **options)


@contextmanager
def relays() -> Iterator[tuple[Relay, Relay]]:
    """Run a byte relay, and one in front of it: the minimal cost of a hop on this machine."""
    with Relay() as one, Relay(one) as two:
        yield one, two


def one_hop(bench: Bench) -> list[Figure]:
    """Measure 100-byte messages over one hop, settled by the receiver, in turn with one router."""
    with relays() as (one, two):
        relay, further = bench.in_turn(partial(one.load, size=BODY), partial(two.load, size=BODY))
    return [
        *hop_rate(bench, "1 hop"),
        *hop_rate(bench, f"1 hop, linkCapacity {FIXED_CAPACITY}", FIXED_CAPACITY),
        Figure(
            "1 relay more, unsettled", further.median("per_second"), "/s", None, relay.median("per_second"), "one relay"
        ),
    ]


def hop_rate(bench: Bench, what: str, capacity: int | None = None) -> list[Figure]:
    """Measure rate and CPU over a hop, beside a single router. capacity: linkCapacity; None: it adapts."""
    options: dict[str, object] = {"size": BODY, "credit": capacity or CREDIT}
    with bench.router(1, router_configuration(1, capacity)) as router, hop(bench, capacity) as (a, b):
        alone, first, second = bench.in_turn(
            partial(router.load, **options),
            partial(through, a, b, pid=a.pid, **options),
            partial(through, a, b, pid=b.pid, **options),
        )
    rates = Readings([*first, *second]).median("per_second")
    cpu = ("router_cpu", "us_per_delivery")
    limit = at_most(0.6)
    return [
        Figure(f"{what}, unsettled", rates, "/s", ratio_at_least(0.6), alone.median("per_second"), "no hop"),
        Figure(f"{what}: CPU of the sender's router", first.median(*cpu), "µs a delivery", limit),
        Figure(f"{what}: CPU of the receiver's router", second.median(*cpu), "µs a delivery", limit),
    ]


def hop_latency(bench: Bench) -> list[Figure]:
    """Measure the latency that a hop adds at rates far below capacity."""
    figures = []
    with bench.router(1) as router, hop(bench) as (a, b), relays() as (one, two):
        for rate in PACED_RATES:
            options: dict[str, object] = {"size": BODY, "rate": rate}
            loads = (one.load, two.load, router.load, partial(through, a, b))
            relay, further, alone, far = bench.in_turn(*(partial(each, **options) for each in loads))
            p50, p99 = ("latency_us", "p50"), ("latency_us", "p99")
            added = far.median(*p50) - alone.median(*p50)
            by_relay = further.median(*p50) - relay.median(*p50)
            figures += [
                Figure(
                    f"1 hop, {rate:,} /s: added to the median latency",
                    added,
                    "µs",
                    at_most(40),
                    by_relay,
                    "a relay more",
                ),
                Figure(f"1 hop, {rate:,} /s: latency p99", far.median(*p99), "µs", None, alone.median(*p99), "no hop"),
            ]
    return figures


# Lost paths


class MeasuredFlow(MessagingHandler):
    """Sender at one router and receiver at another, in a thread: numbered messages, unsettled.

    `sent`, `arrived`: times by number, in seconds of the monotonic clock; `accepted`: numbers; `failure`: first error
    of a connection or link.
    """

    def __init__(self, into: int, out: int) -> None:
        super().__init__(prefetch=1000)
        self._ports = into, out
        self._sender: Any = None
        self._numbers: dict[Any, int] = {}
        self._thread = threading.Thread(target=lambda: Container(self).run(), daemon=True)
        self._stopping = False
        self.sent: dict[int, float] = {}
        self.arrived: dict[int, float] = {}
        self.accepted: set[int] = set()
        self.failure: str | None = None

    def __enter__(self) -> MeasuredFlow:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        self._thread.join()

    def on_start(self, event: Any) -> None:
        """Connect both clients."""
        urls = [f"amqp://127.0.0.1:{port}" for port in self._ports]
        into, out = [event.container.connect(url, reconnect=False, allowed_mechs="ANONYMOUS") for url in urls]
        event.container.create_receiver(out, "bench")
        self._sender = event.container.create_sender(into, "bench")
        event.container.schedule(FLOW_PAUSE, self)

    def on_timer_task(self, event: Any) -> None:
        """Send messages as credit and window allow."""
        if self._stopping:
            event.container.stop()
            return
        while self._sender.credit > 0 and len(self._numbers) < UNSETTLED:
            number = len(self.sent)
            self.sent[number] = time.monotonic()
            self._numbers[self._sender.send(Message(body=number))] = number
        event.container.schedule(FLOW_PAUSE, self)

    def on_accepted(self, event: Any) -> None:
        """Record the accepted message."""
        self.accepted.add(self._numbers[event.delivery])

    def on_settled(self, event: Any) -> None:
        """Make room for another message, accepted or not."""
        self._numbers.pop(event.delivery, None)

    def on_message(self, event: Any) -> None:
        """Record the arrival of a message."""
        self.arrived.setdefault(event.message.body, time.monotonic())

    def on_link_error(self, event: Any) -> None:
        """Record the error: clients must not notice the lost path."""
        self.failure = f"link: {event.link.remote_condition}"

    def on_transport_error(self, event: Any) -> None:
        """Record the error: clients must not notice the lost path."""
        self.failure = f"connection: {event.transport.condition}"

    def wait(self, since: float, limit: float = FLOW_LIMIT) -> float:
        """Wait for a message sent after `since`; return its arrival time. Raises MeasureError."""
        until = time.monotonic() + limit
        while time.monotonic() < until:
            times = [self.arrived[n] for n, sent in self.sent.copy().items() if sent > since and n in self.arrived]
            if times:
                return min(times)
            time.sleep(0.002)
        raise MeasureError(f"no message arrived within {limit:g} s; {self.failure or 'no client has failed'}")


@contextmanager
def wire(port: int) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Open a TCP connection to a port that can be cut. Yields the port to connect to, and the process to kill."""
    command = [sys.executable, "-m", "loadtests.cable", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline()), process
    finally:
        process.kill()
        process.communicate()


class PathLoss(NamedTuple):
    """Effect of a lost path: seconds until messages arrive on another one, and acknowledged messages that were lost."""

    seconds: float
    lost: int


def lose_path(a: BenchRouter, b: BenchRouter, cable: subprocess.Popen[str]) -> PathLoss:
    """Cut a connection while messages flow from a client of `a` to one of `b`. Raises MeasureError if one notices."""
    with MeasuredFlow(a.port, b.port) as flow:
        flow.wait(time.monotonic(), KNOWN_LIMIT)
        time.sleep(0.5)
        cut = time.monotonic()
        cable.kill()
        seconds = flow.wait(cut) - cut
        time.sleep(0.2)
    if flow.failure is not None:
        raise MeasureError(f"a client noticed: {flow.failure}")
    return PathLoss(seconds, len(flow.accepted - flow.arrived.keys()))


def loss_figures(what: str, other: str, losses: Sequence[PathLoss], most: float) -> list[Figure]:
    """Return the figures of a path that was lost several times. most: milliseconds until messages arrive."""
    seconds = [loss.seconds for loss in losses]
    return [
        Figure(f"{what}: messages on the {other}", 1000 * median(seconds), "ms after the cut", at_most(most)),
        Figure(f"{what}: the longest", 1000 * max(seconds), "ms after the cut", None),
        Figure(f"{what}: acknowledged and lost", sum(loss.lost for loss in losses), "messages", at_most(0)),
    ]


def path_lost(bench: Bench) -> list[Figure]:
    """Cut the connection between two of three routers; measure the time until messages arrive through the third."""
    losses = []
    for _ in range(min(bench.effort.rounds, LOSSES)):
        a_port, b_port = free_port(), free_port()
        with ExitStack() as stack:
            a = stack.enter_context(bench.router(1, interior("A", a_port)))
            near, cable = stack.enter_context(wire(a_port))
            b = stack.enter_context(bench.router(1, interior("B", b_port, [near])))
            stack.enter_context(bench.router(1, interior("C", None, [a_port, b_port])))
            wait_known(a, {"B": 1, "C": 1})
            wait_known(b, {"A": 1, "C": 1})
            losses.append(lose_path(a, b, cable))
    return loss_figures("path lost", "new path", losses, 100)


# Large networks


def wait_all_known(router: BenchRouter, names: Sequence[str]) -> None:
    """Wait until each of these routers has a path to all others. Raises MeasureError.

    `router`, one of them, forwards the queries, which keeps their cost low.
    """
    all_others = len(names) - 1
    with manage(router) as client:

        def known(at: str | None) -> int:
            try:
                return sum(row["cost"] is not None for row in client.rows("router.node", at=at))
            except UnknownRouter:  # a path to it can be lost again while routers still start
                return 0

        for at in [None, *(f"_topo/0/{name}/$management" for name in names)]:
            wait_until(f"all known at {at or 'the first router'}", partial(known, at), all_others.__eq__, ASK_PAUSE)


def start_all(stack: ExitStack, routers: Sequence[BenchRouter]) -> None:
    """Start routers concurrently. They stop concurrently when the stack unwinds."""
    with ThreadPoolExecutor(len(routers)) as pool:
        list(pool.map(lambda router: router.__enter__(), routers))

    def stop() -> None:
        with ThreadPoolExecutor(len(routers)) as pool:
            list(pool.map(lambda router: router.__exit__(None, None, None), routers))

    stack.callback(stop)


def cold_start(bench: Bench) -> list[Figure]:
    """Start routers in a ring with chords concurrently; measure the time until each has a path to all others."""
    ports = [free_port() for _ in range(RING)]
    routers = []
    for number, port in enumerate(ports):
        to = [ports[(number + 1) % RING]]
        if number % 2 == 0:
            to.append(ports[(number + CHORD) % RING])
        routers.append(bench.router(1, interior(f"R{number}", port, to)))
    with ExitStack() as stack:
        before = time.monotonic()
        start_all(stack, routers)
        listening = time.monotonic()
        wait_all_known(routers[0], [f"R{number}" for number in range(RING)])
        known = time.monotonic()
    title = f"{RING} routers in a ring with chords"
    return [
        Figure(f"{title}: from start to convergence", known - before, "s", at_most(10)),
        Figure(f"{title}: from the last that listens", known - listening, "s", None),
    ]
