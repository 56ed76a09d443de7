"""Whole conversations with one router of one to three workers, between which deliveries cross."""

import pytest

from tests.fuzz.harness import fuzz
from tests.fuzz.targets import ENGINE, NETWORK


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", [*ENGINE, *NETWORK])
def test_conversations_with_router_keep_invariants(name, fuzz_seconds):
    target = {**ENGINE, **NETWORK}[name]
    fuzz(name, target.generate, target.run, fuzz_seconds)
