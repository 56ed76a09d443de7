"""Metrics, health and the log."""
