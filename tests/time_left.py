"""Pytest plugin for a run with a deadline: rotate the modules and leave out tests that could run beyond it.

scripts/long_tests.py sets these environment variables:

    SLUICE_TESTS_UNTIL     deadline in seconds since the epoch; without it the plugin is not registered
    SLUICE_TESTS_ROTATE    index (modulo the number of modules) of the module that comes first
    SLUICE_TESTS_LEFT_OUT  file to which modules with left-out tests are appended
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

NO_TIME = "no time left"
#: Seconds beyond `fuzz_seconds` for a test without a time limit of its own: time to shorten a failed case.
UNLIMITED_MARGIN = 30.0


def rotate_modules(items: list[pytest.Item], by: int) -> None:
    """Move the tests of the first modules behind all others, so that module number `by` comes first."""
    modules = list(dict.fromkeys(item.path for item in items))
    if not modules:
        return
    first = by % len(modules)
    order = {path: at for at, path in enumerate(modules[first:] + modules[:first])}
    items.sort(key=lambda item: order[item.path])


class TimeLeft:
    """Plugin that leaves out tests whose time limit does not fit before the deadline.

    Each process of pytest-xdist registers it. The reporting process lists the tests left out.
    """

    def __init__(self, until: float, rotate: int, limit: float, fuzz_seconds: float, reports: bool) -> None:
        """Create the plugin.

        until: deadline in seconds since the epoch. limit: seconds for a test without a timeout mark.
        fuzz_seconds: seconds for a test whose timeout is 0. reports: this process reports the tests left out.
        """
        self.until = until
        self.rotate = rotate
        self.limit = limit
        self.fuzz_seconds = fuzz_seconds
        self.reports = reports

    def longest(self, item: pytest.Item) -> float:
        """Return the seconds that the test may take."""
        mark = item.get_closest_marker("timeout")
        limit = self.limit if mark is None else float(mark.args[0] if mark.args else mark.kwargs["timeout"])
        return limit or self.fuzz_seconds + UNLIMITED_MARGIN

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        rotate_modules(items, self.rotate)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if time.time() + self.longest(item) > self.until:
            pytest.skip(NO_TIME)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.reports:
            return
        skipped = [
            report
            for report in terminalreporter.stats.get("skipped", ())
            if isinstance(report.longrepr, tuple) and report.longrepr[2] == f"Skipped: {NO_TIME}"
        ]
        modules = Counter(report.nodeid.split("::")[0] for report in skipped)
        lines = [f"{module}: {count} tests" for module, count in sorted(modules.items())]
        if lines:
            terminalreporter.write_line("Did not fit into the time:")
        for line in lines:
            terminalreporter.write_line(f"    {line}")
        path = os.environ.get("SLUICE_TESTS_LEFT_OUT")
        if path and lines:
            with Path(path).open("a") as file:
                file.writelines(f"{line}\n" for line in lines)


def from_environment(config: pytest.Config, fuzz_seconds: float) -> TimeLeft | None:
    """Return the plugin for this run, None for a run without a deadline."""
    until = os.environ.get("SLUICE_TESTS_UNTIL")
    if until is None:
        return None
    rotate = int(os.environ.get("SLUICE_TESTS_ROTATE", "0"))
    reports = not hasattr(config, "workerinput")  # set in processes of pytest-xdist only
    return TimeLeft(float(until), rotate, float(config.getini("timeout")), fuzz_seconds, reports)
