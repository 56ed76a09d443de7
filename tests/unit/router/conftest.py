"""Fixtures of in-process routers for these tests."""

from tests.unit.engine.fixture import networks, routers

__all__ = ["networks", "routers"]
