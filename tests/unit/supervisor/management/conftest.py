"""Fixtures for the tests of the management agent."""

from __future__ import annotations

import pytest

from tests.unit.supervisor.management.managed_router import ManagedRouter


@pytest.fixture
def router() -> ManagedRouter:
    """Router with two workers and no clients."""
    return ManagedRouter()
