"""Names of columns that jobs add up, or of which they keep the largest value."""

from typing import Final

OUTCOMES: Final = ("accepted", "rejected", "released", "modified", "presettled", "dropped_presettled")
LINK_COUNTS: Final = ("deliveries", "octets", *OUTCOMES, "zero_credit_ms", "delayed_1s", "delayed_10s")
#: Gauges of links, by the names of their largest values.
LINK_GAUGES: Final = {
    "capacity": "capacity",
    "undelivered_peak": "undelivered",
    "unsettled_peak": "unsettled",
    "stuck_peak": "stuck",
}
WORKER_COUNTS: Final = ("ingress", "egress", *OUTCOMES, "interval_ms", "loop_turns")
WORKER_GAUGES: Final = ("connections", "links", "rss", "buffered")
