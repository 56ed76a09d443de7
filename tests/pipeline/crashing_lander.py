"""Lander that kills itself at a point: `python -m tests.pipeline.crashing_lander POINT NUMBER land …`.

Points before-rename and after-rename refer to segment NUMBER, before-disposition and after-disposition to the batch
with that number.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from sluice.pipeline import stores
from sluice.pipeline.bulk import BulkState
from sluice.pipeline.cli import main


def crash() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str, number: int) -> None:
    rename, settle = stores.LocalStore.rename, BulkState.settle
    settled = 0

    def crashing_rename(self: stores.LocalStore, temporary: Path, final: Path) -> None:
        ours = final.name.startswith(f"{number:012}-")
        if ours and point == "before-rename":
            crash()
        rename(self, temporary, final)
        if ours and point == "after-rename":
            crash()

    def crashing_settle(self: BulkState, *arguments: Any) -> bool:
        nonlocal settled
        ours = settled == number
        settled += 1
        if ours and point == "before-disposition":
            crash()
        accepted = settle(self, *arguments)
        if ours and point == "after-disposition":
            crash()
        return accepted

    stores.LocalStore.rename = crashing_rename  # type: ignore[method-assign]
    BulkState.settle = crashing_settle  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    arm(sys.argv[1], int(sys.argv[2]))
    sys.exit(main(sys.argv[3:], "crashing"))
