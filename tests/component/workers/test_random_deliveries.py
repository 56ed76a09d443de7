"""Settlement in shuffled ranges and delivery states bit for bit, compared with an exact model.

More of these conversations: tests/fuzz/test_deliveries.py, and `python -m tests.component.engine.deliveries`.
"""

from random import Random

import pytest

from tests.component.engine.deliveries.conversation import TARGETS, run

#: Case in which outcomes of a consumer cross by a ring, and its detach by the supervisor, which is faster.
OUTCOMES_BEFORE_DETACH = {
    "place": "edge",
    "workers": 3,
    "consumers": [
        {"router": 1, "worker": 1, "mode": 1, "sessions": [{"window": 2048, "first": 4294967291, "credits": [4000]}]},
        {"router": 1, "worker": 1, "mode": 0, "sessions": [{"window": 2048, "first": 4294967291, "credits": [200]}]},
    ],
    "producers": [
        {
            "router": 0,
            "worker": 1,
            "mode": 1,
            "sessions": [
                {"window": 20, "first": 4294967291, "credits": [200]},
                {"window": 2048, "first": 4294966996, "credits": [4000, 200]},
            ],
        }
    ],
    "events": [
        ["send", 2, 1500, 10, False, None],
        ["credit", 6, 10],
        ["report", 0, True, 0, 3, "0053ff42", True, False],
        ["lose", 11],
        ["report", 9, True, 7, 3, "00532445", True, True],
        ["detach", 8],
    ],
}


def test_outcomes_before_a_detach_are_reported() -> None:
    run(OUTCOMES_BEFORE_DETACH)


@pytest.mark.parametrize(("name", "rounds"), [("settlement", 6), ("states", 15)])
def test_random_conversation_reports_all_states(name: str, rounds: int) -> None:
    for seed in range(rounds):
        run(TARGETS[name](Random(f"{name} {seed}")))
