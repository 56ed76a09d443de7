"""Health checks of connectors, auto links and link routes. Does no input or output.

They count only for connectors with `readyWithout: no`, and for what is attached to these: most routers serve their
clients also without a broker.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from sluice.supervisor.composition import RouterCore
from sluice.supervisor.links.auto import AutoLinkState
from sluice.supervisor.runtime.availability import Availability, ConnectorStates
from sluice.supervisor.telemetry.health_check import HealthCheckResult

MAX_CONNECTORS: Final = 100  # connectors with a check of their own
MAX_NAMES: Final = 5  # names in the text of one check

# Connectors with their availability.
# Object that is down: the name of its connection, and its availability.
_Down = tuple[str | None, Availability]


def check_brokers(core: RouterCore, connectors: ConnectorStates) -> Iterator[HealthCheckResult]:
    """Yield a check for each connector, one for all auto links and one for all link routes."""
    required = {config.name for config, _ in connectors if not config.ready_without}
    # Checks that count come first, so that the limit never hides them.
    for config, one in islice(sorted(connectors, key=lambda each: each[0].ready_without), MAX_CONNECTORS):
        text = f"up for {one.seconds:.0f} s" if one.up else f"down for {one.seconds:.0f} s, {_attempts(one)}{_why(one)}"
        yield HealthCheckResult(f"connector {config.name}", one.up, text, config.name in required)
    auto_links = core.auto_links.states()
    if auto_links:
        down = [(config.connection, one) for config, state, one in auto_links if state is not AutoLinkState.ACTIVE]
        yield _check_all("auto links", len(auto_links), down, required)
    if core.link_routes:
        inactive = [(route.config.connection, route.availability) for route in core.link_routes if not route.serving]
        yield _check_all("link routes", len(core.link_routes), inactive, required)


def _check_all(what: str, count: int, down: list[_Down], required: set[str]) -> HealthCheckResult:
    """Return the check of all objects of a kind, of which some are down."""
    text = f"{count - len(down)} of {count} are active"
    counts = any(connection in required for connection, _ in down)
    # Names that count come first, so that the limit never hides them.
    down.sort(key=lambda each: each[0] not in required)
    if down:
        text += ": " + ", ".join(f"{one.title} is not{_why(one)}" for _, one in _first(down))
        text += f" and {len(down) - MAX_NAMES} more" if len(down) > MAX_NAMES else ""
    return HealthCheckResult(what, not down, text, counts)


def _first(down: Iterable[_Down]) -> Iterator[_Down]:
    return islice(down, MAX_NAMES)


def _attempts(one: Availability) -> str:
    return "1 attempt" if one.attempts == 1 else f"{one.attempts} attempts"


def _why(one: Availability) -> str:
    return f" ({one.error})" if one.error else ""
