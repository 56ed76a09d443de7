"""Edge connection of a consumer, as the workers' tables have it."""

from typing import Final, NamedTuple


class ConsumerEdge(NamedTuple):
    """Edge connection that a consumer's link is on."""

    edge: int = 0  # number of the edge connection in the workers' tables; 0: the consumer is on none
    cost: int = 0  # cost of the connection, at an edge router
    peer: str = ""  # mark of the edge router at the other end, if this router is an edge router, too


NOT_ON_EDGE: Final = ConsumerEdge()  # for consumers that are on no edge connection
