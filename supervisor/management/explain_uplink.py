"""EXPLAIN at an edge router: role of its interior router, and of other edge routers, for an address."""

from typing import Any

from sluice.router.addressing.address import EDGE, LOCAL, MOBILE, UPLINK, edge_id, key, normalise
from sluice.router.addressing.settings import NETWORK
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.addresses.table import AddressTable
from sluice.supervisor.edge.peers import EdgePeers
from sluice.supervisor.edge.uplink import Uplink


def add_peers(peers: EdgePeers, table: AddressTable, text: str, record_key: str, verdict: dict[str, Any]) -> bool:
    """Add connected edge routers with consumers of an address to the verdict. text: the address in the request.

    Returns True if the address belongs to one of these edge routers.
    """
    edge = edge_id(normalise(text))
    record = None if edge is None else table.records.get(key(EDGE, edge))
    if record is not None and record.consumers_at_peers:
        verdict |= {"reachable": True, "verdict": "reachable at another edge router"}
        verdict["findings"] = [
            f"It is at edge router {way}: messages go there" for way in _edge_descriptions(peers, record)
        ]
        return True
    record = table.records.get(record_key)
    if record is not None:
        findings: list[str] = verdict["findings"]
        findings += [f"There are consumers at edge router {way}" for way in _edge_descriptions(peers, record)]
    return False


def _edge_descriptions(peers: EdgePeers, record: AddressRecord) -> list[str]:
    """Return descriptions of the edge routers with consumers of an address."""
    found = sorted({(way.cost, way.peer) for way in (record.edges or {}).values() if way.peer})
    return [f"'{peers.container(mark)}' (cost {cost})" for cost, mark in found]


def add_uplink(uplink: Uplink, cls: str, name: str, phase: int, verdict: dict[str, Any]) -> str | None:
    """Add the known state of the interior to the verdict about an address. phase: ingress phase of messages.

    Returns the id of the interior router that may know more, or None.
    """
    beyond = (cls, name) == (LOCAL, UPLINK)
    findings: list[str] = verdict["findings"]
    scope = uplink.addresses.scope(name) if cls == MOBILE else NETWORK
    if scope != NETWORK:
        findings.append(f"Its scope is '{scope}': its messages do not use the uplink")
        return None
    connection = uplink.connection
    if connection is None:
        if beyond:
            findings[:] = ["It is at another router, and this edge router has no uplink"]
            verdict["verdict"] = "no uplink"
        elif cls == MOBILE:
            findings.append("No uplink: consumers at other routers are not known")
        return None
    way = f"the uplink to '{connection.container}' (connection {connection.number})"
    if beyond:
        findings.insert(0, f"It is at another router: messages go over {way}")
        verdict |= {"reachable": True, "verdict": "goes over the uplink"}
        return connection.container
    if cls != MOBILE or key(MOBILE, name, phase) not in uplink.addresses:
        return None
    reachable = uplink.reachable(key(MOBILE, name, phase))
    if reachable is None:
        if verdict["verdict"] == "not in use":
            verdict |= {"reachable": None, "verdict": "not in use here"}
        findings.append(
            f"No producer is attached here. At the first attach, '{connection.container}' is queried for a link route; "
            f"messages on anonymous links without a consumer here go over {way}"
        )
    elif reachable:
        findings.append(f"There are consumers beyond {way}")
        if not verdict["reachable"]:
            verdict |= {"reachable": True, "verdict": "reachable over the uplink"}
    else:
        findings.append(f"There is no consumer beyond {way}")
    return connection.container
