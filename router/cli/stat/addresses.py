"""`qdstat -a`: show addresses, parsed from the keys of the address table (management.md 6.3)."""

from sluice.router.cli.client import Row
from sluice.router.cli.stat.context import StatContext, sorted_by
from sluice.router.cli.table import Cells, commas

_CLASSES = {
    "M": "mobile",
    "R": "router",
    "A": "area",
    "L": "local",
    "T": "topo",
    "C": "link-in",
    "E": "link-in",
    "D": "link-out",
    "F": "link-out",
    "H": "edge",
}
_LINK_ROUTES = "CDEF"
_COLUMNS = [
    "name", "distribution", "priority", "inProcess", "subscriberCount", "remoteCount", "containerCount",
    "deliveriesIngress", "deliveriesEgress", "deliveriesTransit", "deliveriesToContainer", "deliveriesFromContainer",
    "deliveriesRedirectedToFallback",
]  # fmt: skip


def class_of(key: str | None) -> str:
    """Return the class of the address with a key; empty without a key."""
    return _CLASSES.get(key[0], f"unknown: {key[0]}") if key else ""


def text_of(key: str | None) -> str:
    """Return the address in a key; empty without a key."""
    if not key:
        return ""
    return key[2:] if key[0] == "M" else key[1:]


def phase_of(key: str | None) -> str:
    """Return the phase in the key of a mobile address; empty for other addresses."""
    return key[1:2] if key and key[0] == "M" else ""


def show(context: StatContext) -> None:
    """Show all addresses."""
    heads = ["class", "addr", "phs", "distrib", "pri"]
    heads += ["in-proc"] if context.verbose else []
    heads += ["local", "remote", "in", "out", "thru", "fallback"]
    heads += ["to-proc", "from-proc"] if context.verbose else []
    rows: list[Cells] = [_cells(one, context.verbose) for one in context.rows("router.address", _COLUMNS, limited=True)]
    context.table("Router Addresses", heads, sorted_by(heads, rows, "addr"))


def _cells(address: Row, verbose: bool) -> list[object]:
    key = address["name"]
    priority = address["priority"]
    local = "containerCount" if key and key[0] in _LINK_ROUTES else "subscriberCount"
    numbers = ["inProcess"] if verbose else []
    numbers += [
        local, "remoteCount", "deliveriesIngress", "deliveriesEgress", "deliveriesTransit",
        "deliveriesRedirectedToFallback",
    ]  # fmt: skip
    numbers += ["deliveriesToContainer", "deliveriesFromContainer"] if verbose else []
    return [
        class_of(key),
        text_of(key),
        phase_of(key),
        address["distribution"],
        "-" if priority is not None and priority < 0 else priority,
        *(commas(address[number]) for number in numbers),
    ]
