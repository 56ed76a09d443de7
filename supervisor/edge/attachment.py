"""What an edge router has attached at one interior router: the links between the two routers, on the active one of
their connections, and those of addresses on all of them (inter-router.md 14.1, 14.2; brokers-and-edge.md 9).

No I/O here.
"""

import math
import time
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from router.config.entities import ConnectorConfig
from supervisor.addresses.inprocess import InProcess
from supervisor.addresses.record import Record
from supervisor.addresses.settings import Settings
from supervisor.addresses.table import Table
from supervisor.connections.connections import Connection, Link
from supervisor.edge import messages
from supervisor.edge.bundles import shares
from supervisor.edge.lookups import Lookups
from supervisor.edge.messages import Precedence
from supervisor.edge.proxies import Proxies, Use
from supervisor.edge.route_proxies import RouteProxies
from supervisor.linkroutes.local import LinkRoutes
from supervisor.links.attach import (
    DOWNLINK_CAPABILITY,
    HEARTBEAT,
    LOOKUP,
    TRACKING,
    UPLINKS,
    Accepted,
    Refused,
)
from supervisor.links.initiated import InitiatedLinks, Wanted
from supervisor.processes.epochs import Epochs
from supervisor.runtime.waker import Waker

MANAGEMENT: Final = "$management"
PATIENCE: Final = 5.0  # seconds for answers to the links of addresses: where clients come and go, some are always new
# Credit of the interior on links to the router itself.
TRACKING_CREDIT: Final = 32
MANAGEMENT_CREDIT: Final = 100
LOOKUP_CREDIT: Final = 250
# Keys of what comes by them.
TRACKING_SERVICE: Final = "edge tracking"
ANSWER_SERVICE: Final = "edge answer"


class Parts(Struct, frozen=True, kw_only=True):
    """What an edge router's attachments work with."""

    router_id: str
    several: bool  # several interior routers may be at work
    record: Record  # of the address for everything beyond
    table: Table
    epochs: Epochs[Any]
    settings: Settings
    initiated_links: InitiatedLinks
    link_routes: LinkRoutes
    in_process: InProcess
    lookups: Lookups
    waker: Waker
    announces: Callable[[str], bool]  # whether the interior may know of an address, by key
    heard: Callable[[Record], None]  # it is known whether there are destinations beyond


class OwnLink:
    """A link between the two routers. Owner: the active connection."""

    __slots__ = ("_answered", "address", "link", "up")

    def __init__(self, answered: Callable[["OwnLink"], None]) -> None:
        self._answered = answered
        self.link: Link | None = None
        self.up = False
        self.address: str | None = None  # that the interior has made

    def begun(self, link: Link) -> None:
        """The attach has gone out."""
        self.link = link

    def answered(self, link: Link, active: bool, address: str | None) -> Accepted | Refused | None:
        """The interior has answered."""
        self.link = link
        self.up, self.address = active, address
        link.up = active
        if active:
            self._answered(self)
        return None

    def ended(self, error: str | None) -> None:
        """The interior has detached it."""
        del error
        self.up = False


class Active:
    """The active connection to an interior router, with the links between the two routers. Owner: the attachment."""

    def __init__(self, owner: "Attachment", connection: Connection) -> None:
        self.connection = connection
        self._owner = owner
        attach = self._attach
        ready = owner.services_ready
        self.anonymous = attach(True, Wanted(use="anonymous"), lambda _: self.send_all(owner.use))
        downlink = Wanted(address=owner.parts.router_id, use="anonymous", capability=DOWNLINK_CAPABILITY, mirrored=True)
        self.downlink = attach(False, downlink)
        self.tracking = attach(
            False,
            Wanted(address=TRACKING, use="messages", second=True, capacity=TRACKING_CREDIT, service=TRACKING_SERVICE),
        )
        self.management = attach(True, Wanted(address=MANAGEMENT, use="messages", second=True))
        self.management_answers = attach(False, _answers(MANAGEMENT_CREDIT), ready)
        self.lookup = attach(True, Wanted(address=LOOKUP, use="messages", second=True), ready)
        self.lookup_answers = attach(False, _answers(LOOKUP_CREDIT), ready)
        self.heartbeat = attach(True, Wanted(address=HEARTBEAT, use="heartbeat", second=True))
        self.uplinks: OwnLink | None = None
        if owner.shares:
            self.uplinks = attach(True, Wanted(address=UPLINKS, use="messages", second=True), ready)

    def _attach(self, outgoing: bool, wanted: Wanted, answered: Callable[[OwnLink], None] | None = None) -> OwnLink:
        own = OwnLink(answered or _nothing)
        self._owner.parts.initiated_links.attach_wanted(self.connection, outgoing, wanted, own)
        return own

    def send(self, own: OwnLink, octets: bytes) -> bool:
        """Send a message by one of its links. False: it cannot be."""
        link = own.link
        if link is None or not own.up:
            return False
        return self._owner.parts.in_process.send_control(link.worker, self.connection.number, octets, link.number)

    def send_all(self, use: Use) -> None:
        """Messages of producers here to unknown addresses go by the anonymous link, or do not."""
        link, parts = self.anonymous.link, self._owner.parts
        if link is None or not self.anonymous.up or link.closed:
            return
        wanted = use is Use.ALL
        if wanted == (link.record is not None):
            return
        place = (link.worker, link.slot, link.generation)
        if wanted:
            link.record = parts.record
            capacity = self.connection.origin.link_capacity
            parts.table.add_consumer(parts.record, *place, capacity, self.connection.way)
        else:
            link.record = None
            parts.table.remove_consumer(parts.record, *place)


def _answers(credit: int) -> Wanted:
    return Wanted(use="messages", dynamic=True, bare=False, second=True, capacity=credit, service=ANSWER_SERVICE)


def _nothing(own: OwnLink) -> None:
    del own


class Attachment:
    """An interior router at which this edge router has its links. Owner: the uplink."""

    def __init__(self, parts: Parts, connection: Connection) -> None:
        self.parts: Final = parts
        self.container: Final = connection.container or ""
        self.place: Final = _place(connection)
        self.shares: Final = parts.several and shares(connection)  # it can be one of several
        self.use = Use.NOTHING
        self.proxies: Final = Proxies(
            parts.table, parts.epochs, parts.settings, parts.initiated_links, parts.waker, parts.announces,
            heard=parts.heard, after_answers=parts.lookups.after_answers, unanswered=parts.lookups.__len__,
        )  # fmt: skip
        self.route_proxies: Final = RouteProxies(parts.router_id, parts.link_routes, parts.waker)
        self.active: Active | None = None
        self._since = 0.0  # when it was made
        self.said: Precedence | None = None  # by the active connection
        self.taken: messages.Taken | None = None  # the interior's last answer

    def __repr__(self) -> str:
        return f"<Attachment {self.container}>"

    def activate(self, connection: Connection) -> None:
        """One of its connections gets the links between the two routers."""
        self.said = None
        self._since = time.monotonic()
        self.active = Active(self, connection)

    def lost(self) -> None:
        """The active connection is gone."""
        self.active = None
        self.route_proxies.lost()

    @property
    def connection(self) -> Connection | None:
        """The active connection."""
        return None if self.active is None else self.active.connection

    @property
    def ready(self) -> bool:
        """Whether the interior router can have all consumers at once, and be asked."""
        active = self.active
        if active is None:
            return False
        own = (active.anonymous, active.downlink, active.tracking, active.lookup_answers, active.management_answers)
        if not all(link.up for link in own) or not self.can_be_told:
            return False
        return self.proxies.settled or time.monotonic() >= self._since + PATIENCE

    @property
    def deadline(self) -> float:
        """When it counts as ready with some links unanswered, or something else is due."""
        own = min(self.route_proxies.deadline, self.proxies.deadline)
        due = self._since + PATIENCE
        return min(own, due) if self.shares and due > time.monotonic() else own

    @property
    def can_be_told(self) -> bool:
        """Whether the link is there by which the interior router hears of the uplinks."""
        return self.active is not None and self.active.uplinks is not None and self.active.uplinks.up

    def say(self, precedence: Precedence) -> None:
        """Tell the interior router which uplinks there are."""
        active = self.active
        if active is None or active.uplinks is None:
            return
        if active.send(active.uplinks, messages.precedence(precedence)):
            self.said = precedence

    def send(self, use: Use) -> None:
        """Which messages of producers here go by it."""
        self.use = use
        if self.active is not None:
            self.active.send_all(use)
        self.proxies.send(use)
        self.route_proxies.serve(use is not Use.NOTHING)
        self.services_ready()

    def services_ready(self, own: OwnLink | None = None) -> None:
        """A link for requests, or for their answers, has been answered, or they are to be used from now on."""
        del own
        active = self.active
        if active is None:
            return
        answers = active.lookup_answers
        if self.use is not Use.NOTHING and active.lookup.up and answers.up and answers.address is not None:
            self.parts.lookups.use(
                active.connection,
                answers.address,
                lambda octets: active.send(active.lookup, octets),
                self.proxies.expect,
            )
        answers = active.management_answers
        if answers.up and answers.address is not None:
            self.route_proxies.use(answers.address, lambda octets: active.send(active.management, octets))


def _place(connection: Connection) -> tuple[int, float, int]:
    """Which interior router is the better one: by cost, and in the order of the configuration."""
    origin = connection.origin
    line = origin.line if isinstance(origin, ConnectorConfig) else None
    return (origin.cost, math.inf if line is None else line, connection.number)
