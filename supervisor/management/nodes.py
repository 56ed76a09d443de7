"""Type router.node: routers of the network as this router sees them (management.md 6.4)."""

from collections.abc import Iterator
from typing import Any

from sluice.supervisor.management.context import AgentContext


def management_address(router_id: str, *, edge: bool = False) -> str:
    """Return the address for management requests to a router of the network (inter-router.md 13).

    edge: it is an edge router.
    """
    return f"_edge/{router_id}/$management" if edge else f"_topo/0/{router_id}/$management"


def nodes(context: AgentContext) -> Iterator[dict[str, Any]]:
    """Yield the attributes of each router of the network, this one first; nothing without a network."""
    routers = context.core.routers
    if routers is None:
        return
    own = context.changes.configuration.router.id
    for row in routers.rows():
        attributes = {
            "id": row.id,
            "protocolVersion": row.protocol_version,
            "instance": row.instance,
            "linkState": list(row.link_state),
            "nextHop": row.next_hop,
            "validOrigins": list(row.valid_origins),
            "address": f"amqp:/_topo/0/{row.id}",
            "index": row.index,
        }
        if row.id == own:
            changed = row.last_topology_change
            attributes["lastTopoChange"] = 0 if changed is None else routers.since_1970(changed)
        else:
            attributes["routerLink"] = routers.bit(row.links[0]) if row.links else None
            attributes["cost"] = row.cost
        yield attributes
