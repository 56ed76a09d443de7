"""Fixtures of the HTTP pages' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.supervisor.telemetry.world import World


@pytest.fixture
def world() -> Iterator[World]:
    """A router with two workers and no clients."""
    made = World()
    yield made
    made.close()
