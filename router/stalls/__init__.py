"""Stalls: the reasons why links make no progress."""
