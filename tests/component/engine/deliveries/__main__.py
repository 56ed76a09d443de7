"""Run random conversations, each with its own seed.

Usage: `python -m tests.component.engine.deliveries settlement --rounds 5000 --seed 1`. Exit status: 0 if all passed;
1 if a conversation failed. A shortened form of the first failing one is printed.
"""

import argparse
import json
import sys
import time
import traceback
from functools import partial
from random import Random

from tests.component.engine.deliveries.conversation import TARGETS, run
from tests.component.engine.host import InProcessRouter
from tests.fuzz.harness import HANG_SECONDS, in_process, shorten

#: Conversations per process.
BATCH = 100


def play(name: str, first: int, count: int) -> None:
    """Play `count` conversations in this process. Raises AssertionError with the seed."""
    for seed in range(first, first + count):
        try:
            run(TARGETS[name](Random(f"{name} {seed}")))
        except BaseException as error:
            raise AssertionError(f"{name}, seed {seed}: {error}") from error


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=tuple(TARGETS))
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    given = parser.parse_args()
    began = time.monotonic()
    failed = []
    for first in range(given.seed, given.seed + given.rounds, BATCH):
        count = min(BATCH, given.seed + given.rounds - first)
        if in_process(partial(play, given.name, first, count), None, BATCH * HANG_SECONDS) is None:
            continue
        seeds = range(first, first + count)
        failed += [seed for seed in seeds if in_process(partial(play, given.name, seed, 1), None, HANG_SECONDS)]
    print(f"{given.name}: {given.rounds} rounds in {time.monotonic() - began:.0f} s, {len(failed)} failed: {failed}")
    if not failed:
        return 0
    case = shorten(TARGETS[given.name](Random(f"{given.name} {failed[0]}")), run)
    print(json.dumps(case))
    try:
        run(case)
    except AssertionError:
        traceback.print_exc()
        for router in list(InProcessRouter.all_open):
            router.abandon()
    return 1


if __name__ == "__main__":
    sys.exit(main())
