"""Errors of routed links."""

from typing import Final

# Error of a link whose other end, or the connection of that, is lost: condition, description (brokers-and-edge.md
# 5.5).
LINK_LOST: Final = ("qd:routed-link-lost", "Connectivity to the peer container was lost")
