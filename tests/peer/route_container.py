"""Scripted container that connects to a route-container listener and answers the links that the router attaches."""

from __future__ import annotations

from typing import Any

from tests.peer.container import Container


class RouteContainer(Container):
    """Connection to a listener. The router's sessions and links are answered only by calls of the test."""

    @classmethod
    def connected(cls, port: int, container_id: str = "broker", **fields: Any) -> RouteContainer:
        """Connect and open. Keywords are open fields."""
        peer = cls(port)
        peer.open(container_id=container_id, **fields)
        return peer
