"""Row about the longest latencies while the router has other work to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from loadtests.management import manage
from loadtests.measuring import BODY, FULL, WARM_SECONDS, Bench, Readings
from loadtests.processes import BenchRouter, MeasureError, Relay
from loadtests.report import Figure, ratio_at_most
from loadtests.storm import OPEN, OPENED, StormClient, leave_in_order

PACED_RATE = 10_000  # messages/s
CONNECTS = 100  # connections opened and closed a second
POLL_EVERY = 1.0  # seconds between queries to management
RELOAD_EVERY = 10.0
TYPES = ("router", "connection", "router.link", "router.address")  # queried types
SECONDS = 60.0  # duration of a round of the full effort: five minutes for each number of workers
QUICK_SECONDS = 8.0
P99, P999 = 3.0, 10.0  # limits, relative to the relay


class Disturbance:
    """Other work beside the load: its threads, and the first fault of any.

    Takes little CPU from the router: clients send prepared octets, and management is queried over one connection, as
    by a monitor.
    """

    def __init__(self, router: BenchRouter) -> None:
        self._router = router
        self._text = router.configuration.read_text()
        self._over = threading.Event()
        self._monitor = manage(router)
        self._fault: Exception | None = None
        self._threads = [
            threading.Thread(target=self._repeat, args=(every, act), daemon=True)
            for every, act in ((1 / CONNECTS, self._connect), (POLL_EVERY, self._poll), (RELOAD_EVERY, self._reload))
        ]
        self._reloads = 0
        for thread in self._threads:
            thread.start()

    def _repeat(self, every: float, act: Callable[[], None]) -> None:
        due = time.monotonic()
        while not self._over.is_set():
            try:
                act()
            except (MeasureError, EOFError, OSError) as error:
                self._fault = self._fault or error
                return
            due = max(due + every, time.monotonic() - every)
            self._over.wait(due - time.monotonic())

    def _connect(self) -> None:
        client = StormClient(self._router.port)
        client.send(OPENED)
        client.wait(OPEN)
        leave_in_order(client)

    def _poll(self) -> None:
        for kind in TYPES:
            self._monitor.rows(kind, ["name"])

    def _reload(self) -> None:
        """Reload with another address each time."""
        self._reloads += 1
        more = f"address {{\n    prefix: more{self._reloads}\n    distribution: closest\n}}\n"
        self._router.configuration.write_text(self._text + more)
        self._router.hang_up()

    def end(self) -> None:
        """Stop the threads. Raises MeasureError if any of them failed."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._monitor.close()
        if self._fault is not None:
            raise MeasureError(f"beside the load: {self._fault}")


@contextmanager
def disturbed(router: BenchRouter) -> Iterator[None]:
    """Poll management, connect and disconnect clients, and change the configuration. Raises MeasureError at the end."""
    disturbance = Disturbance(router)
    try:
        yield
    finally:
        disturbance.end()


def tails(bench: Bench) -> list[Figure]:
    """Measure the longest latencies through one worker and through two, in turn with the relay beside the same work."""
    figures = []
    load: dict[str, object] = {"rate": PACED_RATE, "size": BODY}
    seconds = SECONDS if bench.effort is FULL else QUICK_SECONDS
    for workers in (1, 2):
        place: dict[str, object] = {"place": "apart"} if workers > 1 else {}
        mine, theirs = Readings(), Readings()
        with Relay() as relay, bench.router(workers) as router:
            router.load(seconds=WARM_SECONDS, **load, **place)
            relay.load(seconds=WARM_SECONDS, **load)
            with disturbed(router):
                for _ in range(bench.effort.rounds):
                    mine.append(router.load(seconds=seconds, **load, **place))
                    theirs.append(relay.load(seconds=seconds, **load))
        for key, limit in (("p99", P99), ("p99.9", P999)):
            figures.append(
                Figure(
                    f"{PACED_RATE:,} /s beside other work, {workers} worker{'s' if workers > 1 else ''}: {key}",
                    mine.median("latency_us", key),
                    "µs",
                    ratio_at_most(limit),
                    theirs.median("latency_us", key),
                )
            )
    return figures
