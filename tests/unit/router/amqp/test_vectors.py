"""Inputs that once made the engine or a parser fail, or that show what a fuzz target does; and its first cases."""

import pytest

from tests.fuzz.targets import PARSERS, TARGETS, case
from tests.unit.engine.vectors import FOLDER, RUN, names, replay

#: Cases of each target in which fuzzing begins (tests/fuzz): a parser's take microseconds, a conversation's 0.05 s.
FIRST = {name: 100 if name in PARSERS else 6 for name in TARGETS}


@pytest.mark.parametrize("name", names())
def test_once_failed(name):
    replay(name)


@pytest.mark.parametrize("target", RUN)
def test_each_target_has_vectors(target):
    """Both what is taken and what is refused."""
    assert len(list((FOLDER / target).glob("*.json"))) >= 2


@pytest.mark.parametrize("name", TARGETS)
def test_first_cases_of_fuzzing(name):
    for seed in range(1, FIRST[name] + 1):
        TARGETS[name].run(case(name, seed))
