"""Rate limit of a drain."""

import pytest

from sluice.supervisor.drain.pace import Pace

STEP = 0.05


@pytest.mark.parametrize("per_second", [1, 10, 100, 2000])
def test_actions_in_steps_keep_rate(per_second):
    pace = Pace(per_second, STEP, 0.0)
    taken = [pace.take(step * STEP, 100_000) for step in range(1, 201)]
    assert sum(taken) == pytest.approx(10 * per_second, abs=1)
    assert max(taken) <= 1 + 2 * per_second * STEP


def test_late_step_brings_no_burst():
    pace = Pace(100, STEP, 0.0)
    assert pace.take(0.0, 5) == 0, "no burst precedes the rate"
    assert pace.take(60.0, 1000) == 11
    assert pace.take(60.0, 1000) == 0


def test_unwanted_actions_are_not_counted():
    pace = Pace(100, STEP, 0.0)
    assert pace.take(0.05, 2) == 2
    assert pace.take(0.05, 5) == 3
