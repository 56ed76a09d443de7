"""Fixture with the previous release, and reports of failed tests."""

from __future__ import annotations

import subprocess

import pytest

from tests.system.conftest import pytest_runtest_makereport
from tests.system.router import ROOT
from tests.worker_counts import pytest_collection_modifyitems, pytest_generate_tests

__all__ = ["pytest_collection_modifyitems", "pytest_generate_tests", "pytest_runtest_makereport"]

PATIENCE = 900  # seconds in which the release may have to be compiled


@pytest.fixture(scope="session")
def previous() -> list[str]:
    """Return the command that starts a router of the previous release."""
    made = subprocess.run(
        [ROOT / "scripts" / "previous-release"], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    if made.returncode:
        pytest.skip(made.stderr.strip().splitlines()[-1])
    return [made.stdout.strip()]
