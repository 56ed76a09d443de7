"""Settlement in shuffled ranges, and delivery states bit for bit, against an exact model.

More of these conversations: tests/fuzz/test_deliveries.py, and `python -m tests.unit.engine.deliveries`.
"""

from random import Random

import pytest

from tests.unit.engine.deliveries.conversation import TARGETS, run


@pytest.mark.parametrize(("name", "rounds"), [("settlement", 6), ("states", 15)])
def test_random_conversation_reports_what_each_end_said(name: str, rounds: int) -> None:
    for seed in range(rounds):
        run(TARGETS[name](Random(f"{name} {seed}")))
