"""Harness of the fuzz targets: it distinguishes cases that compute forever or block from cases that return or fail."""

import time
from collections.abc import Callable

import pytest

from tests.fuzz import harness

pytestmark = pytest.mark.starts

LIMIT = 0.5  # seconds of processor time


def compute_without_end() -> None:
    while True:
        pass


def fail() -> None:
    raise ValueError


def test_case_that_computes_without_end_is_killed() -> None:
    ended = harness.in_process(compute_without_end, None, LIMIT)
    assert ended is not None
    assert ended.startswith("hangs")


def test_case_that_blocks_without_processor_time_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "BLOCKED_FACTOR", 1.0)
    ended = harness.in_process(lambda: time.sleep(60), None, LIMIT)
    assert ended is not None
    assert ended.startswith("hangs")


@pytest.mark.parametrize(("case", "expected"), [(lambda: None, None), (fail, "fails")])
def test_case_that_ends_by_itself_is_not_a_hang(case: Callable[[], None], expected: str | None) -> None:
    assert harness.in_process(case, None, LIMIT) == expected
