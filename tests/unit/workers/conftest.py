"""Fixtures for routers without sockets."""

from tests.unit.engine.fixture import networks, routers

__all__ = ["networks", "routers"]
