"""EXPLAIN: effects of link routes and auto links on an address, which clients cannot see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sluice.router.addressing.address import normalise
from sluice.router.config.entities import AutoLinkConfig
from sluice.supervisor.composition import RouterCore
from sluice.supervisor.linkroutes.local import IN, OUT
from sluice.supervisor.links.auto import AutoLinkState
from sluice.supervisor.management.context import AgentContext

_CLIENTS: Final = {IN: "senders", OUT: "receivers"}
_ACTIVE: Final = AutoLinkState.ACTIVE.value
_ROUTERS: Final = 10  # routers named in a finding
_REASONS: Final = 3  # different reasons in a finding


def add_brokers(context: AgentContext, name: str, verdict: dict[str, Any]) -> None:
    """Add the link routes and auto links of a mobile address to the verdict."""
    routed = {direction: _routed(context.core, direction, name) for direction in (IN, OUT)}
    auto = list(_auto_links(context, name))
    if routed[IN] is not None and verdict["verdict"] == "not in use":
        verdict["findings"].clear()  # findings that apply only to addresses without link routes
    for direction, clients in _CLIENTS.items():
        way = routed[direction]
        if way is None:
            continue
        if way:
            text = f"Links of {clients} go to {way}, by a link route"
            refusal = _refusal(context.core, direction, name)
        else:
            text = f"Links of {clients} are refused: no container of its link route is connected"
            refusal = _absence(context, direction, name)
        verdict["findings"].append(text + refusal)
    if routed[IN] is not None:
        verdict |= {"reachable": bool(routed[IN]), "verdict": "link-routed" if routed[IN] else "no container"}
    if auto and not verdict["reachable"]:
        verdict["findings"] = [*auto, *verdict["findings"]]  # a broker that is missing is the reason for the rest
    else:
        verdict["findings"] += auto
    if auto:
        verdict["autoLinksDown"] = len(auto)
    if auto and routed[IN] is None:
        verdict["verdict"] += "; " + ("an auto link does not work" if len(auto) == 1 else "auto links do not work")


def _routed(core: RouterCore, direction: str, name: str) -> str | None:
    """Return the destination of links of a direction; empty without a container, None without a link route."""
    local = core.link_routes.match(direction, name)
    if local is not None and local.containers:
        return "a container" if local.containers == 1 else f"one of {local.containers} containers"
    remote = () if core.routers is None else core.routers.link_routes.match(direction, name)
    if not remote:
        return None if local is None else ""
    assert core.routers is not None
    ids = [core.routers.id_of(index) or "?" for index in remote[:_ROUTERS]]
    return f"a container at {' or '.join(ids)}" + (" or others" if len(remote) > _ROUTERS else "")


def _auto_links(context: AgentContext, name: str) -> Iterator[str]:
    """Yield findings about auto links of the address that are not attached."""
    for config in context.changes.configuration.auto_links:
        if normalise(config.address) != name:
            continue
        shown = context.core.auto_links.shown(config)
        if shown.state == _ACTIVE:
            continue
        reason = shown.error
        if shown.state == AutoLinkState.INACTIVE.value:
            reason = _connector_reason(context, config.connection) or _reason(context.core, config)
        text = f"Auto link '{config.name}' ({config.direction}, {_place(config)}) is {shown.state}"
        left = context.core.auto_links.wait_left(config)
        wait = "" if left is None else f". Senders and messages wait for it up to {left:.0f} s more"
        yield text + (f": {reason}" if reason else "") + wait


def _reason(core: RouterCore, config: AutoLinkConfig) -> str:
    """Return why the last connection of an auto link has ended; empty: there was none."""
    availability = core.auto_links.availability(config)
    return "" if availability is None else availability.error


def _connector_reason(context: AgentContext, connection: str | None) -> str:
    """Return that and why the connector of this name is down; empty if it is up, or if there is none."""
    for config in context.changes.configuration.connectors:
        if config.name == connection:
            shown = context.core.live_attributes(config)
            if shown and shown["attempts"] and not shown["up"]:
                reason = f" ({shown['downReason']})" if shown["downReason"] else ""
                return f"connector {config.name} has been down for {shown['stateSeconds']} s{reason}"
    return ""


def _absence(context: AgentContext, direction: str, name: str) -> str:
    """Return why no container of the link routes of an address is connected, as far as its connectors show it."""
    address = context.core.link_routes.match(direction, name)
    routes = [route for route in context.core.link_routes if route.address is address]
    found = (_connector_reason(context, route.config.connection) or route.availability.error for route in routes)
    reasons = list(dict.fromkeys(reason for reason in found if reason))
    return f": {'; '.join(reasons[:_REASONS])}" if reasons else ""


def _refusal(core: RouterCore, direction: str, name: str) -> str:
    """Return how often, and why at last, containers have refused links of an address."""
    address = core.link_routes.match(direction, name)
    if address is None or not address.refusals:
        return ""
    return f"; {address.refusals} of {address.attempts} were refused or ended with an error: {address.last_refusal}"


def _place(config: AutoLinkConfig) -> str:
    return f"connection {config.connection}" if config.connection else f"container {config.container_id}"
