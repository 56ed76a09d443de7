"""Links of an edge router at one interior router (inter-router.md 14.1, 14.2; brokers-and-edge.md 9).

Links between the two routers themselves are on the active connection; links of addresses are spread over all
connections to that interior router. No I/O here.
"""

import math
import time
from collections.abc import Callable
from typing import Final

from sluice.router.config.entities import ConnectorConfig
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.edge import messages
from sluice.supervisor.edge.lookups import Lookups
from sluice.supervisor.edge.messages import Precedence
from sluice.supervisor.edge.route_proxies import RouteProxies
from sluice.supervisor.edge.router_links import RouterLinks, RouterLinkState
from sluice.supervisor.edge.uplink_address import UplinkAddress
from sluice.supervisor.edge.uplink_proxies import UplinkProxies, UplinkUse
from sluice.supervisor.links.attach import DOWNLINK_CAPABILITY, HEARTBEAT, LOOKUP, TRACKING, UPLINKS
from sluice.supervisor.links.initiated import InitiatedLinkOptions

MANAGEMENT: Final = "$management"
# Time limit in seconds for answers to the links of addresses: where clients come and go, some links are always new.
PATIENCE: Final = 5.0
# Credit that the interior router gets on links to this router itself.
TRACKING_CREDIT: Final = 32
MANAGEMENT_CREDIT: Final = 100
LOOKUP_CREDIT: Final = 250
# Keys of the services that receive messages of these links.
TRACKING_SERVICE: Final = "edge tracking"
ANSWER_SERVICE: Final = "edge answer"


class ActiveConnection:
    """Active connection to an interior router, with the links between the two routers. Owner: the attachment."""

    def __init__(self, owner: "Attachment", connection: RegisteredConnection) -> None:
        self.connection = connection
        self._owner = owner
        attach = self._attach
        ready = owner.services_ready
        waits = owner.unknown.absence.seconds > 0
        anonymous = InitiatedLinkOptions(use="anonymous", waits=waits)
        self.anonymous = attach(True, anonymous, lambda _: self.send_all(owner.use))
        downlink = InitiatedLinkOptions(
            address=owner.router_id, use="anonymous", capability=DOWNLINK_CAPABILITY, mirrored=True
        )
        self.downlink = attach(False, downlink)
        self.tracking = attach(
            False,
            InitiatedLinkOptions(
                address=TRACKING, use="messages", second=True, capacity=TRACKING_CREDIT, service=TRACKING_SERVICE
            ),
        )
        self.management = attach(True, InitiatedLinkOptions(address=MANAGEMENT, use="messages", second=True))
        self.management_answers = attach(False, _answers(MANAGEMENT_CREDIT), ready)
        self.lookup = attach(True, InitiatedLinkOptions(address=LOOKUP, use="messages", second=True), ready)
        self.lookup_answers = attach(False, _answers(LOOKUP_CREDIT), ready)
        self.heartbeat = attach(True, InitiatedLinkOptions(address=HEARTBEAT, use="heartbeat", second=True))
        self.uplinks: RouterLinkState | None = None
        if owner.shares:
            self.uplinks = attach(True, InitiatedLinkOptions(address=UPLINKS, use="messages", second=True), ready)

    def _attach(
        self, outgoing: bool, wanted: InitiatedLinkOptions, answered: Callable[[RouterLinkState], None] | None = None
    ) -> RouterLinkState:
        return self._owner.links.attach(self.connection, outgoing, wanted, answered)

    def send(self, own: RouterLinkState, octets: bytes) -> bool:
        """Send a message on one of these links; return False if the link is down or full."""
        return self._owner.links.send(self.connection, own, octets)

    def send_all(self, use: UplinkUse) -> None:
        """Route messages to unknown addresses to the anonymous link if `use` is ALL; otherwise stop."""
        if self.anonymous.link is not None and self.anonymous.up:
            self._owner.unknown.use(self.anonymous.link, use is UplinkUse.ALL)


def _answers(credit: int) -> InitiatedLinkOptions:
    return InitiatedLinkOptions(
        use="messages", dynamic=True, bare=False, second=True, capacity=credit, service=ANSWER_SERVICE
    )


class Attachment:
    """Interior router at which this edge router has its links. Owner: the uplink. brokers-and-edge.md 9.2."""

    def __init__(
        self,
        router_id: str,
        connection: RegisteredConnection,
        shares: bool,
        links: RouterLinks,
        unknown: UplinkAddress,
        proxies: UplinkProxies,
        route_proxies: RouteProxies,
        lookups: Lookups,
    ) -> None:
        """router_id: of this router. connection: the first one to the interior router. shares: the interior router can
        be one of several uplinks in use. unknown: the address of everything unknown at this router."""
        self.router_id: Final = router_id
        self.container: Final = connection.container or ""
        self.place: Final = _place(connection)
        self.shares: Final = shares
        self.use = UplinkUse.NOTHING
        self.links: Final = links
        self.unknown: Final = unknown
        self.proxies: Final = proxies
        self.route_proxies: Final = route_proxies
        self._lookups: Final = lookups
        self.active: ActiveConnection | None = None
        self._since = 0.0  # monotonic time of the last activation
        self.said: Precedence | None = None  # last precedence sent on the active connection
        self.taken: messages.PrecedenceAnswer | None = None  # interior router's last answer to a precedence

    def __repr__(self) -> str:
        return f"<Attachment {self.container}>"

    def activate(self, connection: RegisteredConnection) -> None:
        """Attach the links between the two routers on a connection, which becomes the active one."""
        self.said = None
        self._since = time.monotonic()
        self.active = ActiveConnection(self, connection)

    def lost(self) -> None:
        """Forget the active connection after its loss."""
        self.active = None
        self.route_proxies.lost()

    @property
    def connection(self) -> RegisteredConnection | None:
        """Active connection, if there is one."""
        return None if self.active is None else self.active.connection

    @property
    def ready(self) -> bool:
        """Whether the interior router can become the bearer: it has answered the links, or PATIENCE has passed."""
        active = self.active
        if active is None:
            return False
        own = (active.anonymous, active.downlink, active.tracking, active.lookup_answers, active.management_answers)
        if not all(link.up for link in own) or not self.can_be_told:
            return False
        return self.proxies.settled or time.monotonic() >= self._since + PATIENCE

    @property
    def deadline(self) -> float:
        """Monotonic time of the next timer: the end of PATIENCE, or a deadline of the proxies."""
        own = min(self.route_proxies.deadline, self.proxies.deadline)
        due = self._since + PATIENCE
        return min(own, due) if self.shares and due > time.monotonic() else own

    @property
    def can_be_told(self) -> bool:
        """Whether the link that carries precedences to the interior router is up."""
        return self.active is not None and self.active.uplinks is not None and self.active.uplinks.up

    def say(self, precedence: Precedence) -> None:
        """Send a precedence to the interior router."""
        active = self.active
        if active is None or active.uplinks is None:
            return
        if active.send(active.uplinks, messages.precedence(precedence)):
            self.said = precedence

    def send(self, use: UplinkUse) -> None:
        """Set which messages of local producers go to this interior router."""
        self.use = use
        if self.active is not None:
            self.active.send_all(use)
        self.proxies.send(use)
        self.route_proxies.serve(use is not UplinkUse.NOTHING)
        self.services_ready()

    def services_ready(self, own: RouterLinkState | None = None) -> None:
        """Hand the links for requests and answers to the look-ups and route proxies, where both links are up."""
        del own
        active = self.active
        if active is None:
            return
        answers = active.lookup_answers
        if self.use is not UplinkUse.NOTHING and active.lookup.up and answers.up and answers.address is not None:
            self._lookups.use(
                active.connection,
                answers.address,
                lambda octets: active.send(active.lookup, octets),
                self.proxies.expect,
            )
        answers = active.management_answers
        if answers.up and answers.address is not None:
            self.route_proxies.use(answers.address, lambda octets: active.send(active.management, octets))


def _place(connection: RegisteredConnection) -> tuple[int, float, int]:
    """Return the sort key of interior routers: cost, then order in the configuration, then connection number."""
    origin = connection.origin
    line = origin.line if isinstance(origin, ConnectorConfig) else None
    return (origin.cost, math.inf if line is None else line, connection.number)
