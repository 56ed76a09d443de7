"""Costs of steps in large tables: growth with the number of objects is detected."""

import pytest

from loadtests import cost_rows
from loadtests.measuring import QUICK, Bench


def test_step_that_grows_too_much_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    grows = {"walk": lambda _router, size: (lambda: sum(range(size * 1000)), 1)}
    monkeypatch.setattr(cost_rows, "STEPS_OF", grows)
    monkeypatch.setattr(cost_rows, "QUICK_SIZES", (20, 2000))
    (figure,) = cost_rows.costs(Bench(QUICK, []))
    assert not figure.passed
