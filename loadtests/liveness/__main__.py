"""`python -m loadtests.liveness`: rounds of random legal misbehaviour, after which all work must complete.

Exit status: 0 passed; 1 failed, with the options that repeat the round; 2 the test could not start.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from loadtests.liveness.draw import draw
from loadtests.liveness.round import LivenessRound
from loadtests.liveness.routers import HOPS, RoutersUnderTest

KINDS = ("rest", "grudge")
WORKERS = (1, 3)
#: Seconds without progress that count as a stall.
PATIENCE = 10.0
ROUNDS = 100
#: Faults of a round that are printed.
SHOWN = 8


class RoundSetting(NamedTuple):
    """Conditions under which a seed is run."""

    hop: str
    workers: int
    kind: str

    def words(self, seed: int) -> str:
        """Return the options that repeat a round."""
        return f"--seed {seed} --kind {self.kind} --workers {self.workers} --hop {self.hop}"

    def __str__(self) -> str:
        return f"kind {self.kind}, workers {self.workers}, hop {self.hop}"


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line. Exits with status 2 and a message if it is wrong."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.liveness", description="Does everything come to rest?")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=int, help="this one only, with its history")
    which.add_argument("--seeds", metavar="FROM-TO", help="these")
    which.add_argument("--rounds", type=int, help=f"so many ({ROUNDS}, unless --seconds is given)")
    parser.add_argument("--first", type=int, default=1, help="the first seed of --rounds or --seconds (%(default)s)")
    parser.add_argument("--seconds", type=float, help="begin no round after so long")
    parser.add_argument("--kind", choices=(*KINDS, "both"), default="both", help="everybody behaves; one never does")
    parser.add_argument("--workers", type=int, help="of each router (1 and 3 in turns)")
    parser.add_argument("--hop", choices=(*HOPS, "all"), default="all", help="one router; two; one beside one of 1.19")
    parser.add_argument("--keep-going", action="store_true", help="go on after a round that failed")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds without progress (%(default)s)")
    return parser.parse_args(words)


def seeds(options: argparse.Namespace) -> Iterator[int]:
    """Return the seeds to run."""
    if options.seed is not None:
        return iter((options.seed,))
    if options.seeds:
        low, _, high = options.seeds.partition("-")
        return iter(range(int(low), int(high or low) + 1))
    if options.rounds is None and options.seconds:
        return itertools.count(options.first)
    return iter(range(options.first, options.first + (options.rounds or ROUNDS)))


def settings(options: argparse.Namespace) -> list[RoundSetting]:
    """Return all requested settings, in an order in which few seeds cover all of their values."""
    hops = HOPS if options.hop == "all" else (options.hop,)
    kinds = KINDS if options.kind == "both" else (options.kind,)
    workers = (options.workers,) if options.workers else WORKERS
    return [RoundSetting(*each) for each in itertools.product(hops, workers, kinds)]


class LivenessRun:
    """Rounds, and the routers that they share."""

    def __init__(self, stack: ExitStack, patience: float) -> None:
        self._stack = stack
        self._patience = patience
        self._routers: dict[tuple[str, int], tuple[ExitStack, RoutersUnderTest]] = {}
        self.counts: Counter[RoundSetting] = Counter()
        self.failed: list[str] = []

    def round(self, seed: int, setting: RoundSetting, history: bool = False) -> bool:
        """Run one round. Return True if it passed."""
        routers = self._at_rest(setting)
        start = time.monotonic()
        scenario = draw(seed, setting.kind, len(routers.routers), routers.neighbour is not None)
        round_ = LivenessRound(scenario, routers, self._patience)
        try:
            faults = round_.run()
        except (AssertionError, OSError) as error:  # e.g. the router does not answer its management client
            round_.abandon()
            faults = [*round_.faults, f"the round was broken off: {error!r}"]
        faults += routers.trouble()
        self.counts[setting] += 1
        if history:
            print("\n".join(round_.history))
        if faults:
            self.failed.append(setting.words(seed))
            what = " ".join(filter(None, (scenario.theme, scenario.grudge)))
            print(f"FAILED {setting.words(seed)} ({what}; {time.monotonic() - start:.1f} s)")
            for fault in faults[:SHOWN]:
                print(f"    {fault}")
            self._discard(setting)
        sys.stdout.flush()
        return not faults

    def _at_rest(self, setting: RoundSetting) -> RoutersUnderTest:
        """Return the routers of a setting; they are started on first use."""
        key = setting.hop, setting.workers
        if key not in self._routers:
            own = self._stack.enter_context(ExitStack())
            self._routers[key] = own, own.enter_context(RoutersUnderTest(setting.workers, setting.hop))
        return self._routers[key][1]

    def _discard(self, setting: RoundSetting) -> None:
        """Stop routers after a failed round, so that no other round uses them."""
        own, _routers = self._routers.pop((setting.hop, setting.workers))
        own.close()

    def summary(self) -> str:
        """Return the counts of rounds, and the failed ones."""
        lines = [f"{count:6} rounds: {setting}" for setting, count in sorted(self.counts.items())]
        lines.append(f"{len(self.failed)} of {sum(self.counts.values())} rounds failed")
        return "\n".join(lines + [f"    {words}" for words in self.failed])


def main(words: Sequence[str] | None = None) -> int:
    """Run the rounds. Return the exit status."""
    options = parse(sys.argv[1:] if words is None else words)
    chosen = settings(options)
    until = time.monotonic() + options.seconds if options.seconds else None
    with ExitStack() as stack:
        run = LivenessRun(stack, options.patience)
        for seed in seeds(options):
            if until is not None and time.monotonic() > until:
                break
            turns = chosen if options.seed is not None else [chosen[seed % len(chosen)]]
            fine = [run.round(seed, setting, options.seed is not None) for setting in turns]
            if not all(fine) and not options.keep_going:
                break
    print(run.summary())
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
