"""Decisions at the start of the router."""

import os

from supervisor.main import _cores


def test_workers_have_cores_of_their_own_only_where_all_are_theirs() -> None:
    """Two routers with one worker each on one machine would otherwise share the first core."""
    cores = sorted(os.sched_getaffinity(0))
    assert _cores(len(cores)) == (cores if len(cores) > 1 else [None])
    assert _cores(len(cores) + 1) == [None] * (len(cores) + 1)
    assert _cores(1) == [None]
