"""Rows about clients that log in while established clients exchange messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from loadtests.configuration import INFO_LOG, configuration_text, listener, router_section
from loadtests.haproxy import Certificate
from loadtests.measuring import BODY, WARM_SECONDS, Bench, Readings
from loadtests.processes import BenchRouter, Relay, finish_load, start_load
from loadtests.report import Figure, ratio_at_most
from loadtests.storm import MECHANISM, PASSWORD, USER
from loadtests.storm_rows import storm
from tests.peer.logins import issuer, token, write_users
from tests.system.router import Section

CROWD = 2_000  # logins at once
WORKERS = 2
PACED_RATE = 5_000  # messages/s of established clients
VALID = 3600  # seconds for which a token is valid


class LoginKind(NamedTuple):
    """Kind of login: storm, mechanism, the router's configuration for it, and the file that clients need."""

    kind: str
    mechanism: str
    section: Section
    attributes: dict[str, Any]  # of the listener
    file: Path | None = None
    owner: Certificate | None = None  # keeps the files


def passwords(folder: Path) -> LoginKind:
    """Prepare SCRAM logins: the router computes a proof and looks the user up."""
    users = folder / "users"
    write_users(users, **{USER: PASSWORD})
    return LoginKind("logins", MECHANISM, ("saslUsers", {"name": "people", "file": users}), {"saslUsers": "people"})


def tokens(folder: Path) -> LoginKind:
    """Prepare token logins: the router checks the signature, ECDSA over prime256v1."""
    shown = folder / "token"
    shown.write_text(token(sub=USER, exp=int(time.time()) + VALID))
    return LoginKind("token-logins", "OAUTHBEARER", ("tokenIssuer", issuer(folder)), {"tokenIssuers": "id"}, shown)


def certificates(_: Path) -> LoginKind:
    """Prepare EXTERNAL logins: a full TLS handshake, and a check of the client's certificate."""
    made = Certificate()
    files = {"certFile": made.certificate, "privateKeyFile": made.key, "caCertFile": made.certificate}
    attributes = {"sslProfile": "bench", "requireSsl": True, "saslMechanisms": "EXTERNAL"}
    profile: Section = ("sslProfile", {"name": "bench", **files})
    return LoginKind("certificate-logins", "EXTERNAL", profile, attributes, made.both, made)


def configuration(crowd: LoginKind) -> str:
    """Return a configuration with one listener that requires a login, and one without."""
    strict = {"saslMechanisms": None, "authenticatePeer": True, **crowd.attributes}
    return configuration_text(
        router_section(WORKERS), crowd.section, listener("strict", **strict), listener("plain"), INFO_LOG
    )


def logins(bench: Bench) -> list[Figure]:
    """Measure beside 2,000 simultaneous logins with a password."""
    return beside_crowds(bench, passwords)


def token_logins(bench: Bench) -> list[Figure]:
    """Measure beside 2,000 simultaneous logins with a token."""
    return beside_crowds(bench, tokens)


def certificate_logins(bench: Bench) -> list[Figure]:
    """Measure beside 2,000 simultaneous logins with a certificate."""
    return beside_crowds(bench, certificates)


def beside_crowds(bench: Bench, make_crowd: Callable[[Path], LoginKind]) -> list[Figure]:
    """Measure the latency of clients while others log in at once, and that of the byte relay beside the same.

    Only the router's effect is to count. Therefore the crowd, which computes in Python, has the lowest priority, and
    computes everything that is equal for all of its clients once.
    """
    alone, beside, relay_alone, relay_beside = Readings(), Readings(), Readings(), Readings()
    seconds = bench.effort.beside_seconds / bench.effort.rounds
    with TemporaryDirectory(prefix="bench-") as folder:
        crowd = make_crowd(Path(folder))
        with Relay() as relay, bench.router(WORKERS, configuration(crowd)) as router:
            paced = {"rate": PACED_RATE, "size": BODY, "seconds": seconds}
            through = {"port": router.ports[1], **paced}
            straight = {"port": relay.sender_port, "receiver_port": relay.receiver_port, "direct": True, **paced}
            finish_load(start_load({**through, "seconds": WARM_SECONDS}))
            for _ in range(bench.effort.rounds):
                alone.append(finish_load(start_load(through)))
                beside.append(beside_logins(router, crowd, through))
                relay_alone.append(finish_load(start_load(straight)))
                relay_beside.append(beside_logins(router, crowd, straight))
    median = ("latency_us", "p50")
    return [
        Figure(
            f"median latency beside crowds of {CROWD:,} logins by {crowd.mechanism}",
            beside.median(*median), "µs", ratio_at_most(1.2), alone.median(*median), "alone",
        ),
        Figure(
            "the same through the byte relay",
            relay_beside.median(*median), "µs", None, relay_alone.median(*median), "alone",
        ),
        Figure("p99 beside these logins", beside.median("latency_us", "p99"), "µs", None,
               alone.median("latency_us", "p99"), "alone"),
        Figure("p99 through the byte relay beside these logins", relay_beside.median("latency_us", "p99"), "µs", None,
               relay_alone.median("latency_us", "p99"), "alone"),
    ]  # fmt: skip


def beside_logins(router: BenchRouter, crowd: LoginKind, options: Mapping[str, object]) -> dict[str, Any]:
    """Run a load beside repeated crowds of logins. Return its report."""
    process = start_load(options)
    try:
        while process.poll() is None:
            with storm(router, crowd.kind, CROWD, crowd.file, last=True):
                pass
    except BaseException:
        process.kill()
        process.communicate()
        raise
    return finish_load(process)
