"""Result of a health check."""

from msgspec import Struct


class HealthCheckResult(Struct, frozen=True):
    """Result of one check. `counts`: if the check has not passed, the whole result is negative."""

    name: str
    passed: bool
    text: str
    counts: bool = True
