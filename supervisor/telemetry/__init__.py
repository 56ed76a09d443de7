"""Metrics, health, telemetry and the log."""
