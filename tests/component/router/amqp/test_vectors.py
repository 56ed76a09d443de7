"""Stored inputs: some once made the engine or a parser fail, others show the use of a fuzz target. Also the first
cases of each target.
"""

import pytest

from tests.component.engine.vectors import FOLDER, RUN, names, replay
from tests.fuzz.targets import PARSERS, PATHS, TARGETS, case

#: First cases of each target in fuzzing (tests/fuzz). A parser's case takes microseconds, a conversation's 0.05 s.
FIRST = {name: 100 if name in PARSERS else 30 if name in PATHS else 6 for name in TARGETS}


@pytest.mark.parametrize("name", names())
def test_vector_is_replayed_without_failure(name):
    replay(name)


@pytest.mark.parametrize("target", RUN)
def test_target_has_stored_vectors(target):
    """Accepted and refused input are both represented."""
    assert len(list((FOLDER / target).glob("*.json"))) >= 2


@pytest.mark.parametrize("name", TARGETS)
def test_fuzzing_starts_without_failure(name):
    for seed in range(1, FIRST[name] + 1):
        TARGETS[name].run(case(name, seed))
