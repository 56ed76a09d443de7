"""Each attack of `python -m loadtests.attacks` once, beside bystanders."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from loadtests.attacks.plays import ATTACKS, BROKERS
from tests.system.router import ROOT, Router, Section, listener

pytestmark = pytest.mark.adversarial

WORKER_COUNTS = (1, 3)
#: MiB that a connection may have the router hold.
BUFFERED = 64
#: Octets: most that a worker may need for that; the attacks that have no other bound would use more.
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
#: Seconds after which an attacker begins no further round.
ONE_ROUND = 0.01
PATIENCE = 100.0


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(router: Router, name: str) -> None:
    """In a process of its own: the bystanders' thread would wait for it."""
    ports = [str(router.ports[each]) for each in ("attackers", "brokers")]
    words = [sys.executable, "-m", "loadtests.attacks.play", name, *ports, str(ONE_ROUND)]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=True)
    report = json.loads(ended.stdout)
    assert report["played"] + report["ended"] >= 1, report
