"""The telemetry of routers, as frames of Spark."""
