"""Routers without sockets for these tests."""

from tests.unit.engine.fixture import routers

__all__ = ["routers"]
