"""Rows about a router in front of brokers: link routes, many clients over few connections, a broker that returns."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from statistics import median

from loadtests.broker import KillableBroker, Senders
from loadtests.configuration import configuration_text, connector, listener, router_section
from loadtests.measuring import BODY, Bench
from loadtests.processes import BenchRouter, MeasureError, Relay
from loadtests.report import Figure, at_most, ratio_at_least
from tests.system.router import Section, free_port

CLIENTS = 5_000
BROKER_CONNECTIONS = 2
CLIENT_RATE = 20_000  # messages/s of all clients together: more than a broker that stores them takes
CLIENT_SECONDS = 3.0  # minimum, so that each client sends some messages
SENDERS = 10  # connections whose messages must flow again
RETURNS = 3  # upper bound of broker losses; after each, some seconds pass until the router reconnects
ACCEPT_LIMIT = 20.0  # seconds until the router must have tried to connect
FLOW_LIMIT = 20.0  # seconds until messages must flow

QUEUE: Section = ("address", {"prefix": "queue", "waypoint": True})


def containers(workers: int) -> str:
    """Return a configuration whose second listener is for containers of link routes and auto links."""
    return configuration_text(
        router_section(workers),
        listener(),
        listener("brokers", role="route-container"),
        ("linkRoute", {"prefix": "routed", "direction": "in", "containerId": "bench"}),
        QUEUE,
        ("autoLink", {"address": "queue.bench", "direction": "out", "containerId": "queues"}),
    )


def to_broker(port: int) -> str:
    """Return a configuration with an auto link to a broker at a port."""
    return configuration_text(
        router_section(2),
        listener(),
        connector(port, name="broker", role="route-container", saslMechanisms="ANONYMOUS"),
        QUEUE,
        ("autoLink", {"address": "queue.bench", "direction": "out", "connection": "broker"}),
    )


def to_containers(router: BenchRouter, container_id: str) -> dict[str, object]:
    """Return the options that make amqpload's receivers containers."""
    return {"receiver_port": router.ports[1], "container": container_id}


def link_route(bench: Bench) -> list[Figure]:
    """Measure 100-byte messages to a container over a link route, in turn with message routing; one worker."""
    with bench.router(1, containers(1)) as router:
        plain: dict[str, object] = {"size": BODY}
        routed: dict[str, object] = {"size": BODY, "address": "routed.a", **to_containers(router, "bench")}
        messages, links = bench.in_turn(partial(router.load, **plain), partial(router.load, **routed))
    than = "message routing"
    rate, cpu = ("per_second",), ("router_cpu", "us_per_delivery")
    return [
        Figure("link route, unsettled", links.median(*rate), "/s", ratio_at_least(0.6), messages.median(*rate), than),
        Figure("link route: router CPU", links.median(*cpu), "µs a delivery", None, messages.median(*cpu), than),
    ]


def client_connections(bench: Bench) -> list[Figure]:
    """Measure many clients that send at a fixed rate to a queue with two broker connections, by auto links.

    Compared with two clients that send as much, directly to the brokers.
    """
    seconds = max(CLIENT_SECONDS, bench.effort.seconds)
    load: dict[str, object] = {"receivers": BROKER_CONNECTIONS, "size": BODY, "rate": CLIENT_RATE, "seconds": seconds}
    with Relay() as relay, bench.router(2, containers(2)) as router:
        options = {**load, **to_containers(router, "queues"), "address": "queue.bench"}
        many = router.load(senders=CLIENTS, **options)
        few = relay.load(senders=BROKER_CONNECTIONS, **load)
        through = router.load(senders=BROKER_CONNECTIONS, **options)
    memory = many["router_memory_kib"]
    each = (memory["pss_peak"] - memory["pss_start"]) / (CLIENTS + BROKER_CONNECTIONS)
    title = f"{CLIENTS:,} clients over {BROKER_CONNECTIONS} broker connections"
    bar, than = ratio_at_least(0.9), f"{BROKER_CONNECTIONS} clients"
    cpu = [report["router_cpu"]["us_per_delivery"] for report in (many, through)]
    return [
        Figure(f"{title}, {CLIENT_RATE:,} /s: router memory", each, "KiB a connection", at_most(30)),
        Figure(f"{title}: rate at the brokers", many["per_second"], "/s", bar, few["per_second"], f"{than}, direct"),
        Figure(f"{title}: router CPU", cpu[0], "µs a delivery", None, cpu[1], than),
    ]


def broker_lost(bench: Bench) -> list[Figure]:
    """Kill a broker under load and restart it; measure the time until all senders' messages arrive again."""
    port = free_port()
    seconds = []
    with ExitStack() as stack:
        router = stack.enter_context(bench.router(2, to_broker(port)))
        senders = Senders(router.port, "queue.bench", SENDERS)
        for _ in range(min(bench.effort.rounds, RETURNS) + 1):
            with KillableBroker(port) as broker:
                senders.start()  # takes effect in the first iteration only
                accepted = broker.accepted(ACCEPT_LIMIT)
                seconds.append(broker.heard_from(range(SENDERS), FLOW_LIMIT) - accepted)
        stack.callback(senders.stop)
    if senders.failure is not None:
        raise MeasureError(f"a sender noticed: {senders.failure}")
    return [Figure("broker back: all senders flow", median(seconds[1:]), "s after it accepts", at_most(1.0))]
