"""Attacks of `python -m loadtests.attacks`, each played once by its own process beside bystanders."""

from __future__ import annotations

import json
import subprocess
import sys

from loadtests.attacks.plays import BROKERS
from tests.system.bystanders.harness import BystanderHarness
from tests.system.router import ROOT, RouterProcess, Section, listener

#: Receive buffer limit of a connection in MiB.
BUFFERED = 64
#: Memory limit of a worker in octets. Attacks that no other limit stops would exceed it.
MEMORY_MOST = 250 << 20
SECTIONS: list[Section] = [
    listener("attackers", maxBufferedMegabytes=BUFFERED),
    listener("brokers", role="route-container", maxBufferedMegabytes=BUFFERED),
    *(
        ("linkRoute", {"prefix": name, "direction": direction, "containerId": name})
        for name in BROKERS
        for direction in ("in", "out")
    ),
]
#: Seconds after which an attacker starts no further round.
ONE_ROUND = 0.01
PATIENCE = 100.0


def play(router: RouterProcess, harness: BystanderHarness, name: str) -> None:
    """Play one round of an attack; raise AssertionError if it was not played."""
    ports = router.ports["attackers"], router.ports["brokers"], harness.neighbour.port
    words = [sys.executable, "-m", "loadtests.attacks.play", name, *map(str, (*ports, ONE_ROUND))]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert report["played"] + report["ended"] >= 1, report
