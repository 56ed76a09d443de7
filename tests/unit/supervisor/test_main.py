"""Decisions at the start of the router."""

import os

from sluice.supervisor.main import _cores


def test_workers_are_pinned_only_if_they_fill_all_cores() -> None:
    """Two routers with one worker each on one machine would otherwise share the first core."""
    cores = sorted(os.sched_getaffinity(0))
    assert _cores(len(cores)) == (cores if len(cores) > 1 else [None])
    assert _cores(len(cores) + 1) == [None] * (len(cores) + 1)
    assert _cores(1) == [None]
