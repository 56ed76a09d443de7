"""User-space instructions of a delivery, a figure that is independent of other load: `make bench-instructions`.

    python -m loadtests.instructions                 # all rows; some minutes
    python -m loadtests.instructions unsettled hop   # some
    python -m loadtests.instructions --write-docs    # and rewrite the table in docs/performance.md

Each row runs the real workers in one process, octets in and octets out, without sockets
(tests/component/engine/host.py), under callgrind. The first rounds warm up pools and caches; the others are counted. A
figure covers the router's compiled code and the libc code it calls, per delivery that a producer sent. It excludes the
interpreter, which here moves the clients' octets.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from loadtests.callgrind import Costs, read_costs
from loadtests.report import write_docs

ROOT: Final = Path(__file__).resolve().parent.parent
TABLE: Final = ROOT / "loadtests" / "instructions.json"
MOST_GROWTH: Final = 1.03  # permitted growth of a row, relative to the stored one
#: libc function that nothing else calls here: callgrind dumps its counters and resets them.
MARKER: Final = "getpgid"
WARM_ROUNDS: Final = 10
ROUNDS: Final = 20
BATCH: Final = 200  # deliveries of a round: below the credit of a producer


@dataclass(frozen=True, slots=True)
class Count:
    """Counts of one row, per delivery."""

    row: str
    instructions: float
    module_calls: float
    misses: float  # in the simulated first data cache
    interpreter_calls: float


def mark() -> None:
    """Make callgrind write the counts so far to a file of their own."""
    os.getpgid(0)


def run_rows(names: Sequence[str], rows: Mapping[str, Row], batch: int = BATCH) -> None:
    """Run the rows in the process under callgrind, with two marks around the counted rounds. batch: deliveries of a
    round.
    """
    for name in names:
        with rows[name]() as play:
            for _ in range(WARM_ROUNDS):
                play(batch)
            mark()
            for _ in range(ROUNDS):
                play(batch)
            mark()


def count(names: Sequence[str], program: str = "loadtests.instructions", batch: int = BATCH) -> Iterator[Count]:
    """Measure the rows. program: module that runs them (`--counted ROW ...`). Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "valgrind", "--tool=callgrind", "--cache-sim=yes", f"--dump-before={MARKER}",
            f"--callgrind-out-file={folder}/out", "--quiet",
            sys.executable, "-m", program, "--counted", *names,
        ]  # fmt: skip
        # A fixed hash seed makes the order of sets equal in each run.
        subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "0"})
        for number, name in enumerate(names):
            costs = read_costs(Path(folder, f"out.{2 * number + 2}"), str(ROOT))
            yield of_delivery(name, costs, ROUNDS * batch)


def of_delivery(name: str, costs: Costs, deliveries: int) -> Count:
    return Count(
        name,
        round(costs.instructions / deliveries, 1),
        round(costs.module_calls / deliveries, 2),
        round(costs.misses / deliveries, 2),
        round(costs.interpreter_calls / deliveries, 3),
    )


def toolchain() -> str:
    """Return the inputs, other than the router's sources, that determine the figures: compiler, libc and Python."""
    compiler = subprocess.run(["gcc", "-dumpfullversion"], check=True, capture_output=True, text=True).stdout.strip()
    libc = " ".join(platform.libc_ver())
    return f"gcc {compiler}, {libc}, Python {platform.python_version()}, {platform.machine()}"


def stored_toolchain() -> str:
    """Return the toolchain of the stored table."""
    return str(json.loads(TABLE.read_text())["toolchain"])


def stored() -> dict[str, Count]:
    """Return the stored table, which later counts are compared with."""
    return {row["row"]: Count(**row) for row in json.loads(TABLE.read_text())["rows"]}


def grown(counts: Sequence[Count], before: dict[str, Count]) -> list[str]:
    """Describe the rows that exceed the stored table by more than the limit."""
    return [
        f"{one.row}: {one.instructions} instructions a delivery, stored are {before[one.row].instructions}"
        for one in counts
        if one.row in before and one.instructions > before[one.row].instructions * MOST_GROWTH
    ]


def as_table(counts: Sequence[Count]) -> str:
    """Return the counts as a Markdown table."""
    lines = [
        "| row | instructions | calls between modules | misses of the first data cache | calls of the interpreter |",
        "| --- | --- | --- | --- | --- |",
    ]
    for one in counts:
        figures = f"{one.instructions:,.0f} | {one.module_calls:.1f} | {one.misses:.1f} | {one.interpreter_calls:.2f}"
        lines.append(f"| {one.row} | {figures} |")
    return "\n".join(lines)


def store(counts: Sequence[Count]) -> None:
    """Rewrite the table in the page, and the stored one."""
    write_docs("instructions", as_table(counts))
    table = {"toolchain": toolchain(), "rows": [asdict(one) for one in counts]}
    TABLE.write_text(json.dumps(table, indent=1) + "\n")


def main(words: Sequence[str] | None = None) -> int:
    from loadtests.instruction_rows import ROWS

    parser = argparse.ArgumentParser(prog="python -m loadtests.instructions", description="Count instructions.")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"which rows (all): {', '.join(ROWS)}")
    parser.add_argument("--check", action="store_true", help="status 1 where a row is dearer than the stored table")
    parser.add_argument("--write-docs", action="store_true", help="store the table and rewrite docs/performance.md")
    parser.add_argument("--counted", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    names: list[str] = options.rows or list(ROWS)
    if unknown := [name for name in names if name not in ROWS]:
        parser.error(f"no such row: {', '.join(unknown)} (there are {', '.join(ROWS)})")
    if options.counted:
        run_rows(names, ROWS)
        return 0
    if shutil.which("valgrind") is None:
        print("valgrind is missing (apt-get install valgrind)", file=sys.stderr)
        return 2
    counts = list(count(names))
    print(as_table(counts))
    if options.write_docs:
        store(counts)
    dearer = grown(counts, stored()) if options.check else []
    print(*dearer, sep="\n", end="\n" if dearer else "", file=sys.stderr)
    return 1 if dearer else 0


#: Context of a row's scenario; it yields the function that plays one round of a number of deliveries.
Play = Callable[[int], None]
Row = Callable[[], contextlib.AbstractContextManager[Play]]


if __name__ == "__main__":
    sys.exit(main())
