"""Rows about clients that log in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from loadtests.measuring import BODY, WARM_SECONDS, Bench, Readings
from loadtests.processes import LINK_CAPACITY, Relay, Router, finish_load, start_load
from loadtests.report import Figure, ratio_at_most
from loadtests.storm import MECHANISM, PASSWORD, USER
from loadtests.storm_rows import storm
from router.sasl.users import Users
from router.sasl.verifiers import make

CROWD = 2_000  # logins at once
WORKERS = 2
PACED_RATE = 5_000  # messages/s of the others
ITERATIONS = 4096  # of the password's key, which only clients compute


def configuration(users: Path) -> str:
    """A listener where clients have to log in, and one where nobody does."""
    return f"""\
router {{
    mode: standalone
    id: bench
    workerThreads: {WORKERS}
}}
saslUsers {{
    name: people
    file: {users}
}}
listener {{
    name: strict
    host: 127.0.0.1
    port: 0
    saslUsers: people
    authenticatePeer: yes
}}
listener {{
    name: plain
    host: 127.0.0.1
    port: 0
    saslMechanisms: ANONYMOUS
    linkCapacity: {LINK_CAPACITY}
}}
log {{
    module: DEFAULT
    enable: info+
}}
"""


def logins(bench: Bench) -> list[Figure]:
    """The median latency of clients while others log in at once; and the byte relay's beside the same.

    It is the router's effect that counts: the crowd, which computes in Python, has the lowest priority, and its user's
    key is computed once.
    """
    alone, beside, relay_alone, relay_beside = Readings(), Readings(), Readings(), Readings()
    seconds = bench.effort.beside_seconds / bench.effort.rounds
    with TemporaryDirectory(prefix="bench-") as folder:
        users = Path(folder, "users")
        users.write_text(Users({}).with_user(USER, [make(MECHANISM, PASSWORD, ITERATIONS)]).text())
        with Relay() as relay, bench.router(WORKERS, configuration(users)) as router:
            paced = {"rate": PACED_RATE, "size": BODY, "seconds": seconds}
            through = {"port": router.ports[1], **paced}
            straight = {"port": relay.sender_port, "receiver_port": relay.receiver_port, "direct": True, **paced}
            finish_load(start_load({**through, "seconds": WARM_SECONDS}))
            for _ in range(bench.effort.rounds):
                for readings, others, options in (
                    (alone, 0, through), (beside, CROWD, through), (relay_alone, 0, straight),
                    (relay_beside, CROWD, straight),
                ):  # fmt: skip
                    readings.append(beside_logins(router, others, options))
    median = ("latency_us", "p50")
    return [
        Figure(
            f"median latency beside crowds of {CROWD:,} logins by {MECHANISM}",
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


def beside_logins(router: Router, crowd: int, options: Mapping[str, object]) -> dict[str, Any]:
    """A load beside so many logins at once, again and again; its report."""
    process = start_load(options)
    try:
        while crowd and process.poll() is None:
            with storm(router, "logins", crowd, last=True):
                pass
    except BaseException:
        process.kill()
        process.communicate()
        raise
    return finish_load(process)
