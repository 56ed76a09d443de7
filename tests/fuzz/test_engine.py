"""Whole conversations with one router: of one worker, and of two and three between which deliveries cross."""

import pytest

from tests.fuzz.conversation import conversation
from tests.fuzz.harness import fuzz
from tests.fuzz.routers import RouterModel, about_routers
from tests.unit.engine.replay import play


@pytest.mark.timeout(0)
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_conversations(workers, fuzz_seconds):
    fuzz(f"engine-{workers}", lambda rng: conversation(rng, workers), play, fuzz_seconds)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("workers", [1, 2])
def test_conversations_with_routers(workers, fuzz_seconds):
    router = (RouterModel, about_routers)
    fuzz(f"network-{workers}", lambda rng: conversation(rng, workers, router), play, fuzz_seconds)
