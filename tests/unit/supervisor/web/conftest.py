"""Fixtures for the tests of the HTTP service."""

from __future__ import annotations

import pytest

from sluice.router.log import LogSettings, ModuleSettings, ProcessLog


@pytest.fixture
def log() -> ProcessLog:
    """Log that keeps its lines in memory."""
    return ProcessLog(LogSettings({"DEFAULT": ModuleSettings(output="/dev/null")}))
