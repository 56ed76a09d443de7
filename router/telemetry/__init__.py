"""Telemetry: tables and the files that hold their rows."""
