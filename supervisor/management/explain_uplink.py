"""EXPLAIN at an edge router: what its interior router has to do with an address."""

from typing import Any

from router.addressing.address import LOCAL, MOBILE, UPLINK, key
from router.addressing.settings import NETWORK
from supervisor.edge.uplink import Uplink


def add_uplink(uplink: Uplink, cls: str, name: str, phase: int, verdict: dict[str, Any]) -> None:
    """Add what is known of the interior to the verdict about an address. phase: at which messages enter."""
    beyond = (cls, name) == (LOCAL, UPLINK)
    findings: list[str] = verdict["findings"]
    scope = uplink.scope(name) if cls == MOBILE else NETWORK
    if scope != NETWORK:
        findings.append(f"Its scope is '{scope}': nothing of it goes over the uplink")
        return
    connection = uplink.connection
    if connection is None:
        if beyond:
            findings[:] = ["It is at another router, and this edge router has no uplink"]
            verdict["verdict"] = "no uplink"
        elif cls == MOBILE:
            findings.append("No uplink: consumers at other routers are not known")
        return
    way = f"the uplink to '{connection.container}' (connection {connection.number})"
    if beyond:
        findings.insert(0, f"It is at another router: messages go over {way}")
        verdict |= {"reachable": True, "verdict": "goes over the uplink"}
        return
    if cls != MOBILE or not uplink.announces(key(MOBILE, name, phase)):
        return
    reachable = uplink.reachable(key(MOBILE, name, phase))
    if reachable is None:
        if verdict["verdict"] == "not in use":
            verdict |= {"reachable": None, "verdict": "not in use here"}
        findings.append(
            f"Nobody sends to it here. '{connection.container}' would be asked whether it is of a link route; "
            f"messages on anonymous links that have no consumer here go over {way}"
        )
    elif reachable:
        findings.append(f"There are consumers beyond {way}")
        if not verdict["reachable"]:
            verdict |= {"reachable": True, "verdict": "reachable over the uplink"}
    else:
        findings.append(f"There is no consumer beyond {way}")
