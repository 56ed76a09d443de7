"""Options and hooks for all tests: flavour of the engine, choice of long tests, time for each fuzz target."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
FLAVOUR = os.environ.get("SLUICE_FLAVOUR", "release")
BUILT = ROOT if FLAVOUR == "release" else ROOT / "build" / FLAVOUR

# Seconds for each fuzz target when pytest is started by hand.
DEFAULT_FUZZ_SECONDS = 5.0

# Tests import their helpers as `tests.…`. The built tree has to come before the checkout.
for folder in (ROOT, BUILT):
    sys.path.insert(0, str(folder))

from tests.time_left import from_environment  # noqa: E402 (the paths come first)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests marked long, and only these")


def pytest_configure(config: pytest.Config) -> None:
    """Stop pytest, in each process of pytest-xdist, if another flavour of the engine is imported than requested."""
    import sluice

    folder = Path(str(sluice.__file__)).parent.parent
    if folder != BUILT:
        raise pytest.UsageError(f"{FLAVOUR} flavour: sluice was imported from {folder}, not from {BUILT}")
    if FLAVOUR == "debug" and "libasan" not in Path("/proc/self/maps").read_text("ascii"):
        raise pytest.UsageError("debug flavour: AddressSanitizer is not loaded; start pytest with scripts/with-asan")
    config.pluginmanager.register(LongTests(config), "long-tests")
    time_left = from_environment(config, seconds_of_a_target())
    if time_left is not None:
        config.pluginmanager.register(time_left, "time-left")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Stop pytest if pytest-xdist would spread a group of tests over processes.

    pytest-xdist 3.8 does so with pytest 9.2, without a message.
    """
    if getattr(session.config.option, "loadgroup", False):
        for item in session.items:
            if item.get_closest_marker("xdist_group") is not None and "@" not in item.nodeid:
                raise pytest.UsageError(f"pytest-xdist does not group tests with pytest {pytest.__version__}")


def pytest_report_header() -> str:
    """Report where the engine comes from."""
    return f"engine: {FLAVOUR} flavour, {BUILT / 'router'}"


class LongTests:
    """Plugin that runs either the tests marked `long` or all others, and reports the number left out."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.long = bool(config.getoption("--long"))
        self.left_out = 0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        kept = [item for item in items if (item.get_closest_marker("long") is not None) == self.long]
        other = [item for item in items if (item.get_closest_marker("long") is not None) != self.long]
        self.left_out = len(other)
        items[:] = kept
        if other:
            self.config.hook.pytest_deselected(items=other)

    def pytest_sessionfinish(self) -> None:
        output = getattr(self.config, "workeroutput", None)  # only in processes of pytest-xdist
        if output is not None:
            output["left_out"] = self.left_out

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        # Each process collects all tests, so any of them knows the total.
        self.left_out = getattr(node, "workeroutput", {}).get("left_out", self.left_out)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.left_out and not self.long:
            terminalreporter.write_line(f"{self.left_out} long tests left out: make test-long (pytest --long)")


def seconds_of_a_target() -> float:
    """Return the run time of one fuzz target in seconds."""
    return float(os.environ.get("SLUICE_FUZZ_SECONDS", DEFAULT_FUZZ_SECONDS))


@pytest.fixture(scope="session")
def fuzz_seconds() -> float:
    """Run time of one fuzz target in seconds."""
    return seconds_of_a_target()
