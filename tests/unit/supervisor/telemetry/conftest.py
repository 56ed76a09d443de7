"""Fixtures for the tests of the HTTP pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.supervisor.telemetry.world import World


@pytest.fixture
def world() -> Iterator[World]:
    """Router with two workers and no clients."""
    made = World()
    yield made
    made.close()
