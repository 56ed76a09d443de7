"""Metrics of connectors, auto links and link routes. Does no input or output."""

from collections import Counter
from itertools import islice
from typing import Final

from sluice.router.config.entities import AutoLinkConfig, LinkRouteConfig
from sluice.supervisor.composition import RouterCore
from sluice.supervisor.links.auto import AutoLinkState
from sluice.supervisor.runtime.availability import ConnectorStates
from sluice.supervisor.telemetry.catalogue import DEFINITIONS
from sluice.supervisor.telemetry.page import Families

# Limit of connectors, of auto links and of link routes with series of their own: the first ones of the configuration.
MAX_SERIES: Final = 1000
_STATES: Final = ("active", "inactive")  # of a link route


def add_brokers(families: Families, core: RouterCore, connectors: ConnectorStates) -> None:
    """Add the samples of all connectors, auto links and link routes."""
    up = families.open(DEFINITIONS["sluice_connector_up"])
    attempts = families.open(DEFINITIONS["sluice_connector_attempts_total"])
    for connector, availability in islice(connectors, MAX_SERIES):
        up.add((connector.name, connector.role), availability.up)
        attempts.add((connector.name, connector.role), availability.attempts)
    _add_auto_links(families, core)
    _add_link_routes(families, core)


def _add_auto_links(families: Families, core: RouterCore) -> None:
    states = core.auto_links.states()
    counts = Counter(state for _, state, _ in states)
    by_state = families.open(DEFINITIONS["sluice_auto_links"])
    for state in AutoLinkState:
        by_state.add((state.value,), counts[state])
    up = families.open(DEFINITIONS["sluice_auto_link_up"])
    attempts = families.open(DEFINITIONS["sluice_auto_link_attempts_total"])
    # Two auto links may have the same labels. Prometheus refuses a page with a series that occurs twice.
    shown = {_labels(config, config.address): (state, one) for config, state, one in islice(states, MAX_SERIES)}
    for labels, (state, availability) in shown.items():
        up.add(labels, state is AutoLinkState.ACTIVE)
        attempts.add(labels, availability.attempts)


def _add_link_routes(families: Families, core: RouterCore) -> None:
    counts = Counter("active" if route.serving else "inactive" for route in core.link_routes)
    by_state = families.open(DEFINITIONS["sluice_link_routes"])
    for state in _STATES:
        by_state.add((state,), counts[state])
    up = families.open(DEFINITIONS["sluice_link_route_up"])
    attempts = families.open(DEFINITIONS["sluice_link_route_attempts_total"])
    refusals = families.open(DEFINITIONS["sluice_link_route_refusals_total"])
    shown = {
        _labels(route.config, route.config.prefix or route.config.pattern or ""): route
        for route in islice(core.link_routes, MAX_SERIES)
    }
    for labels, route in shown.items():
        up.add(labels, bool(route.serving))
        attempts.add(labels, route.address.attempts)
        refusals.add(labels, route.address.refusals)


def _labels(config: AutoLinkConfig | LinkRouteConfig, address: str) -> tuple[str, str, str, str, str]:
    return config.name, address, config.direction, config.connection or "", config.container_id or ""
