"""Benchmark of the router: `python -m loadtests.bench [ROW ...] [--quick] [--json FILE] [--write-docs]`.

Starts the byte relay and the router, measures each row, and prints a table of values, ratios to the relay, bars and
verdicts. Exit status: 0 if every bar holds, 1 if one is missed, 2 if the benchmark cannot start.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from loadtests.measuring import FULL, QUICK, Bench
from loadtests.processes import DEFAULT_ROUTER, MeasureError, build_tools, cpu_model, raise_file_limit
from loadtests.report import FailedRow, Figure, Result, around_table, markdown_table, text_table, write_docs
from loadtests.rows import DEFAULT, GROUPS, ROWS
from sluice.router.cli.client import ManagementError
from tests.peer.wire import PeerError

TABLE = "bench"  # name of the table in the performance page
KNOWN = [*ROWS, *GROUPS]


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line. Exits with status 2 and a message if it is wrong."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench", description="Measure the router.")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"which rows or groups: {', '.join(KNOWN)}")
    parser.add_argument("--quick", action="store_true", help="shorter runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument("--write-docs", action="store_true", help="rewrite the table in docs/performance.md")
    parser.add_argument(
        "--router",
        default=shlex.join(DEFAULT_ROUTER),
        metavar="COMMAND",
        help="the router's command, to which -c FILE is added (%(default)s)",
    )
    options = parser.parse_args(words)
    if unknown := [name for name in options.rows if name not in KNOWN]:
        parser.error(f"no such row: {', '.join(unknown)} (there are {', '.join(KNOWN)})")
    return options


def measure(names: Sequence[str], bench: Bench) -> list[Result]:
    """Measure the rows in order. A row that fails is reported as a failure; the next one runs."""
    results: list[Result] = []
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            results += ROWS[name](bench)
        except (ManagementError, MeasureError, PeerError, OSError) as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            results.append(FailedRow(name, (str(error) or type(error).__name__).splitlines()[0]))
    return results


def as_json(result: Result) -> dict[str, object]:
    """Return a figure with its verdict, or a failure with its reason."""
    more = {"passed": result.passed}
    if isinstance(result, Figure):
        return {**asdict(result), "ratio": result.ratio, **more}
    return {**asdict(result), **more}


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark. Return the exit status."""
    given = sys.argv[1:] if words is None else list(words)
    options = parse(given)
    try:
        build_tools()
        if options.write_docs:
            around_table(TABLE)  # fails early if the page cannot be rewritten
    except (MeasureError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    raise_file_limit()
    names = [name for word in options.rows for name in GROUPS.get(word, (word,))] or DEFAULT
    results = measure(names, Bench(QUICK if options.quick else FULL, shlex.split(options.router)))
    print(text_table(results))
    if options.json:
        options.json.write_text(json.dumps([as_json(result) for result in results], indent=2) + "\n")
    if options.write_docs:
        command = shlex.join(["python", "-m", "loadtests.bench", *given])
        words = f"Measured on {datetime.date.today()} ({cpu_model()}) by `{command}`."
        write_docs(TABLE, f"{words}\n\n{markdown_table(results)}")
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
