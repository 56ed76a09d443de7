"""Rows of the benchmark: procedures, and bars for their figures.

A figure that is compared with the relay is measured in turn with it, several times, and the medians are compared: a
machine that slows down half-way then slows both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median

from loadtests.capacity_rows import capacities
from loadtests.change_rows import changes
from loadtests.configuration import INFO_LOG, configuration_text, listener, router_section
from loadtests.console_rows import console
from loadtests.consoles_rows import consoles, first_paint
from loadtests.cost_rows import costs
from loadtests.edge_rows import attaches, edge_storm, first_messages, idle_edges, one_peer, one_uplink, uplink_lost
from loadtests.gateway_rows import broker_lost, client_connections, link_route
from loadtests.hostile_rows import hostile_host
from loadtests.landing_rows import landing, landing_of_many
from loadtests.login_rows import certificate_logins, logins, token_logins
from loadtests.measuring import BODY, CREDIT, MB, MIB, Bench
from loadtests.network_rows import cold_start, hop_latency, one_hop, path_lost
from loadtests.operation_rows import OPERATION_ROWS
from loadtests.pipeline_rows import decoding, reading, sending, visible
from loadtests.planning_rows import planning
from loadtests.policy_rows import policy
from loadtests.processes import Relay, finish_load
from loadtests.reconnect_rows import plain_reconnects, secure_reconnects
from loadtests.reload_rows import reloads
from loadtests.report import Figure, at_least, at_most, ratio_at_least, ratio_at_most
from loadtests.simulation_rows import edge_convergence, edge_supervisor, network_simulation
from loadtests.storm_rows import storms
from loadtests.tails_rows import tails
from loadtests.telemetry_rows import rollup, telemetry
from loadtests.tls_rows import tls_crowd, tls_handshakes, tls_idle, tls_large, tls_unsettled
from loadtests.waiting_rows import waiting
from loadtests.websocket_rows import websocket

LARGE_BODY = 100_000
FRAMES = (1, 4, 15)  # MB of a body that is a single frame
MAX_FRAME = 16 * MIB
FRAME_CREDIT = 10
PAIRS = 100
PACED_RATE = 10_000  # deliveries/s: far below capacity, so that latency is not queueing
COPIES = 100  # receivers of the multicast row
IDLE_CONNECTIONS = 5_000
STREAMS = 10  # messages
STREAM_RATE = 100 * MB  # bytes/s that the slow reader takes
STREAM_WINDOW = 64  # frames of the slow reader's session window
BESIDE_RATE = 1_000  # small messages/s beside the stream
BESIDE_SHARE = 0.8  # of the stream's duration: the small messages end before the stream does


def one_worker_unsettled(bench: Bench) -> list[Figure]:
    """Measure 100-byte messages, settled by the receiver, through one worker."""
    with Relay() as relay, bench.router(1) as router:
        relays, routers = bench.alternate(relay, router, size=BODY)
    rate = ("per_second",)
    return [
        Figure("1 worker, unsettled", routers.median(*rate), "/s", ratio_at_least(0.4), relays.median(*rate)),
        Figure(
            "1 worker, unsettled: router CPU",
            routers.median("router_cpu", "us_per_delivery"),
            "µs a delivery",
            at_most(0.25),
        ),
    ]


def one_worker_presettled(bench: Bench) -> list[Figure]:
    """Measure 100-byte messages, presettled, through one worker. The receiver keeps granting credit."""
    with Relay() as relay, bench.router(1) as router:
        relays, routers = bench.alternate(relay, router, size=BODY, presettled=True, allow_loss=True)
    rate = ("per_second",)
    return [
        Figure("1 worker, presettled", routers.median(*rate), "/s", ratio_at_least(0.4), relays.median(*rate)),
        Figure("1 worker, presettled: lost", routers.largest("lost"), "messages", at_most(0)),
    ]


def two_workers(bench: Bench) -> list[Figure]:
    """Measure unsettled messages between connections on two workers."""
    with bench.router(2) as router:
        routers = bench.repeat(router, size=BODY, place="apart")
    cpu = routers.median("router_cpu", "us_per_delivery")
    return [Figure("2 workers, sender and receiver apart: router CPU", cpu, "µs a delivery", at_most(0.6))]


def two_workers_paced(bench: Bench) -> list[Figure]:
    """Measure the cost of crossing workers at a rate far below capacity."""
    paced: dict[str, object] = {"size": BODY, "rate": PACED_RATE}
    with bench.router(1) as single, bench.router(2) as double:
        one, two = bench.in_turn(partial(single.load, **paced), partial(double.load, place="apart", **paced))
    return [
        Figure(f"2 workers, {PACED_RATE:,} /s: {name}", two.median(*path), unit, ratio_at_most(limit),
               one.median(*path), "1 worker")
        for name, path, unit, limit in (
            ("latency median", ("latency_us", "p50"), "µs", 1.6),
            ("router CPU", ("router_cpu", "us_per_delivery"), "µs a delivery", 1.7),
        )
    ]  # fmt: skip


def paced_latency(bench: Bench) -> list[Figure]:
    """Measure the latency at a rate far below capacity, against the relay's."""
    with Relay() as relay, bench.router(1) as router:
        relays, routers = bench.alternate(relay, router, size=BODY, rate=PACED_RATE)
    return [
        Figure(
            f"{PACED_RATE:,} /s: latency {name}",
            routers.median("latency_us", key),
            "µs",
            ratio_at_most(limit),
            relays.median("latency_us", key),
        )
        for name, key, limit in (("median", "p50", 2.0), ("p99", "p99", 3.0))
    ]


def large_bodies(bench: Bench) -> list[Figure]:
    """Measure bytes a second with bodies of several frames."""
    with Relay() as relay, bench.router(1) as router:
        relays, routers = bench.alternate(relay, router, size=LARGE_BODY)
    mine, theirs = (readings.median("bytes_per_second") / MIB for readings in (routers, relays))
    return [Figure("100 kB bodies", mine, "MiB/s", ratio_at_least(0.6), theirs)]


def large_frames(bench: Bench) -> list[Figure]:
    """Measure the router's CPU time for an octet, with bodies of one frame of several lengths."""
    text = configuration_text(router_section(), listener(maxFrameSize=MAX_FRAME), INFO_LOG)
    loads: list[dict[str, object]] = [
        {"size": size * MB, "max_frame": MAX_FRAME, "credit": FRAME_CREDIT} for size in FRAMES
    ]
    with bench.router(1, text) as router:
        series = bench.in_turn(*(partial(router.load, **options) for options in loads))
    costs = [
        readings.median("router_cpu", "us_per_delivery") * 1000 / (size * MB)
        for readings, size in zip(series, FRAMES, strict=True)
    ]
    return [
        Figure(f"frames of {size} MB: router CPU", cost, "ns an octet", ratio_at_most(2.5) if number else None,
               costs[0] if number else None, f"{FRAMES[0]} MB")
        for number, (size, cost) in enumerate(zip(FRAMES, costs, strict=True))
    ]  # fmt: skip


def many_pairs(bench: Bench) -> list[Figure]:
    """Measure 100-byte messages of many senders, each to a receiver of its own.

    Receivers have credit for all messages that may be in flight, or for a quarter of them, so that messages wait.
    """
    figures = []
    with bench.router(1) as router:
        for credit in (CREDIT, CREDIT // 4):
            routers = bench.repeat(router, pairs=PAIRS, distinct=True, size=BODY, credit=credit)
            what = f"{PAIRS} pairs, receivers with credit for {credit:,}"
            figures += [
                Figure(what, routers.median("per_second"), "/s", None),
                Figure(
                    f"{what}: router CPU", routers.median("router_cpu", "us_per_delivery"), "µs a delivery", at_most(1)
                ),
            ]
    return figures


def multicast(bench: Bench) -> list[Figure]:
    """Measure a presettled sender with a hundred receivers of every message. A lost copy fails the run."""
    with bench.router(1) as router:
        routers = bench.repeat(
            router, address="multicast/bench", receivers=COPIES, multicast=True, presettled=True, size=BODY
        )
    return [Figure(f"multicast to {COPIES} receivers", routers.median("per_second"), "copies/s", at_least(1e6))]


def idle_connections(bench: Bench) -> list[Figure]:
    """Measure the memory of an idle connection with one session and two links, all router processes together."""
    with bench.router(2) as router:
        report = router.load(idle=IDLE_CONNECTIONS, address="idle")
    return [
        Figure(f"{IDLE_CONNECTIONS:,} idle connections", report["kib_per_connection"], "KiB each", at_most(24)),
        Figure(f"{IDLE_CONNECTIONS:,} idle connections: accepted", report["per_second"], "/s", at_least(3000)),
    ]


def stream_beside_small(bench: Bench) -> list[Figure]:
    """Measure large messages to a slow reader, and their effect on the router's memory and on small messages."""
    effort = bench.effort
    seconds = STREAMS * effort.stream_bytes / STREAM_RATE * BESIDE_SHARE
    paced = {"rate": BESIDE_RATE, "size": BODY}
    with Relay() as relay, bench.router(1) as router:
        alone = router.load(address="beside", seconds=effort.beside_seconds, **paced)
        relay_alone = relay.load(seconds=effort.beside_seconds, **paced)
        stream = router.start_load(
            address="stream",
            count=STREAMS,
            size=effort.stream_bytes,
            read_rate=STREAM_RATE,
            session_window=STREAM_WINDOW,
            credit=STREAMS,
        )
        try:
            beside = router.load(address="beside", seconds=seconds / 2, **paced)
            relay_beside = relay.load(seconds=seconds / 2, **paced)
        except BaseException:
            stream.kill()
            stream.communicate()
            raise
        streamed = finish_load(stream)
    memory = streamed["router_memory_kib"]
    growth = (memory["pss_peak"] - memory["pss_before"]) / 1024
    title = f"{STREAMS} messages of {effort.stream_bytes // MB:,} MB to a reader of {STREAM_RATE // MB} MB/s"
    return [
        Figure(f"{title}: router memory growth", growth, "MiB", at_most(16)),
        Figure(
            "small messages beside them: latency p99 (relay: without the stream)",
            beside["latency_us"]["p99"],
            "µs",
            ratio_at_most(2.0),
            alone["latency_us"]["p99"],
        ),
        # Effect of the machine alone on a process that shares its cores with the stream's two ends.
        Figure(
            "the same through the byte relay, beside the router's stream",
            relay_beside["latency_us"]["p99"],
            "µs",
            None,
            relay_alone["latency_us"]["p99"],
        ),
    ]


def start_time(bench: Bench) -> list[Figure]:
    """Measure the time from exec to the log line that names the port."""
    seconds = []
    for _ in range(bench.effort.rounds):
        with bench.router(2) as router:
            seconds.append(router.start_seconds)
    return [Figure("start to listening, 2 workers", median(seconds), "s", at_most(1.0))]


ROWS: dict[str, Callable[[Bench], list[Figure]]] = {
    "unsettled": one_worker_unsettled,
    "presettled": one_worker_presettled,
    "capacity": capacities,
    "two-workers": two_workers,
    "two-workers-paced": two_workers_paced,
    "latency": paced_latency,
    "tails": tails,
    "large": large_bodies,
    "large-frames": large_frames,
    "many-pairs": many_pairs,
    "multicast": multicast,
    "idle": idle_connections,
    "stream": stream_beside_small,
    "start": start_time,
    "link-route": link_route,
    "clients": client_connections,
    "broker-lost": broker_lost,
    "hop": one_hop,
    "hop-latency": hop_latency,
    "path-lost": path_lost,
    "network": cold_start,
    "edge": one_uplink,
    "edge-peers": one_peer,
    "edge-switch": uplink_lost,
    "edge-first": first_messages,
    "edge-attach": attaches,
    "edge-idle": idle_edges,
    "edge-storm": edge_storm,
    "storms": storms,
    "reconnects": plain_reconnects,
    "reconnects-tls": secure_reconnects,
    **OPERATION_ROWS,
    "policy": policy,
    "logins": logins,
    "logins-token": token_logins,
    "logins-certificate": certificate_logins,
    "tls": tls_unsettled,
    "tls-large": tls_large,
    "tls-handshakes": tls_handshakes,
    "tls-crowd": tls_crowd,
    "tls-idle": tls_idle,
    "websocket": websocket,
    "console": console,
    "first-paint": first_paint,
    "consoles": consoles,
    "edge-supervisor": edge_supervisor,
    "edge-convergence": edge_convergence,
    "network-simulation": network_simulation,
    "changes": changes,
    "costs": costs,
    "reload": reloads,
    "hostile-host": hostile_host,
    "landing": landing,
    "landing-senders": landing_of_many,
    "spark-visible": visible,
    "spark-reading": reading,
    "spark-decoding": decoding,
    "spark-sending": sending,
    "spark-planning": planning,
    "landing-waiting": waiting,
    "rollup": rollup,
    "telemetry": telemetry,
}
#: Names of several rows. Rows of the pipeline need Java and minutes each, so that they only run by name.
GROUPS: dict[str, tuple[str, ...]] = {
    "pipeline": (
        "landing", "landing-senders", "landing-waiting", "spark-visible", "spark-reading", "spark-decoding",
        "spark-sending", "spark-planning", "rollup", "telemetry",
    ),
    "operations": tuple(OPERATION_ROWS),
}  # fmt: skip
DEFAULT = [name for name in ROWS if name not in GROUPS["pipeline"]]
