"""Whole conversations with one router of one to three workers, between which deliveries cross."""

import pytest

from tests.fuzz.harness import fuzz
from tests.fuzz.targets import ENGINE, NETWORK, PATHS


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", [*ENGINE, *NETWORK, *PATHS])
def test_conversations_with_router_keep_invariants(name, fuzz_seconds):
    target = {**ENGINE, **NETWORK, **PATHS}[name]
    fuzz(name, target.generate, target.run, fuzz_seconds)
