"""Rows about standing clients that lose their connections and come back at once: reconnect storms.

A client logs in, opens a connection with a session, attaches a receiver and a sender to an address of its own, and
stays, like a client library with one round trip for each step. Three storms follow each other:

- a: All clients connect at once to a running router, beside pairs that exchange messages through it, and others that
  exchange messages through the byte relay. These show what the storm's load on the machine does to any traffic.
- b: A worker of two is killed; its clients come back.
- c: The router is killed and started again on the same port; all clients come back.

The clients connect again without a pause, and never give up. As many connect at a time as there are. Those that
overflow the queue of the router's listening socket wait until their system sends the SYN again: 1 s, 3 s, 7 s … after
the first one. In the storms b and c, pairs would lose their connections as well, so the time is measured without them.

50,000 clients need a limit of 33,400 open descriptors for each process. With a lower limit there are fewer clients:
30,000 with 20,000 descriptors.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

import psutil

from loadtests.configuration import configuration_text, listener, router_section
from loadtests.haproxy import Certificate
from loadtests.measuring import BODY, FULL, Bench, memory_kib
from loadtests.operation_rows import WORKERS as WORKER_ROLE
from loadtests.operation_rows import Variant, encrypted, logging_in, role
from loadtests.processes import AMQPLOAD, BenchRouter, MeasureError, Relay, arguments, finish_load, start_load
from loadtests.report import Figure, ratio_at_most
from loadtests.storm_rows import LAST
from tests.system.router import free_port

CLIENTS = 50_000
SECURE_CLIENTS = 10_000
QUICK_DIVISOR = 10  # of the number of clients for a quick run
LEAST_QUICK = 2_000  # clients
WORKERS = 2
#: Share of the descriptor limit that a process uses for clients. In storm b the other worker gets more of them.
DESCRIPTORS_SHARE = 0.75
PAIRS = 20
PACED_RATE = 10_000  # messages/s of all pairs through the router together; as many through the byte relay
MOST_OF_RELAY = 2.0  # p99 of the pairs as a multiple of that through the byte relay, beside the same storm
STEADY_SECONDS = 2.5  # for which pairs are connected before the storm
ALONE_SECONDS = 4.0  # of the pairs without a storm
MOST_SECONDS = 300.0  # of a storm
STALL_SECONDS = 90  # without progress of the clients; their system sends a SYN again after 63 s at most
RETURN_SECONDS = 6.0  # until a quiet worker has returned the free memory of its heap to the system
CALM_SECONDS = 1.0  # between two samples of memory that must agree
CALM_KIB = 1024
CALM_SAMPLES = 10


def client_count(wanted: int, quick: bool) -> int:
    """Return the number of clients, which the descriptor limits of the workers bound."""
    if quick:
        wanted = min(wanted, max(LEAST_QUICK, wanted // QUICK_DIVISOR))
    return min(wanted, WORKERS * per_process())


def per_process() -> int:
    """Return the number of clients that a process has descriptors for."""
    return int(resource.getrlimit(resource.RLIMIT_NOFILE)[0] * DESCRIPTORS_SHARE)


class StandingClients:
    """Clients in as many processes of amqpload as descriptor limits require. They connect on entry, and stay.

    The processes have the lowest priority, so that their own computing is not measured.
    """

    def __init__(self, port: int, count: int, **options: object) -> None:
        share = per_process()
        parts = [min(share, count - done) for done in range(0, count, share)]
        self._words = [
            [*LAST, str(AMQPLOAD), *arguments({
                "port": port, "standing": part, "opening": part, "address": f"standing{number}",
                "stall_seconds": STALL_SECONDS, **options,
            })]
            for number, part in enumerate(parts)
        ]  # fmt: skip
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        pipe = subprocess.PIPE
        self._processes = [
            subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for words in self._words
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            if kind is not None:
                process.kill()
            process.communicate()

    def wait(self, began: float) -> float:
        """Return the seconds until all have their links after a storm. Raises MeasureError.

        began: start of the storm (time.monotonic).
        """
        return max(self._wait_one(process, began) for process in self._processes) - began

    def _wait_one(self, process: subprocess.Popen[str], began: float) -> float:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            ended = float(json.loads(line)["ended"])
            if ended > began:  # else an earlier loss of single connections
                return ended
        raise MeasureError(process.stderr.read().strip() or "amqpload ended early")


def steady_memory(pid: int) -> float:
    """Return the memory of a router in KiB when it has freed what it needed for the storm, and two samples agree."""
    time.sleep(RETURN_SECONDS)
    last = memory_kib(pid)
    for _ in range(CALM_SAMPLES):
        time.sleep(CALM_SECONDS)
        now = memory_kib(pid)
        if abs(now - last) < CALM_KIB:
            return now
        last = now
    return last


def kill_worker(router: BenchRouter) -> None:
    """Kill a worker of a router."""
    children = psutil.Process(router.pid).children(recursive=True)
    workers = [each.pid for each in children if role(each.pid) == WORKER_ROLE]
    if len(workers) != WORKERS:
        raise MeasureError(f"{len(workers)} workers in place of {WORKERS}")
    os.kill(workers[0], signal.SIGKILL)


def pairs(seconds: float, **options: object) -> subprocess.Popen[str]:
    """Start the pairs. Latencies count from STEADY_SECONDS on, for `seconds` at most."""
    return start_load({
        "pairs": PAIRS, "rate": PACED_RATE, "size": BODY, "warm": STEADY_SECONDS,
        "seconds": STEADY_SECONDS + seconds, **options,
    })  # fmt: skip


def reconnects(bench: Bench, clients: int, variant: Variant) -> list[Figure]:
    """Measure the three storms, one after the other, with the same clients."""
    count = client_count(clients, bench.effort is not FULL)
    text = configuration_text(
        router_section(WORKERS),
        *variant.sections,
        listener(**{"port": free_port(), **variant.attributes}),
        listener("pairs"),
        ("log", {"module": "DEFAULT", "enable": "notice+"}),  # not a line for each client
    )
    with bench.router(WORKERS, text) as router, Relay() as relay, ExitStack() as running:
        # On the listener without login.
        routed = {"port": router.ports[1], "distinct": True}
        relayed = {"port": relay.sender_port, "receiver_port": relay.receiver_port, "direct": True}
        alone = finish_load(pairs(ALONE_SECONDS, **routed))
        before = steady_memory(router.pid)
        established = [pairs(MOST_SECONDS, **options) for options in (routed, relayed)]
        for process in established:
            running.callback(process.communicate)
            running.callback(process.kill)
        time.sleep(STEADY_SECONDS)
        began = time.monotonic()
        with StandingClients(router.port, count, **variant.options) as standing:
            seconds = [standing.wait(began)]
            for process in established:
                process.terminate()
            beside, through_relay = (finish_load(process) for process in established)
            memory = [steady_memory(router.pid) - before]
            for cause in (kill_worker, BenchRouter.kill_and_restart):
                began = time.monotonic()
                cause(router)
                seconds.append(standing.wait(began))
                memory.append(steady_memory(router.pid) - before)
    what = f"{count:,} clients, {variant.title}"
    titles = ("connect", "a worker is killed", "the router is killed")
    latency = (("p99", "p99", ratio_at_most(MOST_OF_RELAY)), ("worst latency", "max", None))
    relay_beside = "byte relay beside the same storm"
    return [
        *(Figure(f"{what}: {title}, all are in again", took, "s", None)
          for title, took in zip(titles, seconds, strict=True)),
        *(Figure(f"{what}: connect, {name} of pairs", beside["latency_us"][key] / 1000, "ms", bar,
                 through_relay["latency_us"][key] / 1000, relay_beside) for name, key, bar in latency),
        Figure(f"{what}: p99 of pairs without a storm", alone["latency_us"]["p99"] / 1000, "ms", None),
        *(Figure(f"{what}: {title}, memory", kib / count, "KiB each", None)
          for title, kib in zip(titles, memory, strict=True)),
    ]  # fmt: skip


def plain_reconnects(bench: Bench) -> list[Figure]:
    """Measure clients that log in as ANONYMOUS."""
    return reconnects(bench, CLIENTS, Variant("plain"))


def secure_reconnects(bench: Bench) -> list[Figure]:
    """Measure clients that use TLS 1.3, without resumption, and log in with a password."""
    with TemporaryDirectory(prefix="bench-") as folder:
        certificate = Certificate()
        variant = logging_in(Path(folder), encrypted(certificate, "TLS", resume=False))
        return reconnects(bench, SECURE_CLIENTS, variant)
