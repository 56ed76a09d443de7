"""Lander that merges soon, and kills itself: `python -m tests.pipeline.merging_lander STEP land …`.

It merges four segments at once and deletes them a second later. STEP is the number of renamed and deleted files before
which it dies; 0: it lives.
"""

import sys
from collections.abc import Callable
from typing import Any

from sluice.pipeline import lander, merging, stores
from sluice.pipeline.cli import main
from tests.pipeline.crashing_lander import crash


def arm(step: int) -> None:
    left = step

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                crash()
            return method(*arguments)

        return call

    for name in ("rename", "delete"):
        setattr(stores.LocalStore, name, counted(getattr(stores.LocalStore, name)))


if __name__ == "__main__":
    merging.LEAST_SEGMENTS = 4
    merging.RUN_FILES = 6
    merging.GRACE = 1.0
    lander.MERGE_EVERY = 0.01
    arm(int(sys.argv[1]))
    sys.exit(main(sys.argv[2:], "merging"))
