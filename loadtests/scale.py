"""Cost of a delivery and of a wake as a router grows: `make bench-scale`.

    python -m loadtests.scale                  # what this machine can show; some minutes
    python -m loadtests.scale pair wake        # some rows, counted
    python -m loadtests.scale --loads          # with real workers, however few cores there are
    python -m loadtests.scale --write-docs     # and rewrite the table in docs/performance.md

On more than a few cores: a router with 1, 2, 4 … workers, up to all cores, under load. On few cores: the instructions
of a delivery and of a wake, counted as by `loadtests.instructions`, in a router whose shared memory has 2, 8, 32 and
64 worker slots. Its rings are real, and all workers but one or two are live peers that are idle. Counts must not grow:
exit status 1 if the largest size takes 5 % more than the smallest.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from loadtests import scale_load
from loadtests.instructions import count, run_rows
from loadtests.processes import MeasureError, build_tools, raise_file_limit
from loadtests.report import write_docs
from loadtests.scale_rows import ROWS, SCENARIOS

FEW_CORES: Final = 2
MOST_GROWTH: Final = 1.05
BATCH: Final = 20  # deliveries of a round
SECONDS: Final = 3.0  # duration of each load

Counts = Mapping[str, float]  # instructions, by scenario and size


def names_of(scenarios: Sequence[str]) -> list[str]:
    return [f"{name}@{size}" for name in scenarios for size in SCENARIOS[name].sizes]


def growth(scenario: str, counts: Counts) -> float:
    """Return the count at the largest size divided by that at the smallest."""
    sizes = SCENARIOS[scenario].sizes
    return counts[f"{scenario}@{sizes[-1]}"] / counts[f"{scenario}@{sizes[0]}"]


def as_table(counts: Counts) -> str:
    """Return the counted scenarios as a Markdown table."""
    lines = ["| row | instructions a | by | sizes | counted | growth |", "| --- | --- | --- | --- | --- | --- |"]
    for name, one in SCENARIOS.items():
        if f"{name}@{one.sizes[0]}" not in counts:
            continue
        sizes = ", ".join(f"{size:,}" for size in one.sizes)
        counted = ", ".join(f"{counts[f'{name}@{size}']:,.0f}" for size in one.sizes)
        lines.append(
            f"| {name} | {one.unit} | {one.grows} | {sizes} | {counted} | {100 * growth(name, counts) - 100:+.1f} % |"
        )
    return "\n".join(lines)


def grown(scenarios: Sequence[str], counts: Counts) -> list[str]:
    """Describe the scenarios whose counts grow."""
    return [
        f"{name}: {growth(name, counts):.2f} times as many instructions a {SCENARIOS[name].unit} with "
        f"{SCENARIOS[name].sizes[-1]:,} {SCENARIOS[name].grows} as with {SCENARIOS[name].sizes[0]:,}"
        for name in scenarios
        if growth(name, counts) > MOST_GROWTH
    ]


def measure_loads() -> int:
    """Measure with real workers. Return status 2 if the test cannot start or a run had a fault."""
    raise_file_limit()
    try:
        build_tools()
        readings = list(scale_load.measure(scale_load.workers_up_to(scale_load.cores()), SECONDS))
    except MeasureError as error:
        print(error, file=sys.stderr)
        return 2
    print(scale_load.as_table(readings))
    return 0


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests.scale", description="Measure how costs grow.")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"which counted rows (all): {', '.join(SCENARIOS)}")
    parser.add_argument("--loads", action="store_true", help="put load on real workers, also on few cores")
    parser.add_argument("--write-docs", action="store_true", help="rewrite the counted table in docs/performance.md")
    parser.add_argument("--counted", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.counted:
        run_rows(options.rows, ROWS, BATCH)
        return 0
    scenarios: list[str] = options.rows or list(SCENARIOS)
    if unknown := [name for name in scenarios if name not in SCENARIOS]:
        parser.error(f"no such row: {', '.join(unknown)} (there are {', '.join(SCENARIOS)})")
    if options.loads or (scale_load.cores() > FEW_CORES and not options.rows):
        return measure_loads()
    if shutil.which("valgrind") is None:
        print("valgrind is missing (apt-get install valgrind)", file=sys.stderr)
        return 2
    counts = {one.row: one.instructions for one in count(names_of(scenarios), "loadtests.scale", BATCH)}
    table = as_table(counts)
    print(table)
    if options.write_docs:
        write_docs("scale", table)
    found = grown(scenarios, counts)
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
