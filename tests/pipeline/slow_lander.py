"""Lander whose writes wait for a file: `python -m tests.pipeline.slow_lander FILE land …`."""

import sys
import time
from pathlib import Path

from sluice.pipeline import stores
from sluice.pipeline.cli import main

CHECK_INTERVAL = 0.05  # seconds between two checks for the file


def wait_for(gate: Path) -> None:
    rename = stores.LocalStore.rename

    def waiting_rename(self: stores.LocalStore, temporary: Path, final: Path) -> None:
        while final.suffix == ".parquet" and not gate.exists():
            time.sleep(CHECK_INTERVAL)
        rename(self, temporary, final)

    stores.LocalStore.rename = waiting_rename  # type: ignore[method-assign]


if __name__ == "__main__":
    wait_for(Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:], "slow"))
