"""Files that write the counters of deliveries, and files that spend or return credit.

If each path of a delivery wrote its own counters, a path would forget some. So a new writer needs an entry here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

from tests.unit.source_files import ROOT, source_files

#: Files that write each counter, in the slot of a link or an address, or in the totals of the process. Deliveries are
#: counted in `delivery`, `table` and `links`, transfers on routed links in `routed`.
WRITERS: Final[dict[str, set[str]]] = {
    "ingress": {
        "router/delivery/entry.pxd",
        "router/delivery/producer_handler.pyx",  # undeliverable messages
        "router/links/producer_link.pyx",  # refused messages
        "router/table/forward.pyx",  # counters of an exchange
        "router/routed/producer_end.pyx",
    },
    "ingress_edge": {"router/delivery/entry.pxd"},
    "ingress_container": {
        "router/delivery/entry.pxd",
        "router/delivery/producer_handler.pyx",
        "router/links/producer_link.pyx",
        "router/routed/producer_end.pyx",
    },
    "egress": {
        "router/table/chooser.pxd",  # copies for a chosen consumer
        "router/table/forward.pyx",  # copies of multicast messages, counters of an exchange
        "router/links/source_link.pyx",  # replies of the router itself
        "router/routed/consumer_end.pyx",
    },
    "egress_container": {"router/table/chooser.pxd", "router/routed/consumer_end.pyx"},
    "transit": {"router/table/chooser.pxd", "router/table/forward.pyx", "router/routed/consumer_end.pyx"},
    "deliveries": {
        "router/delivery/carry.pxd",
        "router/delivery/carry.pyx",
        "router/links/producer_link.pyx",  # deliveries without a plan
        "router/links/consumer_link.pxd",
        "router/links/delivery_link.pxd",
        "router/routed/producer_end.pyx",
    },
    "accepted": {"router/stats/counters.pxd"},
    "rejected": {"router/stats/counters.pyx"},
    "released": {"router/stats/counters.pyx"},
    "modified": {"router/stats/counters.pyx"},
    "finished": {"router/stats/counters.pxd"},
}
#: Files that define or call each function that spends or returns credit.
CALLERS: Final[dict[str, set[str]]] = {
    "spend_credit": {
        "router/links/granting_link.pxd",
        "router/delivery/carry.pxd",
        "router/delivery/carry.pyx",
        "router/links/producer_link.pyx",
    },
    "free_credit": {"router/links/granting_link.pxd", "router/links/producer_link.pyx"},
    "use_credit": {"router/links/consumer_link.pxd", "router/links/consumer_link.pyx"},
}
_WRITE: Final = re.compile(r"\b(?:slot|totals)\.(\w+)(?:\[[^\]\n]*\])? *[-+]?= ")
_CALL: Final = re.compile(r"\b(\w+)\(")


def compiled_text() -> dict[str, str]:
    """Return the source of the router's compiled modules by path, without test helpers and import lines."""
    return {
        str(path.relative_to(ROOT)): "\n".join(line for line in path.read_text().splitlines() if "import" not in line)
        for path in source_files("router")
        if path.suffix in (".pyx", ".pxd") and "testing" not in path.parts
    }


def places(pattern: re.Pattern[str], texts: dict[str, str]) -> dict[str, set[str]]:
    """Return the files in which the pattern finds each name, by name."""
    found: dict[str, set[str]] = defaultdict(set)
    for path, text in texts.items():
        for name in pattern.findall(text):
            found[name].add(path)
    return found


def test_delivery_counters_are_written_in_listed_files() -> None:
    writes = places(_WRITE, compiled_text())
    assert {name: writes[name] for name in WRITERS} == WRITERS


def test_credit_is_spent_and_returned_in_listed_files() -> None:
    calls = places(_CALL, compiled_text())
    assert {name: calls[name] for name in CALLERS} == CALLERS


def test_write_of_a_counter_is_found() -> None:
    text = "    link.slot.deliveries += 1\n    totals.dropped[reason] += n\n    if slot.unsettled == 1:\n"
    assert set(places(_WRITE, {"a.pyx": text})) == {"deliveries", "dropped"}
