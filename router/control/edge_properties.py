"""Properties in the open of an edge connection between Sluice routers (docs/internals/edge.md)."""

from typing import Final

# From an edge router: its mark, chosen at each start. From an interior router: the version of its edge protocol.
EDGE: Final = "sluice.edge"
# Version of the edge protocol. An interior router supports bundles from version 1 on, several active uplinks from 2,
# links attached early from 3. From 4 on, it supports several look-ups in one message, and reports for each address with
# a producer whether there are destinations beyond the edge router.
EDGE_VERSION: Final = 4
UPLINKS: Final = "sluice.uplinks"  # from an edge router: true if it has several active uplinks
BETWEEN_EDGES: Final = "sluice.inter-edge"  # from an edge router to another one: the version of their protocol
BETWEEN_EDGES_VERSION: Final = 1
CHECKS: Final = "sluice.edge-checks"  # presettled messages are tracked (decision 0013)
CHECKS_VERSION: Final = 1
