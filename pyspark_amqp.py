"""Spark looks for modules named pyspark_* and registers their DefaultSource: `format("amqp")` works without a word."""

from pipeline.source import Amqp


class DefaultSource(Amqp):
    """Data source "amqp" (docs/user/pipeline.md)."""
