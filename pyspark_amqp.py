"""Spark entry point: Spark imports modules named pyspark_* and registers their DefaultSource.

With the package installed, `format("amqp")` therefore works without an explicit registration.
"""

from sluice.pipeline.source import Amqp


class DefaultSource(Amqp):
    """Data source "amqp" (docs/user/pipeline.md)."""
