"""`python -m loadtests.liveness`: rounds of random misbehaviour within the protocol, then everything comes to rest.

Exit status: 0 nothing was wrong; 1 something was, with the seeds; 2 it could not begin.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from loadtests.liveness.draw import draw
from loadtests.liveness.routers import Routers
from loadtests.liveness.world import World

KINDS = ("rest", "grudge")
HOPS = ("none", "two", "1.19")
PATIENCE = 6.0


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.liveness", description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, help="one round, with its history")
    parser.add_argument("--seeds", help="FROM-TO")
    parser.add_argument("--rounds", type=int, help="how many (default: 100, or as many as --seconds allow)")
    parser.add_argument("--seconds", type=float, help="for how long")
    parser.add_argument("--workers", type=int, choices=(1, 2, 3, 4), help="default: 1 and 3 in turns")
    parser.add_argument(
        "--hop", choices=(*HOPS, "all"), default="all", help="one router; two; one and a neighbour of 1.19"
    )
    parser.add_argument("--kind", choices=(*KINDS, "both"), default="both")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds without progress (%(default)s)")
    return parser.parse_args(words)


def seeds(options: argparse.Namespace) -> Iterator[int]:
    """The seeds to run."""
    if options.seed is not None:
        yield options.seed
        return
    if options.seeds:
        low, _, high = options.seeds.partition("-")
        yield from range(int(low), int(high or low) + 1)
        return
    count = options.rounds or (1 << 30 if options.seconds else 100)
    yield from range(1, count + 1)


class Fleet:
    """Routers of all configurations that have been asked for, each started once."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._running: dict[tuple[int, str], tuple[ExitStack, Routers]] = {}

    def get(self, workers: int, hop: str) -> Routers:
        """Routers that are at rest."""
        key = (workers, hop)
        if key not in self._running:
            own = self._stack.enter_context(ExitStack())
            self._running[key] = (own, own.enter_context(Routers(workers, hop)))
        return self._running[key][1]

    def discard(self, workers: int, hop: str) -> None:
        """Those that failed are not used again."""
        own, _routers = self._running.pop((workers, hop))
        own.close()


def main(words: Sequence[str] | None = None) -> int:
    """Run; returns the exit status."""
    options = parse(sys.argv[1:] if words is None else words)
    hops = HOPS if options.hop == "all" else (options.hop,)
    kinds = KINDS if options.kind == "both" else (options.kind,)
    counts: Counter[str] = Counter()
    failed: list[str] = []
    until = time.monotonic() + options.seconds if options.seconds else None
    with ExitStack() as stack:
        fleet = Fleet(stack)
        for seed in seeds(options):
            for hop in hops if options.seed is not None else (hops[seed % len(hops)],):
                for kind in kinds if options.seed is not None else (kinds[seed // 2 % len(kinds)],):
                    workers = options.workers or (1, 3)[seed // 4 % 2]
                    name = f"--seed {seed} --kind {kind} --workers {workers} --hop {hop}"
                    routers = fleet.get(workers, hop)
                    world = World(
                        draw(seed, kind, len(routers.routers), routers.neighbour is not None), routers, options.patience
                    )
                    start = time.monotonic()
                    faults = world.run() + routers.trouble()
                    counts[f"{kind}, {workers} workers, hop: {hop}"] += 1
                    if options.seed is not None:
                        print("\n".join(world.history))
                    if faults:
                        failed.append(name)
                        what = f"{world.scenario.theme} {world.scenario.grudge}".strip()
                        print(f"FAILED {name} ({what}) {time.monotonic() - start:.1f} s")
                        for fault in faults[:8]:
                            print(f"    {fault[:1000]}")
                        fleet.discard(workers, hop)
                    sys.stdout.flush()
                    if faults and not options.keep_going:
                        break
            if (failed and not options.keep_going) or (until is not None and time.monotonic() > until):
                break
    for name, count in sorted(counts.items()):
        print(f"{count:6} rounds: {name}")
    print(f"{len(failed)} of {sum(counts.values())} rounds failed" + "".join(f"\n    {name}" for name in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
