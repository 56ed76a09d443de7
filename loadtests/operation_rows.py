"""Rows about the cost of clients, not of deliveries: connecting, a short conversation, a request, an attach.

Clients of amqpload repeat an operation (`--operation`), with one round trip for each step, as client libraries do it.
The figures are operations a second and the CPU time of each process of the router for one operation. The byte relay's
CPU is that of the same octets between the same clients and the same router.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import psutil

from loadtests.configuration import INFO_LOG, configuration_text, listener, router_section
from loadtests.haproxy import Certificate
from loadtests.measuring import FULL, Bench, Readings
from loadtests.policy_rows import VHOSTS
from loadtests.processes import BenchRouter, MeasureError, Relay, load
from loadtests.report import Figure
from loadtests.storm import PASSWORD, USER
from tests.peer.logins import write_users
from tests.system.router import Section

AT_A_TIME = 500  # clients
#: Operations of one run.
COUNTS = {"connect": 3_000, "short": 3_000, "rpc": 10_000, "attach": 30_000, "attach-pipelined": 100_000}
CONNECTING = ("connect", "short")  # operations that connect
QUICK_DIVISOR = 5  # of these counts for a quick run
WARM_DIVISOR = 10
LEAST = 100  # operations: one batch of pipelined attaches
VHOST = "tenant"
REPLIES = "amqp:._topo.#"  # pattern of the addresses of dynamic receivers
SUPERVISOR: Final = "supervisor"
WORKERS: Final = "workers"


class Variant(NamedTuple):
    """Way in which clients connect. sections: of the router, beside the listener. attributes: of the listener.
    options: of amqpload. relayed: the relay is measured as well. Through the relay all clients are one host, and the
    router limits the logins of a host.
    """

    title: str
    sections: tuple[Section, ...] = ()
    attributes: Mapping[str, Any] = {}
    options: Mapping[str, object] = {}
    relayed: bool = True


def encrypted(certificate: Certificate, title: str, resume: bool) -> Variant:
    """Return a variant whose clients use TLS 1.3 and check the certificate. resume: with the ticket of one session."""
    profile = {"name": "bench", "certFile": certificate.certificate, "privateKeyFile": certificate.key}
    return Variant(
        title, (("sslProfile", profile),), {"sslProfile": "bench", "requireSsl": True},
        {"tls": True, "ca": certificate.certificate, "resume": resume},
    )  # fmt: skip


def logging_in(folder: Path, before: Variant) -> Variant:
    """Return a variant whose clients log in with a password."""
    file = folder / "users"
    write_users(file, **{USER: PASSWORD})
    return Variant(
        f"{before.title}, SCRAM",
        (*before.sections, ("saslUsers", {"name": "people", "file": file})),
        {**before.attributes, "saslMechanisms": "SCRAM-SHA-256", "saslUsers": "people", "authenticatePeer": True},
        {**before.options, "user": USER, "password": PASSWORD},
        relayed=False,
    )


def ruled() -> Variant:
    """Return a variant with a policy of many vhosts, one of which has limits and rules for these clients."""
    rules = {
        "users": "anonymous", "remoteHosts": "127.0.0.0-127.255.255.255", "allowDynamicSource": True,
        "allowAnonymousSender": True, "sourcePattern": "bench.#, service",
        "targetPattern": f"bench.#, service, {REPLIES}", "maxSenders": 200, "maxReceivers": 200, "maxSessions": 10,
    }  # fmt: skip
    limits = {"maxConnections": 10_000, "maxConnectionsPerUser": 10_000, "maxConnectionsPerHost": 10_000}
    others: list[Section] = [("vhost", {"hostname": f"v{number}"}) for number in range(VHOSTS - 1)]
    vhost: Section = ("vhost", {"hostname": VHOST, **limits, "groups": {"clients": rules}})
    return Variant(
        f"policy of {VHOSTS} vhosts", (("policy", {"enableVhostPolicy": True}), *others, vhost),
        options={"hostname": VHOST},
    )  # fmt: skip


def variants(folder: Path, certificate: Certificate, all_of_them: bool) -> list[Variant]:
    """Return all variants, or those that matter to clients that stay connected."""
    plain = Variant("plain")
    if not all_of_them:
        return [plain, ruled()]
    resumed = encrypted(certificate, "TLS resumed", resume=True)
    return [
        plain,
        logging_in(folder, plain),
        encrypted(certificate, "TLS", resume=False),
        resumed,
        logging_in(folder, resumed),
        ruled(),
    ]


def role(pid: int) -> str:
    """Return the role of a process of a router; that of an auxiliary process is its name."""
    name = psutil.Process(pid).name().removeprefix("sluice")
    if name.startswith("-w"):
        return WORKERS
    return name.removeprefix("-") or SUPERVISOR


def by_role(router: BenchRouter, report: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the CPU time of a run, in µs an operation, by role."""
    found = {SUPERVISOR: 0.0, WORKERS: 0.0}
    for pid, used in report["cpu_us"].items():
        each = SUPERVISOR if int(pid) == router.pid else role(int(pid))
        found[each] = found.get(each, 0.0) + used
    return found


def run_operation(bench: Bench, name: str, workers: int, variant: Variant) -> list[Figure]:
    """Measure an operation in one variant; the relay, in turn with the router, only if each operation connects."""
    relayed = variant.relayed and name in CONNECTING
    count = COUNTS[name] if bench.effort is FULL else max(LEAST, COUNTS[name] // QUICK_DIVISOR)
    text = configuration_text(router_section(workers), *variant.sections, listener(**variant.attributes), INFO_LOG)
    options = {"operation": name, "opening": AT_A_TIME, **variant.options}
    ours, relays = Readings(), Readings()
    with bench.router(workers, text) as router, Relay(onward=router.port) as relay:
        router.load(count=max(LEAST, count // WARM_DIVISOR), **options)
        for _ in range(bench.effort.rounds):
            report = router.load(count=count, **options)
            ours.append({**report, "cpu": by_role(router, report)})
            if relayed:
                report = load(port=relay.sender_port, pid=relay.pid, count=count, **options)
                relays.append({**report, "cpu": report["cpu_us"][str(relay.pid)]})
    what = f"{name}, {workers} worker{'s' if workers > 1 else ''}, {variant.title}"
    cpu = {role: ours.median("cpu", role) for role in ours[0]["cpu"]}
    figures = [Figure(what, ours.median("per_second"), "/s", None, relays.median("per_second") if relayed else None)]
    figures += [
        Figure(f"{what}: CPU of {role}", used, "µs an operation", None)
        for role, used in cpu.items()
        if used or role in (SUPERVISOR, WORKERS)
    ]
    relays_cpu = relays.median("cpu") if relayed else None
    return [*figures, Figure(f"{what}: CPU in all", sum(cpu.values()), "µs an operation", None, relays_cpu)]


def operations(bench: Bench, name: str, workers: int) -> list[Figure]:
    """Measure an operation in each variant."""
    with TemporaryDirectory(prefix="bench-") as folder:
        certificate = Certificate()
        figures: list[Figure] = []
        for variant in variants(Path(folder), certificate, name in CONNECTING):
            try:
                figures += run_operation(bench, name, workers, variant)
            except MeasureError as error:
                raise MeasureError(f"{variant.title}: {error}") from error
        return figures


#: Rows by name; the suffix -2 is for two workers.
OPERATION_ROWS = {
    f"{name}{suffix}": partial(operations, name=name, workers=workers)
    for name in COUNTS
    for suffix, workers in (("", 1), ("-2", 2))
}
