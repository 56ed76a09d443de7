"""Settlement in shuffled ranges and delivery states bit by bit, in one router and across routers."""

import pytest

from tests.fuzz.harness import fuzz
from tests.fuzz.targets import DELIVERIES


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", DELIVERIES)
def test_delivery_conversations_match_model(name: str, fuzz_seconds: float) -> None:
    target = DELIVERIES[name]
    fuzz(name, target.generate, target.run, fuzz_seconds)
