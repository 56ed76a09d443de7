"""Telemetry: the tables, and the files that they are written to."""
