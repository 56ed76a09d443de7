"""Attacks within the protocol, all at once, beside pairs that must not notice: `make long-attacks`."""
