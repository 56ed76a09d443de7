"""Hash keys of addresses (inter-router.md 3.1)."""

from __future__ import annotations

#: Phase of the fallback destination in annotations.
FALLBACK_PHASE = ord("F") - ord("0")
#: Address classes that an MAU may carry.
PROPAGATED = "MCDEFH"
MULTICAST_FLOOD, MULTICAST, CLOSEST, BALANCED, LINK_BALANCED, UNAVAILABLE = range(6)


def plain(text: str) -> str:
    """Return an address without scheme, host and trailing separator."""
    at = text.find(":/")
    if at >= 0:
        text = text[at + 2 :]
        if text.startswith("/"):
            text = text[1:].partition("/")[2]
    elif text.startswith("//"):
        text = text[2:].partition("/")[2]
    elif text.startswith("/"):
        text = text[1:]
    return text[:-1] if text[-1:] in (".", "/") else text


def key_of(text: str, phase: int, me: str) -> str:
    """Return the key of an address at interior router `me`."""
    text = plain(text)
    if text.startswith("_local/"):
        return "L" + text[7:]
    if text.startswith("_topo/"):
        area, _, rest = text[6:].partition("/")
        router, _, function = rest.partition("/")
        if area not in ("0", "all"):
            return "A" + area
        if router == "all":
            return "T" + function
        return "L" + function if router == me else "R" + router
    if text.startswith("_edge/"):
        edge, _, function = text[6:].partition("/")
        return "L" + function if edge == me else "H" + edge
    return "M" + chr(ord("0") + phase) + text
