"""Properties in the open of an edge connection, for routers of ours (docs/internals/edge.md)."""

from typing import Final

# Of an edge router its mark, chosen when it starts; of an interior router the version.
EDGE: Final = "sluice.edge"
# Of an interior router: it knows bundles (1), several uplinks at work (2), links attached early (3), and several
# look-ups in a message; from 4 on it says of each address with a producer who is beyond, too.
EDGE_VERSION: Final = 4
UPLINKS: Final = "sluice.uplinks"  # of an edge router: true, it has several uplinks at work
BETWEEN_EDGES: Final = "sluice.inter-edge"  # of an edge router to another one: the version
BETWEEN_EDGES_VERSION: Final = 1
CHECKS: Final = "sluice.edge-checks"  # settled messages are tracked (decision 0013)
CHECKS_VERSION: Final = 1
