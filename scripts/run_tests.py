#!/usr/bin/env python3
"""Run pytest: `run_tests.py ARGUMENT...`, like `python -m pytest ARGUMENT...`.

With SLUICE_TESTS_AGAIN=N in the environment, up to N failed tests run once more, one after the other and with nothing
in parallel. Tests whose shared fixture failed count as one. Tests that pass then are named at the end
(docs/decisions/0035-tests-again.md). Exit status: pytest's; 0 if each failed test passed in the second run.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

FAILED = 1  # pytest's exit status for failed tests, if nothing worse happened
#: Suffix that pytest-xdist adds to the name of a test in a group.
GROUP = re.compile(r"@[^\]]*$")
REPORT = "report.xml"  # name of pytest's report in its cache folder


def pytest(arguments: list[str], cache: Path, environment: Mapping[str, str] = os.environ) -> int:
    """Run pytest with a cache of its own and return its exit status."""
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", f"--junitxml={cache / REPORT}", *arguments]
    return subprocess.run(command, check=False, env=environment).returncode


def without_deadline() -> dict[str, str]:
    """Return the environment of the second run, without the deadline, which would leave tests out."""
    return {name: value for name, value in os.environ.items() if name != "SLUICE_TESTS_UNTIL"}


def failures(cache: Path) -> list[str]:
    """Return the names of the tests that failed in the last run."""
    path = cache / "v" / "cache" / "lastfailed"
    return sorted({GROUP.sub("", name) for name in json.loads(path.read_text())})


def causes(cache: Path) -> int:
    """Return the number of failures in the last run. Errors with equal texts, as of a shared fixture, count as one."""
    cases = list(ElementTree.parse(cache / REPORT).iter("testcase"))
    errors = {error.get("message") for case in cases for error in case.iter("error")}
    return sum(case.find("failure") is not None for case in cases) + len(errors)


def options(arguments: list[str]) -> list[str]:
    """Return the arguments without paths of tests and without those that run tests in parallel."""
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        if word in ("-n", "--dist"):
            next(words)
        elif not Path(word).exists():
            kept.append(word)
    return kept


def main(arguments: list[str]) -> int:
    """Run the tests. Return the exit status."""
    most = int(os.environ.get("SLUICE_TESTS_AGAIN", "0"))
    with tempfile.TemporaryDirectory(prefix="sluice-pytest-") as folder:
        cache = Path(folder)
        status = pytest(arguments, cache)
        if status != FAILED or most == 0:
            return status
        failed = failures(cache)
        different = causes(cache)
        if different > most:
            print(f"{len(failed)} tests failed, {different} of them apart; not more than {most} run again")
            return status
        print(f"\nOnce more, alone: {len(failed)} tests that failed", flush=True)
        status = pytest([*options(arguments), *failed], cache, without_deadline())
        if status == 0:
            print("Passed only alone, find out why:", *failed, sep="\n    ")
        return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
