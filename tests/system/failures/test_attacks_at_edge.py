"""Attacks at an edge router beside bystanders, two of which use another edge router."""

from __future__ import annotations

import pytest

from loadtests.attacks.plays import ATTACKS
from tests.system.bystanders.harness import BystanderHarness
from tests.system.failures.attacks import MEMORY_MOST, SECTIONS, play
from tests.system.router import RouterProcess

__all__ = ["MEMORY_MOST", "SECTIONS"]

pytestmark = pytest.mark.adversarial

WORKER_COUNTS = (1, 3)
NEIGHBOUR = "inter-edge"


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_leaves_bystanders_undisturbed(router: RouterProcess, bystanders: BystanderHarness, name: str) -> None:
    play(router, bystanders, name)
