"""Uplinks of an edge router: the connections to interior routers that are in use (inter-router.md 14.1, 14.2;
brokers-and-edge.md 9). No I/O here.

As in 1.19, one connection is the active uplink: the first that opened, and after its loss the oldest other one. With
`uplinks: all`, the edge router attaches its links at all Sluice interior routers; one of them is the bearer (`Bearer`).
"""

from typing import Final

from router.addressing.address import LOCAL, UPLINK, key
from router.addressing.settings import CLOSEST, DEFAULT_OVERFLOW
from router.config.entities import ConnectorConfig, RouterConfig
from router.config.roles import EDGE
from router.control.messages import Opened
from router.log import INFO, ProcessLog
from supervisor.addresses.inprocess import InProcessAddresses, LocalMessage
from supervisor.addresses.record import AddressRecord
from supervisor.addresses.table import AddressTable
from supervisor.connections.connections import RegisteredConnection
from supervisor.edge import messages
from supervisor.edge.announced import AnnouncedAddresses
from supervisor.edge.attachment import ANSWER_SERVICE, TRACKING_SERVICE, Attachment, AttachmentParts
from supervisor.edge.bearer import Bearer
from supervisor.edge.bundles import supports_bundles, supports_several_uplinks
from supervisor.edge.first_credit import FirstCredit
from supervisor.edge.lookups import Lookups
from supervisor.journal.journal import Journal
from supervisor.linkroutes.local import LinkAddress, LocalLinkRoutes
from supervisor.links.attach import HEARTBEAT_KEY
from supervisor.links.initiated import InitiatedLinks
from supervisor.runtime.waker import Waker
from supervisor.subsystem import NEVER, Subsystem

UPLINK_KEY: Final = key(LOCAL, UPLINK)


class Uplink(Subsystem):
    """All connections of an edge router to interior routers. Owner: the core. brokers-and-edge.md 9.1, 9.7."""

    def __init__(
        self,
        router: RouterConfig,
        table: AddressTable,
        journal: Journal,
        addresses: AnnouncedAddresses,
        initiated_links: InitiatedLinks,
        link_routes: LocalLinkRoutes,
        in_process: InProcessAddresses,
        waker: Waker,
        log: ProcessLog,
    ) -> None:
        self.required: Final = not router.ready_without_uplink  # the router is not ready without an uplink
        self._several: Final = router.all_uplinks
        self.addresses: Final = addresses
        self._log = log
        self._open: dict[int, RegisteredConnection] = {}  # connections to interior routers, in order of opening
        self._attachments: list[Attachment] = []
        self._bearer: Final = Bearer(journal, self._bears)
        self.activated = self.lost = 0  # counts of connections that became an uplink, and of uplinks that were lost
        record = table.create(UPLINK_KEY, CLOSEST, None, DEFAULT_OVERFLOW)
        record.fixed = True
        table.hold(record)
        in_process.open(HEARTBEAT_KEY)
        in_process.handle(TRACKING_SERVICE, self._tracking)
        in_process.handle(ANSWER_SERVICE, self._answer)
        self.lookups: Final = Lookups(link_routes, waker, addresses.scope)
        self.first_credit: Final = FirstCredit(self._hears)
        self._parts: Final = AttachmentParts(
            router_id=router.id,
            several=router.all_uplinks,
            record=record,
            table=table,
            journal=journal,
            addresses=addresses,
            initiated_links=initiated_links,
            link_routes=link_routes,
            in_process=in_process,
            lookups=self.lookups,
            waker=waker,
            first_credit=self.first_credit,
        )
        table.watch_users(self._user_changed)
        link_routes.watch_local(self._link_route_changed)

    # State

    @property
    def attachment(self) -> Attachment | None:
        """Bearer: the interior router that knows the consumers of this router and receives its producers' messages."""
        return self._bearer.now

    @property
    def connection(self) -> RegisteredConnection | None:
        """Active uplink."""
        return None if self.attachment is None else self.attachment.connection

    def states(self) -> dict[str, int]:
        """Return the numbers of connections to interior routers that are uplinks ("active") and that wait."""
        active = sum(len(each.proxies.members) for each in self._attachments)
        return {"active": active, "waiting": len(self._open) - active}

    def uses(self, connection: RegisteredConnection) -> bool:
        """Return whether a connection is an uplink, or belongs to the bundle of an uplink."""
        return self._of(connection) is not None

    def announced(self) -> tuple[int, int]:
        """Return the numbers of addresses announced for local consumers and for local producers."""
        attachment = self.attachment
        return (0, 0) if attachment is None else (len(attachment.proxies.receivers), len(attachment.proxies.senders))

    def reachable(self, key: str) -> bool | None:
        """Return the interior router's last report whether an address has destinations; None without a report."""
        return None if self.attachment is None else self.attachment.proxies.reachable(key)

    def _hears(self, record: AddressRecord) -> bool:
        """Return False if the interior router may still report whether an address has destinations."""
        return self.attachment is None or self.attachment.proxies.hears(record)

    # Connections

    def connection_opened(self, connection: RegisteredConnection, message: Opened) -> None:
        if connection.origin.role != EDGE or connection.initiator is None:
            return
        self._open[connection.number] = connection
        joined = next((each for each in self._attachments if _bundled(each, connection)), None)
        if joined is not None:
            first = joined.connection
            number = 0 if first is None else first.number
            self._write(f"Edge connection (id={connection.number}) joins the bundle of id={number}")
            joined.proxies.use(connection)
        elif self._wanted(connection):
            self._write(f"Edge connection (id={connection.number}) to interior established")
            self._attach(connection, gather=True)

    def _wanted(self, connection: RegisteredConnection) -> bool:
        """Return whether an interior router becomes an uplink: as the first one, or as one of several."""
        if not self._attachments:
            return True
        return self._several and supports_several_uplinks(connection) and all(each.shares for each in self._attachments)

    def _attach(self, connection: RegisteredConnection, *, gather: bool = False) -> None:
        attachment = Attachment(self._parts, connection)
        self._attachments.append(attachment)
        if gather and isinstance(connection.origin, ConnectorConfig) and supports_bundles(connection):
            attachment.proxies.gather(connection.origin.parallel_connections)
        self._activate(attachment, connection)
        self._bearer.step(self._attachments)

    def _activate(self, attachment: Attachment, connection: RegisteredConnection) -> None:
        attachment.activate(connection)
        self.activated += 1
        for member in [connection, *(each for each in self._open.values() if _bundled(attachment, each))]:
            if member.number not in attachment.proxies.members:
                attachment.proxies.use(member)

    def connection_closed(self, connection: RegisteredConnection) -> None:
        attachment = self._of(connection)
        if self._open.pop(connection.number, None) is None:
            self.lookups.forget_connection(connection.number)
            return
        if attachment is None:
            return
        attachment.proxies.lost(connection)
        if attachment.connection is connection:
            self._lose(attachment, connection)

    def _lose(self, attachment: Attachment, connection: RegisteredConnection) -> None:
        """Replace the lost active connection of an interior router."""
        self.lost += 1
        bears = attachment is self.attachment
        attachment.lost()
        lost = f"Edge connection (id={connection.number}) to interior lost"
        member = next(iter(attachment.proxies.members.values()), None)
        if member is None:
            # Take a waiting connection to the same interior router.
            member = next((each for each in self._open.values() if _bundled(attachment, each)), None)
        if member is not None:
            self._write(f"{lost}, activating alternate id={member.number}")
            self._activate(attachment, member)
            attachment.send(attachment.use)
        else:
            self._attachments.remove(attachment)
            self._bearer.lost(attachment, self._attachments)
            self._replace(lost, bears)
        if bears:
            self.lookups.lost()
            self.first_credit.give_up()
            if self.attachment is not None:
                self.attachment.services_ready()

    def _replace(self, lost: str, bears: bool) -> None:
        """Replace a lost interior router by one in use, or by waiting connections."""
        there = self.connection
        if there is not None:
            self._write(f"{lost}, activating alternate id={there.number}" if bears else lost)
            return
        alternate = min(
            self._open.values(), key=lambda each: not (self._several and supports_several_uplinks(each)), default=None
        )
        if alternate is None:
            self._write(f"{lost}, no alternate connection available")
            return
        self._write(f"{lost}, activating alternate id={alternate.number}")
        self._attach(alternate)
        for other in self._open.values():
            if not self.uses(other) and self._wanted(other):
                self._attach(other)

    def _of(self, connection: RegisteredConnection) -> Attachment | None:
        """Return the interior router at which a connection is in use, if any."""
        number = connection.number
        return next((each for each in self._attachments if number in each.proxies.members), None)

    def _bears(self, attachment: Attachment) -> None:
        """Log the change of the bearer."""
        if attachment.shares and attachment.connection is not None:
            self._write(f"Edge connection (id={attachment.connection.number}) now carries the traffic of this router")

    def _write(self, text: str) -> None:
        self._log.write(INFO, "ROUTER_CORE", text)

    # Users

    def _user_changed(self, record: AddressRecord) -> None:
        for attachment in self._attachments:
            attachment.proxies.user_changed(record)

    def _link_route_changed(self, address: LinkAddress) -> None:
        for attachment in self._attachments:
            attachment.route_proxies.changed(address)

    # Messages of interior routers

    def _by(self, message: LocalMessage) -> Attachment | None:
        """Return the interior router whose active connection delivered a message, if any."""
        for attachment in self._attachments:
            connection = attachment.connection
            if connection is not None and connection.number == message.connection_number:
                return attachment
        return None

    def _tracking(self, message: LocalMessage) -> None:
        attachment = self._by(message)
        if attachment is None:
            return
        said = messages.read_tracking(message.octets)
        if isinstance(said, messages.Tracking):
            attachment.proxies.tracked(said.key, said.reachable)
        elif said is not None:
            attachment.taken = said

    def _answer(self, message: LocalMessage) -> None:
        attachment = self._by(message)
        answer = None if attachment is None else messages.read_answer(message.octets)
        if attachment is None or answer is None:
            return
        if isinstance(answer, messages.LookupAnswer):
            self.lookups.answered(answer)
        else:
            attachment.route_proxies.answered(answer)

    # Each wake

    def step(self) -> None:
        for attachment in self._attachments:
            attachment.proxies.step()
            attachment.route_proxies.step()
        if self._several:
            self._bearer.step(self._attachments)
        self.lookups.step()
        self.first_credit.step()

    @property
    def deadline(self) -> float:
        own = (self.lookups.deadline, self.first_credit.deadline, self._bearer.deadline)
        return min(*own, *(each.deadline for each in self._attachments), NEVER)


def _bundled(attachment: Attachment, connection: RegisteredConnection) -> bool:
    """Return whether a connection leads to the same interior router, and that router supports bundles."""
    if attachment.container != (connection.container or "") or not supports_bundles(connection):
        return False
    return all(supports_bundles(each) for each in attachment.proxies.members.values())
