"""Fixtures of tests with connections of the engine."""

from collections.abc import Iterator

import pytest

from tests.unit.router.amqp.stub import end_connections


@pytest.fixture(autouse=True)
def connections_end() -> Iterator[None]:
    """End the connections that a test has left."""
    yield
    end_connections()
