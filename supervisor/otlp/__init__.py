"""Export of what the router observes to a collector of OpenTelemetry, by a process of its own."""
