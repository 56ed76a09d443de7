#!/usr/bin/env python3
"""Run the parts of `make test-long`: `long_tests.py PART[=SECONDS]...`, each part a target of the Makefile.

SECONDS: minimal duration of the part; default LEAST_SECONDS.

Without a deadline every part runs, in the order given. With one (SLUICE_TESTS_UNTIL=SECONDS, since the epoch) the
order rotates with the commit, so that successive commits cover all parts. tests/time_left.py rotates the tests within
a part and leaves out tests that might exceed the deadline. Parts and tests that did not fit are listed at the end
(docs/decisions/0046-long-tests-in-a-budget.md).

Exit status: 0 if everything that ran has passed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Final

TIMED: Final = Path(__file__).with_name("timed")
#: Seconds that a part takes before its first test has ended.
LEAST_SECONDS: Final = 60.0
#: Last lines of a failed part that are repeated at the end: output between them and the end may be long.
REPEATED_LINES: Final = 40


def rotation() -> int:
    """Return a number that depends on the commit checked out; 0 outside a repository."""
    command = ["git", "rev-parse", "HEAD"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(answer[:8], 16)


def rotated(parts: list[str], by: int) -> list[str]:
    """Return the parts with the one at index `by` (modulo their number) first."""
    first = by % len(parts)
    return parts[first:] + parts[:first]


def name_and_seconds(part: str) -> tuple[str, float]:
    """Return the target of a part, and the minimal seconds that it takes."""
    name, _, seconds = part.partition("=")
    return name, max(LEAST_SECONDS, float(seconds or 0))


def seconds_left(until: str | None) -> float:
    """Return the seconds until the deadline; infinity without one."""
    return float("inf") if until is None else float(until) - time.time()


def run(name: str, environment: dict[str, str]) -> tuple[int, list[str]]:
    """Run a part. Return its exit status, and the last lines that it has printed."""
    last: deque[str] = deque(maxlen=REPEATED_LINES)
    command = [str(TIMED), f"  {name}", "make", name]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last.append(line.rstrip("\n"))
    return process.returncode, list(last)


def main(parts: list[str]) -> int:
    """Run the parts and report those that did not fit. Return the exit status."""
    until = os.environ.get("SLUICE_TESTS_UNTIL")
    environment = dict(os.environ)
    if until is not None:
        rotate = rotation()
        parts = rotated(parts, rotate)
        environment["SLUICE_TESTS_ROTATE"] = str(rotate)
        order = ", ".join(name_and_seconds(part)[0] for part in parts)
        print(f"{seconds_left(until):.0f} s are left for the long tests, in this order: {order}", flush=True)
    failed: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory(prefix="sluice-long-") as folder:
        left_out = Path(folder, "left-out")
        left_out.touch()
        environment["SLUICE_TESTS_LEFT_OUT"] = str(left_out)
        for part in parts:
            name, least = name_and_seconds(part)
            if seconds_left(until) < least:
                with left_out.open("a") as file:
                    file.write(f"{name}: all tests\n")
                continue
            status, last = run(name, environment)
            if status:
                failed[name] = last
        missed = left_out.read_text().splitlines()
    if missed:
        print("Did not fit into the time:", *missed, sep="\n    ")
    for name, last in failed.items():
        print(f"The end of {name}, which failed:", *last, sep="\n    ")
    if failed:
        print(f"Failed parts: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
