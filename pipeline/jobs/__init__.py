"""What is computed from telemetry: each module one question, answered with Spark."""
