"""Analyses of telemetry with Spark. Each module answers one question."""
