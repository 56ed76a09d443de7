"""Routers without sockets for these tests."""

from tests.unit.engine.fixture import networks, routers

__all__ = ["networks", "routers"]
