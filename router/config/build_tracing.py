"""Conversion of a validated tracing entity to a typed object."""

from collections.abc import Iterable
from typing import Final

from sluice.router.addressing.pattern import MAX_TOKENS, PatternError, canonical
from sluice.router.config.collector_tls import build_collector_tls
from sluice.router.config.entities import OpenTelemetryConfig, TracingConfig
from sluice.router.config.entity import EntityConfig
from sluice.router.config.errors import Problems
from sluice.router.config.validate import Entity
from sluice.router.config.web_urls import web_url_fault

NO_COLLECTOR: Final = "there is no collector: neither an attribute endpoint nor a section openTelemetry"


def build_tracing(entity: Entity, problems: Problems) -> TracingConfig:
    """Build the tracing section. Whether the collector answers is seen when spans are sent."""
    long_name = entity.type.long_name
    endpoint = entity.optional_text("endpoint")
    fault = None if endpoint is None else web_url_fault(endpoint)
    if fault is not None:
        problems.error(entity.line_of("endpoint"), f"{long_name}: endpoint: {fault}")
    ratio = _ratio(entity.text("ratio"))
    if ratio is None:
        text = f"ratio '{entity.text('ratio')}' is not a number from 0 to 1"
        problems.error(entity.line_of("ratio"), f"{long_name}: {text}")
    addresses = [each for each in entity.text("addresses").split(",") if each]
    for pattern in addresses:
        try:
            if len(canonical(pattern)) > MAX_TOKENS:
                raise PatternError(f"Pattern invalid - more than {MAX_TOKENS} tokens")
        except PatternError as error:
            problems.error(entity.line_of("addresses"), f"{long_name}: addresses '{pattern}': {error}")
    if not addresses:
        problems.error(entity.line_of("addresses"), f"{long_name}: addresses names no pattern")
    return TracingConfig(
        name=entity.optional_text("name") or "tracing",
        identity="tracing/0",
        named="name" in entity.values,
        line=entity.line or None,
        values=entity.values,
        endpoint=endpoint,
        tls=build_collector_tls(entity, problems),
        ratio=ratio or 0.0,
        addresses=tuple(addresses),
        parent_based=entity.flag("parentBased"),
        spans_per_second=entity.number("spansPerSecond"),
    )


def check_tracing(config: TracingConfig, others: Iterable[EntityConfig], entity: Entity, problems: Problems) -> None:
    """Record an error for a tracing section without a collector."""
    if config.endpoint is None and not any(isinstance(other, OpenTelemetryConfig) for other in others):
        problems.error(entity.line, f"{entity.type.long_name}: {NO_COLLECTOR}")


def _ratio(text: str) -> float | None:
    """Return a ratio from 0 to 1; None: the text is none."""
    try:
        ratio = float(text)
    except ValueError:
        return None
    return ratio if 0 <= ratio <= 1 else None
