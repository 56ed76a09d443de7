"""Fixtures for the tests of the HTTP pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.supervisor.telemetry.metrics_router import MetricsRouter


@pytest.fixture
def router() -> Iterator[MetricsRouter]:
    """Router with two workers and no clients."""
    made = MetricsRouter()
    yield made
    made.close()
