"""Drain: connections are closed without loss before the router exits (decision 0077)."""
