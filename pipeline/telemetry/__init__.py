"""Telemetry of routers as Spark frames."""
