"""Pacing: a token bucket of working time, and the share of time for connecting clients."""
