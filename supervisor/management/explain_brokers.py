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
_ROUTERS: Final = 10  # routers named in a finding


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
            verdict["findings"].append(f"Links of {clients} go to {way}, by a link route")
        else:
            verdict["findings"].append(f"Links of {clients} are refused: no container of its link route is connected")
    if routed[IN] is not None:
        verdict |= {"reachable": bool(routed[IN]), "verdict": "link-routed" if routed[IN] else "no container"}
    verdict["findings"] += auto
    if auto and not verdict["reachable"] and routed[IN] is None:
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
        if shown.state != AutoLinkState.ACTIVE.value:
            error = f": {shown.error}" if shown.error else ""
            yield f"Auto link '{config.name}' ({config.direction}, {_place(config)}) is {shown.state}{error}"


def _place(config: AutoLinkConfig) -> str:
    return f"connection {config.connection}" if config.connection else f"container {config.container_id}"
