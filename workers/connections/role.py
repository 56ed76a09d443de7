"""Role of a connection: the kind of its peer, and the links that peers of this kind get.

inter-router.md 2.2, docs/internals/edge.md.
"""

from typing import TYPE_CHECKING, Final

from sluice.router.amqp.codec import encode_string
from sluice.router.config.roles import EDGE, INTER_EDGE, INTER_ROUTER, ROUTE_CONTAINER
from sluice.router.control import edge_properties
from sluice.router.control.handover import InitiateData
from sluice.router.control.ops import Profile
from sluice.router.links.consumer_link import ConsumerLink
from sluice.router.links.data_link import RouterOut
from sluice.router.links.limited_link import LimitedConsumerLink
from sluice.router.links.producer_link import ProducerLink
from sluice.router.links.source_link import SourceLink
from sluice.workers.links.edge_streams import EdgeStreamLinks

if TYPE_CHECKING:
    from sluice.workers.connections.handler import ConnectionHandler
    from sluice.workers.connections.open_properties import PlainValue

STREAMING: Final = "qd.streaming-links"


class ConnectionRole:
    """Role of a connection. Owner: the connection handler."""

    __slots__ = (
        "_initiated",
        "_profile",
        "_test_hooks",
        "between_routers",
        "checks",
        "edge",
        "edge_streams",
        "mark",
        "route_container",
        "to_ours",
    )

    def __init__(self, number: int, profile: Profile, initiate: InitiateData | None, *, test_hooks: bool) -> None:
        """Create the role. number: of the connection. initiate: of a connection that the router opened. test_hooks: the
        router runs with option -T."""
        self._profile = profile
        self._initiated = initiate is not None
        self._test_hooks = test_hooks
        self.between_routers = profile.role == INTER_ROUTER
        self.route_container = profile.role == ROUTE_CONTAINER  # deliveries of a route container count separately
        # Number of this edge connection, or of its bundle as set by the supervisor; 0: no edge connection. Messages
        # from an edge connection are not sent back by a connection with its number.
        self.edge = number if profile.role in (EDGE, INTER_EDGE) else 0
        self.mark = "" if initiate is None else initiate.mark  # mark of this edge router, for other routers
        self.to_ours = False  # an edge connection whose peer is a Sluice router
        self.checks = False  # the peer tracks checkpoints of settled messages
        self.edge_streams: EdgeStreamLinks | None = None  # of an edge connection whose peer supports streaming links

    def read_open(self, client: "ConnectionHandler", properties: "dict[str, PlainValue]", offered: list[str]) -> None:
        """Store the capabilities that the peer's open announces. properties: as JSON."""
        if not self.edge:
            return
        if STREAMING in offered:
            self.edge_streams = EdgeStreamLinks(client)
        self.to_ours = edge_properties.EDGE in properties
        self.checks = properties.get(edge_properties.CHECKS) == edge_properties.CHECKS_VERSION

    @property
    def relays(self) -> bool:
        """True if the peer is a router. Its messages come from many clients, so the connection has to be read."""
        return self.between_routers or self.edge != 0

    @property
    def edge_mark(self) -> bytes | None:
        """Mark for messages on an edge router's uplink, which shows that the edge router had them already
        (docs/internals/edge.md)."""
        return encode_string(self.mark) if self._initiated and self._profile.role == EDGE else None

    @property
    def window(self) -> int:
        """Most deliveries in flight on a link on which the peer sends. A Sluice router gets more than others."""
        return int(self._profile.bundle_capacity if self.to_ours else self._profile.link_capacity)

    def set_up_incoming_link(self, link: ProducerLink, *, second: bool = False, fixed: bool = False) -> None:
        """Set up the credit of a link on which the peer sends. second: the peer settles after the router
        (rcv-settle-mode). fixed: the capacity of the link does not adapt."""
        if self._profile.capacity_adapts and not fixed:
            link.adapt_capacity()
        if not second and not self.to_ours:
            link.settle_first()
        if self.edge and not self._initiated and self._profile.role == EDGE:
            link.from_edge()
        elif self.edge:
            link.from_interior()

    def outgoing_link(self, capacity: int, *, settles: bool = False, limited: bool = False) -> ConsumerLink:
        """Return a new link on which the peer receives messages. settles: all deliveries are sent settled. limited:
        the peer may have a maximum message size. brokers-and-edge.md W-13."""
        if self.edge_streams is None:
            kind: type[ConsumerLink] = SourceLink if self._test_hooks and not self._initiated else ConsumerLink
            if limited and not self.edge:
                kind = LimitedConsumerLink
            return kind(capacity=capacity, settles=settles, annotations=not self._profile.strip_annotations_out)
        link = RouterOut(capacity=capacity, settles=settles)
        link.pool = self.edge_streams.pool
        if self.checks:
            link.enable_tracking()
        return link
