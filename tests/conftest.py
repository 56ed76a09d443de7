"""What all tests share: which flavour of the engine is tested, and the time a fuzz target may take."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DEBUG_TREE = ROOT / "build" / "debug"
FLAVOUR = os.environ.get("SLUICE_FLAVOUR", "release")

# Seconds for each fuzz target when pytest is started by hand.
DEFAULT_FUZZ_SECONDS = 5.0

# Tests import their helpers as tests.…; the debug tree has to come before the checkout.
for folder in (ROOT, DEBUG_TREE) if FLAVOUR == "debug" else (ROOT,):
    sys.path.insert(0, str(folder))


def pytest_report_header() -> str:
    """Says where the engine comes from; refuses to test another flavour than the one asked for."""
    import router

    folder = Path(str(router.__file__)).parent.parent
    expected = DEBUG_TREE if FLAVOUR == "debug" else ROOT
    if folder != expected:
        raise pytest.UsageError(f"{FLAVOUR} flavour: router was imported from {folder}, not from {expected}")
    if FLAVOUR == "debug" and "libasan" not in Path("/proc/self/maps").read_text("ascii"):
        raise pytest.UsageError("debug flavour: AddressSanitizer is not loaded; start pytest with scripts/with-asan")
    return f"engine: {FLAVOUR} flavour, {folder / 'router'}"


@pytest.fixture(scope="session")
def fuzz_seconds() -> float:
    """How long one fuzz target should run."""
    return float(os.environ.get("SLUICE_FUZZ_SECONDS", DEFAULT_FUZZ_SECONDS))
