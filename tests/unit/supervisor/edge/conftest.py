"""Fixtures for the tests of edge routers."""

from __future__ import annotations

import pytest

from tests.unit.supervisor.edge.edge_router import EdgeRouter, connector


@pytest.fixture
def bundle() -> EdgeRouter:
    """Edge router with a connector that makes three connections, and another connector."""
    return EdgeRouter(connector("up", parallelConnections=3), connector("other"))
