"""Errors of routed links."""

from typing import Final

# The connection or link at the other end is gone: condition, description (brokers-and-edge.md 5.5).
LINK_LOST: Final = ("qd:routed-link-lost", "Connectivity to the peer container was lost")
