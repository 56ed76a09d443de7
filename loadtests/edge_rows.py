"""Rows about edge routers: rates over an uplink and between edge routers, beside a hop between interior routers; a lost
uplink, new addresses, and many edge routers.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from statistics import median
from typing import Any

import psutil

from loadtests.configuration import configuration_text, connector, listener, router_section
from loadtests.edge_crowd import Crowd
from loadtests.management import manage, wait_until
from loadtests.measuring import BODY, WARM_SECONDS, Bench, Readings, cpu_seconds
from loadtests.network_rows import (
    KNOWN_LIMIT,
    LOSSES,
    hop,
    interior,
    lose_path,
    loss_figures,
    through,
    wait_known,
    wire,
)
from loadtests.processes import ROOT, BenchRouter, MeasureError, Relay, finish_load, start_load
from loadtests.report import Figure, at_most, ratio_at_least, ratio_at_most
from loadtests.storm import ATTACH, BEGIN, BEGUN, NULL, SOURCE, TARGET, TRUE, StormClient, frame
from sluice.router.amqp.codec import encode_described, encode_string, encode_uint
from sluice.router.client.blocking import connect
from sluice.router.client.message import Message

FIRST_ADDRESSES = 300
MANY_LINKS = 5000  # receivers of one client
EDGES = 200
FEW_EDGES = 20
ADDRESSES = 20  # addresses of each edge router
IDLE_SECONDS = 10
STORM_EDGES = 1000
STORM_SECONDS = 10  # seconds within which they connect
STORM_RATE = 1000  # deliveries/s of other clients


def with_edges(name: str, listens: int | None = None, connects: tuple[int, ...] = ()) -> str:
    """Return the configuration of an interior router whose last listener is for edge routers."""
    return interior(name, listens, connects) + configuration_text(listener("edges", role="edge"))


def edge(name: str, *ports: int, uplinks: str = "one", role: str = "edge", listens: bool = False) -> str:
    """Return the configuration of an edge router with connectors to these ports.

    role: role of the connectors. listens: add a last listener for other edge routers.
    """
    peers = [listener("peers", role="inter-edge")] if listens else []
    to = [connector(port, role=role) for port in ports]
    return configuration_text(router_section(1, name, "edge", uplinks=uplinks), listener(), *peers, *to)


def wait_uplinks(router: BenchRouter, count: int, role: str = "edge") -> None:
    """Wait until an edge router has `count` open connections of `role` to other routers. Raises MeasureError."""
    wait_connections(router, role, lambda there: there >= count)


def wait_connections(router: BenchRouter, role: str, fits: Callable[[int], bool]) -> None:
    """Wait until the number of a router's connections of `role` satisfies `fits`. Raises MeasureError."""
    with manage(router) as client:
        wait_until(
            f"the right number of connections of role {role}",
            lambda: sum(row["role"] == role for row in client.rows("connection")),
            fits,
        )


@contextmanager
def uplink(bench: Bench) -> Iterator[tuple[BenchRouter, BenchRouter]]:
    """Run an edge router and its interior router, with one worker each."""
    with bench.router(1, with_edges("A")) as a, bench.router(1, edge("E", a.ports[-1])) as e:
        wait_uplinks(e, 1)
        yield e, a


@contextmanager
def peers(bench: Bench) -> Iterator[tuple[BenchRouter, BenchRouter]]:
    """Run two edge routers of one worker each, connected to each other."""
    with bench.router(1, edge("F", listens=True)) as f, bench.router(1, edge("E", f.ports[-1], role="inter-edge")) as e:
        wait_uplinks(e, 1, "inter-edge")
        yield e, f


def one_uplink(bench: Bench) -> list[Figure]:
    """Measure 100-byte messages from a client of an edge router to one of its interior router.

    Measured in turn with a hop between interior routers.
    """
    with uplink(bench) as pair:
        return _beside_a_hop(bench, "1 uplink", pair, "the interior router")


def one_peer(bench: Bench) -> list[Figure]:
    """Measure 100-byte messages between clients of two edge routers, without an interior router."""
    with peers(bench) as pair:
        return _beside_a_hop(bench, "1 edge to another", pair, "the other")


def _beside_a_hop(bench: Bench, what: str, pair: tuple[BenchRouter, BenchRouter], other: str) -> list[Figure]:
    """Measure from a client of the first router, an edge router, to one of the second."""
    e, a = pair
    with hop(bench) as (one, two):
        between, first, second = bench.in_turn(
            partial(through, one, two, size=BODY),
            partial(through, e, a, size=BODY, pid=e.pid),
            partial(through, e, a, size=BODY, pid=a.pid),
        )
    rate = Readings([*first, *second]).median("per_second")
    cpu = ("router_cpu", "us_per_delivery")
    return [
        Figure(f"{what}, unsettled", rate, "/s", ratio_at_least(0.9), between.median("per_second"), "1 hop"),
        Figure(f"{what}: CPU of the edge router", first.median(*cpu), "µs a delivery", at_most(0.6)),
        Figure(f"{what}: CPU of {other}", second.median(*cpu), "µs a delivery", at_most(0.6)),
    ]


def uplink_lost(bench: Bench) -> list[Figure]:
    """Cut the uplink of an edge router while another uplink is on standby, or active as well."""
    return [*_lost(bench, "one", "uplink lost", 200), *_lost(bench, "all", "1 of 2 uplinks lost", 100)]


def _lost(bench: Bench, uplinks: str, what: str, bar: float) -> list[Figure]:
    """Measure the time until messages arrive over the other uplink."""
    losses = []
    for _ in range(min(bench.effort.rounds, LOSSES)):
        with ExitStack() as stack:
            b = stack.enter_context(bench.router(1, with_edges("B", 0)))
            a = stack.enter_context(bench.router(1, with_edges("A", None, (b.ports[1],))))
            wait_known(a, {"B": 1})
            near, cable = stack.enter_context(wire(a.ports[-1]))
            e = stack.enter_context(bench.router(1, edge("E", near, b.ports[-1], uplinks=uplinks)))
            wait_uplinks(e, 2)
            losses.append(lose_path(e, b, cable))
    return loss_figures(what, "other", losses, bar)


def first_messages(bench: Bench) -> list[Figure]:
    """Measure the first message to an address that is new at the edge router and has a consumer at the interior
    router.
    """
    names = [f"first/{number}" for number in range(FIRST_ADDRESSES)]
    seconds = []
    cpu = {}
    with uplink(bench) as (e, a), connect(f"amqp://127.0.0.1:{a.port}", timeout=KNOWN_LIMIT) as far:
        receivers = [far.receiver(name, timeout=KNOWN_LIMIT, window=1) for name in names]
        with connect(f"amqp://127.0.0.1:{e.port}", timeout=KNOWN_LIMIT) as near:
            before = {**_cpu(e, "edge"), **_cpu(a, "interior")}
            for name, receiver in zip(names, receivers, strict=True):
                began = time.monotonic()
                near.sender(name, timeout=KNOWN_LIMIT).send(Message("x"), settled=True, timeout=KNOWN_LIMIT)
                receiver.receive(KNOWN_LIMIT)
                seconds.append(time.monotonic() - began)
            cpu = {**_cpu(e, "edge"), **_cpu(a, "interior")}
    return [
        Figure("edge: first message to a new address", 1000 * median(seconds), "ms from the attach", at_most(2)),
        Figure("edge: first message, p99", 1000 * sorted(seconds)[len(seconds) * 99 // 100], "ms", None),
        *(
            Figure(
                f"edge: first message, CPU of the {part}", 1000 * (used - before[part]) / FIRST_ADDRESSES, "ms", None
            )
            for part, used in cpu.items()
        ),
    ]


def attaches(bench: Bench) -> list[Figure]:
    """Measure time and CPU of thousands of receivers that a client attaches at once.

    The client attaches to an interior router and to its edge router in turn. It stays until the interior router has the
    link of each address of the edge router.
    """
    seconds: dict[str, list[float]] = {"interior": [], "edge": []}
    cpu: dict[str, list[float]] = {"interior": [], "edge": []}
    reachable = []
    with uplink(bench) as (e, a), manage(a) as at_a:
        for round_ in range(bench.effort.rounds):
            for name, router in (("interior", a), ("edge", e)):
                before = cpu_seconds(router.pid)
                began = time.monotonic()
                with _attached(router, f"{name}/{round_}") as took:
                    seconds[name].append(took)
                    wait_until("all links", lambda: at_a.rows("router")[0]["linkCount"], MANY_LINKS.__le__)
                    if router is e:
                        reachable.append(time.monotonic() - began)
                # Connections that stay: the one that queries, and `at_a`.
                wait_connections(router, "normal", (2).__ge__ if router is a else (1).__ge__)
                cpu[name].append((cpu_seconds(router.pid) - before) / MANY_LINKS)
    ratio = median(seconds["edge"]) / median(seconds["interior"])
    return [
        Figure("edge: many attaches, time", 1000 * median(seconds["edge"]), f"ms for {MANY_LINKS:,}", None),
        Figure("edge: … beside an interior router", ratio, "times its time", at_most(1.3)),
        Figure("edge: … known at the interior router", 1000 * median(reachable), f"ms for {MANY_LINKS:,}", None),
        *(Figure(f"{name}: attach and end, CPU", 1e6 * median(each), "µs a link", None) for name, each in cpu.items()),
    ]


@contextmanager
def _attached(router: BenchRouter, prefix: str) -> Iterator[float]:
    """Attach MANY_LINKS receivers of a client in one write; yield the seconds until all are answered."""
    octets = b"".join(
        frame(
            ATTACH, encode_string(f"l{handle}"), encode_uint(handle), TRUE, NULL, NULL,
            encode_described(SOURCE, [encode_string(f"{prefix}/{handle}")]), encode_described(TARGET, []),
        )
        for handle in range(MANY_LINKS)
    )  # fmt: skip
    client = StormClient(router.port)
    try:
        client.send(BEGUN)
        client.wait(BEGIN)
        writer = threading.Thread(target=client.send, args=(octets,))
        began = time.monotonic()
        writer.start()
        client.wait(ATTACH, MANY_LINKS)
        took = time.monotonic() - began
        writer.join()
        yield took
    finally:
        client.close()


def _cpu(router: BenchRouter, name: str) -> dict[str, float]:
    """Return the CPU seconds so far of a router's supervisor and of its worker."""
    own = psutil.Process(router.pid).cpu_times()
    supervisor = own.user + own.system
    return {f"{name} supervisor": supervisor, f"{name} worker": cpu_seconds(router.pid) - supervisor}


def idle_edges(bench: Bench) -> list[Figure]:
    """Measure the cost of edge routers at their interior router: idle, with addresses, and reconnecting all at once."""
    return asyncio.run(_crowd(bench))


def beside_edges(a: BenchRouter, load: dict[str, object]) -> tuple[dict[str, Any], dict[str, float]]:
    """Run a load while a thousand edge routers connect to router `a` and leave. Return its report and the storm's."""
    others = start_load({**load, "seconds": STORM_SECONDS + 2})
    words = ["loadtests.edge_storm", *map(str, (a.ports[-1], STORM_EDGES, ADDRESSES, STORM_SECONDS))]
    storm = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    report = finish_load(others)
    if storm.returncode:
        raise MeasureError(f"{STORM_EDGES} edges: {storm.stderr.strip().splitlines()[-1]}")
    wait_connections(a, "edge", lambda there: there == 0)
    return report, json.loads(storm.stdout)


def edge_storm(bench: Bench) -> list[Figure]:
    """Measure messages of an interior router's clients while a thousand edge routers reconnect.

    The byte relay beside the same storm shows the effect of the machine alone.
    """
    alone, beside, relay_alone, relay_beside = Readings(), Readings(), Readings(), Readings()
    taken, waited = [], []
    with bench.router(1, with_edges("A")) as a, Relay() as relay:
        paced: dict[str, object] = {"rate": STORM_RATE, "size": BODY}
        straight = {"port": relay.sender_port, "receiver_port": relay.receiver_port, "direct": True, **paced}
        a.load(seconds=WARM_SECONDS, **paced)
        for _ in range(min(bench.effort.rounds, LOSSES)):
            alone.append(a.load(seconds=STORM_SECONDS, **paced))
            report, storm = beside_edges(a, {"port": a.port, "pid": a.pid, **paced})
            beside.append(report)
            taken.append(storm["seconds"])
            waited.append(1000 * storm["longest"])
            relay_alone.append(relay.load(seconds=STORM_SECONDS, **paced))
            relay_beside.append(beside_edges(a, straight)[0])
    p99 = ("latency_us", "p99")
    what = f"{STORM_EDGES:,} edges come back within {STORM_SECONDS} s"
    return [
        Figure(
            f"{what}: p99 of others", beside.median(*p99) / 1000, "ms", ratio_at_most(2), alone.median(*p99) / 1000,
            "alone",
        ),
        Figure(
            "p99 through the byte relay beside the same", relay_beside.median(*p99) / 1000, "ms", None,
            relay_alone.median(*p99) / 1000, "alone",
        ),
        Figure(f"{what}: all are there", median(taken), "s", None),
        Figure(f"{what}: the longest that one waited", median(waited), "ms", None),
    ]  # fmt: skip


async def _crowd(bench: Bench) -> list[Figure]:
    with bench.router(1, with_edges("A")) as a:
        crowd = Crowd(a.ports[-1], a.pid)
        await crowd.come(FEW_EDGES)  # the cost of first use must not count for each
        await crowd.go()
        before = crowd.memory()
        await crowd.come(EDGES)
        alone = crowd.memory()
        idle = await crowd.idle(IDLE_SECONDS)
        announcing = await crowd.announce(ADDRESSES)
        full = crowd.memory()
        await crowd.go()
        storm = await crowd.come(EDGES, ADDRESSES)
        await crowd.go()
    what = f"{EDGES} edges"
    return [
        Figure(f"{what}, idle", (alone - before) / EDGES, "KiB each", at_most(64)),
        Figure(
            f"{what}, idle: CPU of the interior router", 1e6 * idle / EDGES / IDLE_SECONDS, "µs a second each", None
        ),
        Figure(f"{what}, {ADDRESSES} addresses each", (full - alone) / EDGES / ADDRESSES, "KiB an address", None),
        Figure(f"{what}: CPU for an address", 1e6 * announcing / EDGES / ADDRESSES, "µs", None),
        Figure(f"{what} come back: all are there", storm.seconds, "s", None),
        Figure(f"{what} come back: CPU of the interior router", storm.cpu, "s", None),
    ]
