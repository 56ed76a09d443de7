"""Rows about TLS, with HAProxy as the reference in the same run.

The same traffic goes through HAProxy. `rate`: one process decrypts the sender's octets and encrypts the receiver's,
joined by the byte relay. `CPU`: one process decrypts and encrypts between two connections; a second process behind it
is not counted.
"""

from __future__ import annotations

import subprocess
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from loadtests.configuration import INFO_LOG, configuration_text, listener, router_section
from loadtests.haproxy import CIPHER, Certificate, Haproxy
from loadtests.measuring import BODY, FULL, MIB, Bench, Readings
from loadtests.operation_rows import Variant, logging_in
from loadtests.operation_rows import encrypted as encrypted_variant
from loadtests.processes import BenchRouter, MeasureError, Relay, finish_load, load, start_load
from loadtests.reconnect_rows import StandingClients, client_count, steady_memory
from loadtests.report import Figure, at_most, ratio_at_least, ratio_at_most

LARGE_BODY = 100_000
FULL_HANDSHAKES = 2_000
RESUMED_HANDSHAKES = 4_000
AT_A_TIME = 64
CROWD = 1_000  # handshakes at once
CROWD_ROUNDS = 3
PACED_RATE = 5_000  # messages/s of established connections beside the crowd
IDLE_CONNECTIONS = 5_000
WARM_CONNECTIONS = 200  # before memory is measured: the authentication process starts with the first login
IDLE_KIB = 30  # bar for an idle connection
WORKERS = 2
TLS = {"tls": True, "cipher": CIPHER}


def configuration(certificate: Certificate, workers: int = 1) -> str:
    """Return a configuration with a TLS listener and a plain one."""
    return configuration_text(
        router_section(workers),
        ("sslProfile", {"name": "bench", "certFile": certificate.certificate, "privateKeyFile": certificate.key}),
        listener("encrypted", sslProfile="bench", requireSsl=True),
        listener("plain"),
        INFO_LOG,
    )


def encrypted(router: BenchRouter, certificate: Certificate, **options: object) -> dict[str, Any]:
    """Run a load through the TLS listener, whose certificate is checked."""
    return router.load(**TLS, ca=certificate.certificate, **options)


def rate_of_haproxy(certificate: Certificate, **options: object) -> dict[str, Any]:
    """Run a load through one HAProxy that decrypts and encrypts, with the relay in between."""
    with (
        Relay() as relay,
        Haproxy(certificate, [(relay.sender_port, False), (relay.receiver_port, False)]) as joined,
    ):
        sender, receiver = joined.ports
        return load(port=sender, receiver_port=receiver, direct=True, pid=joined.pid, **TLS, **options)


def cost_of_haproxy(certificate: Certificate, **options: object) -> dict[str, Any]:
    """Run a load through one HAProxy that decrypts and encrypts, in front of a second one, which is not counted."""
    with (
        Relay() as relay,
        Haproxy(certificate, [(relay.sender_port, False), (relay.receiver_port, False)]) as behind,
        Haproxy(certificate, [(behind.ports[0], True)]) as middle,
    ):
        return load(port=middle.ports[0], receiver_port=behind.ports[1], direct=True, pid=middle.pid, **TLS, **options)


def throughput(bench: Bench, size: int) -> list[Readings]:
    """Measure in turn: router over TLS, router without TLS, rate of HAProxy, CPU of HAProxy."""
    certificate = Certificate()
    with bench.router(1, configuration(certificate)) as router:
        return bench.in_turn(
            partial(encrypted, router, certificate, size=size),
            partial(load, port=router.ports[1], pid=router.pid, size=size),
            partial(rate_of_haproxy, certificate, size=size),
            partial(cost_of_haproxy, certificate, size=size),
        )


def tls_unsettled(bench: Bench) -> list[Figure]:
    """Measure 100-byte messages in and out over TLS, through one worker."""
    ours, plain, rates, costs = throughput(bench, BODY)
    cpu, rate = ("router_cpu", "us_per_delivery"), ("per_second",)
    return [
        Figure(
            "TLS, unsettled", ours.median(*rate), "/s", ratio_at_least(0.5), rates.median(*rate), "HAProxy"
        ),
        Figure(
            "TLS, unsettled: CPU per byte",
            ours.median(*cpu) / BODY * 1000, "ns", ratio_at_most(2.0), costs.median(*cpu) / BODY * 1000, "HAProxy",
        ),
        Figure(
            "TLS, unsettled: router CPU above that without TLS",
            ours.median(*cpu) - plain.median(*cpu), "µs a delivery", at_most(0.6),
        ),
    ]  # fmt: skip


def tls_large(bench: Bench) -> list[Figure]:
    """Measure bytes a second with bodies of several frames."""
    ours, _, rates, _ = throughput(bench, LARGE_BODY)
    mine, theirs = (readings.median("bytes_per_second") / MIB for readings in (ours, rates))
    return [Figure("TLS, 100 kB bodies", mine, "MiB/s", ratio_at_least(0.7), theirs, "HAProxy")]


def tls_handshakes(bench: Bench) -> list[Figure]:
    """Measure full and resumed handshakes a second, ECDSA over prime256v1. HAProxy closes after each."""
    certificate = Certificate()
    figures = []
    with (
        bench.router(1, configuration(certificate)) as router,
        Haproxy(certificate, [None]) as reference,
    ):
        for name, count, resume in (("full", FULL_HANDSHAKES, False), ("resumed", RESUMED_HANDSHAKES, True)):
            ours, theirs = Readings(), Readings()
            options = {"handshakes": count, "opening": AT_A_TIME, "resume": resume, **TLS}
            for _ in range(bench.effort.rounds):
                theirs.append(load(port=reference.ports[0], pid=reference.pid, **options))
                ours.append(router.load(**options))
            if resume and ours.largest("resumed") < count:
                raise MeasureError(f"only {ours.largest('resumed'):.0f} of {count} sessions were resumed")
            rate = ("per_second",)
            figures.append(
                Figure(
                    f"TLS, {name} handshakes",
                    ours.median(*rate),
                    "/s",
                    ratio_at_least(0.7),
                    theirs.median(*rate),
                    "HAProxy",
                )
            )
    return figures


def tls_crowd(bench: Bench) -> list[Figure]:
    """Measure established connections during a thousand simultaneous handshakes, and the byte relay beside the same."""
    certificate = Certificate()
    alone, beside, relay_alone, relay_beside = Readings(), Readings(), Readings(), Readings()
    paced = {"rate": PACED_RATE, "size": BODY, "seconds": bench.effort.beside_seconds / CROWD_ROUNDS}
    with Relay() as relay, bench.router(2, configuration(certificate, workers=2)) as router:
        for _ in range(CROWD_ROUNDS):
            alone.append(encrypted(router, certificate, **paced))
            beside.append(beside_crowds(router, router.start_load(**TLS, **paced)))
            straight = {"port": relay.sender_port, "receiver_port": relay.receiver_port, "direct": True, **paced}
            relay_alone.append(load(**straight))
            relay_beside.append(beside_crowds(router, start_load(straight)))
    title = f"TLS: p99 beside crowds of {CROWD:,} handshakes"
    p99 = ("latency_us", "p99")
    return [
        Figure(title, beside.median(*p99), "µs", ratio_at_most(2.0), alone.median(*p99), "alone"),
        # Effect of the crowd's clients alone on a process that shares the cores with them.
        Figure(
            "the same through the byte relay", relay_beside.median(*p99), "µs", None, relay_alone.median(*p99), "alone"
        ),
    ]


def beside_crowds(router: BenchRouter, established: subprocess.Popen[str]) -> dict[str, Any]:
    """Run crowds of handshakes, one after the other, until a load ends. Return its report."""
    try:
        while established.poll() is None:
            router.load(handshakes=CROWD, opening=CROWD, **TLS)
    except BaseException:
        established.kill()
        established.communicate()
        raise
    return finish_load(established)


def idle_variants(folder: Path, certificate: Certificate) -> list[Variant]:
    """Return the ways in which idle clients connect: without a login, with a password, with a certificate as well."""
    without_login = encrypted_variant(certificate, "TLS", resume=False)
    password = logging_in(folder, without_login)
    sections = [
        (name, {**values, "caCertFile": certificate.certificate} if name == "sslProfile" else values)
        for name, values in password.sections
    ]
    return [
        without_login,
        password,
        Variant(
            f"{password.title}, client certificate",
            tuple(sections),
            {**password.attributes, "saslMechanisms": "SCRAM-SHA-256 EXTERNAL"},
            {**password.options, "certificate": certificate.certificate, "key": certificate.key},
        ),
    ]


def idle_memory(bench: Bench, count: int, variant: Variant) -> list[Figure]:
    """Measure idle connections that were opened all at once."""
    text = configuration_text(router_section(WORKERS), *variant.sections, listener(**variant.attributes), INFO_LOG)
    with bench.router(WORKERS, text) as router:
        with StandingClients(router.port, min(count, WARM_CONNECTIONS), **variant.options) as clients:
            clients.wait(0.0)
        before, began = steady_memory(router.pid), time.monotonic()
        with StandingClients(router.port, count, **variant.options) as clients:
            seconds = clients.wait(began)
            memory = steady_memory(router.pid) - before
    what = f"{count:,} idle connections, {variant.title}"
    return [
        Figure(what, memory / count, "KiB each", at_most(IDLE_KIB)),
        Figure(f"{what}: admitted", count / seconds, "/s", None),
    ]


def tls_idle(bench: Bench) -> list[Figure]:
    """Measure the memory of an idle TLS connection with a session and two links, all router processes together."""
    count = client_count(IDLE_CONNECTIONS, bench.effort is not FULL)
    with TemporaryDirectory(prefix="bench-") as folder:
        certificate = Certificate()  # its files exist as long as this object
        variants = idle_variants(Path(folder), certificate)
        return [figure for each in variants for figure in idle_memory(bench, count, each)]
