"""Routed links: two links that are tied together, end to end."""
