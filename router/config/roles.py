"""Roles of listeners and connectors."""

from typing import Final

NORMAL: Final = "normal"
ROUTE_CONTAINER: Final = "route-container"
INTER_ROUTER: Final = "inter-router"
EDGE: Final = "edge"
INTER_EDGE: Final = "inter-edge"  # between two edge routers
CLIENT_ROLES: Final = (NORMAL, ROUTE_CONTAINER)
BETWEEN_ROUTERS: Final = (INTER_ROUTER, EDGE, INTER_EDGE)
EVERY_ROLE: Final = (*CLIENT_ROLES, *BETWEEN_ROUTERS)
