"""Interior routers in use by an edge router, and their messages to it (brokers-and-edge.md 9). No I/O here."""

from typing import Final

from sluice.router.config.entities import ConnectorConfig, RouterConfig
from sluice.supervisor.addresses.inprocess import LocalMessage
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.addresses.table import AddressTable
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.edge import messages
from sluice.supervisor.edge.absence import UplinkAbsence
from sluice.supervisor.edge.announced import AnnouncedAddresses
from sluice.supervisor.edge.attachment import ANSWER_SERVICE, TRACKING_SERVICE, Attachment
from sluice.supervisor.edge.bundles import supports_bundles, supports_several_uplinks
from sluice.supervisor.edge.first_credit import FirstCredit
from sluice.supervisor.edge.lookups import Lookups
from sluice.supervisor.edge.route_proxies import RouteProxies
from sluice.supervisor.edge.router_links import RouterLinks
from sluice.supervisor.edge.uplink_address import UplinkAddress
from sluice.supervisor.edge.uplink_proxies import UplinkProxies
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.linkroutes.local import LinkAddress, LocalLinkRoutes
from sluice.supervisor.links.attach import HEARTBEAT_KEY
from sluice.supervisor.runtime.waker import Waker
from sluice.supervisor.subsystem import NEVER


class Attachments:
    """Attachments to the interior routers in use. Owner: the uplink.

    All attachments are notified of changes of addresses and link routes. A message of an interior router goes to the
    attachment of that router.
    """

    def __init__(
        self,
        router: RouterConfig,
        table: AddressTable,
        journal: Journal,
        addresses: AnnouncedAddresses,
        links: RouterLinks,
        link_routes: LocalLinkRoutes,
        waker: Waker,
        absence: UplinkAbsence,
    ) -> None:
        """addresses: addresses that interior routers may know. absence: messages that wait for another uplink."""
        self.absence: Final = absence
        self.present: Final[list[Attachment]] = []
        self.addresses: Final = addresses
        self.several: Final = router.all_uplinks  # several interior routers may be in use at once
        self.lookups: Final = Lookups(link_routes, waker, addresses.scope)
        self._router_id: Final = router.id
        self._table: Final = table
        self._journal: Final = journal
        self._link_routes: Final = link_routes
        self._waker: Final = waker
        self._links: Final = links
        self._unknown: Final = UplinkAddress(table, absence)
        links.in_process.open(HEARTBEAT_KEY)
        links.in_process.handle(TRACKING_SERVICE, self._tracking)
        links.in_process.handle(ANSWER_SERVICE, self._answer)
        table.watch_users(self._user_changed)
        link_routes.watch_local(self._link_route_changed)

    def add(self, connection: RegisteredConnection, first_credit: FirstCredit, *, gather: bool) -> Attachment:
        """Create the attachment to an interior router, without links. gather: wait for the connections of a bundle."""
        proxies = UplinkProxies(
            self._table,
            self._journal,
            self.addresses,
            self._links.initiated,
            self._waker,
            self.lookups,
            first_credit,
            self.absence,
        )
        if gather and isinstance(connection.origin, ConnectorConfig) and supports_bundles(connection):
            proxies.gather(connection.origin.parallel_connections)
        route_proxies = RouteProxies(self._router_id, self._link_routes, self._waker)
        shares = self.several and supports_several_uplinks(connection)
        attachment = Attachment(
            self._router_id, connection, shares, self._links, self._unknown, proxies, route_proxies, self.lookups
        )
        self.present.append(attachment)
        return attachment

    def remove(self, attachment: Attachment) -> None:
        """Remove the attachment to an interior router that has no connection left."""
        self.present.remove(attachment)

    def of(self, connection: RegisteredConnection) -> Attachment | None:
        """Return the attachment that uses a connection, if any."""
        number = connection.number
        return next((each for each in self.present if number in each.proxies.members), None)

    def step(self) -> None:
        """Attach and close links after changes of addresses and link routes."""
        for attachment in self.present:
            attachment.proxies.step()
            attachment.route_proxies.step()

    @property
    def deadline(self) -> float:
        """Monotonic time of the next timer of an attachment."""
        return min((each.deadline for each in self.present), default=NEVER)

    # Users

    def _user_changed(self, record: AddressRecord) -> None:
        for attachment in self.present:
            attachment.proxies.user_changed(record)

    def _link_route_changed(self, address: LinkAddress) -> None:
        for attachment in self.present:
            attachment.route_proxies.changed(address)

    # Messages of interior routers

    def _by(self, message: LocalMessage) -> Attachment | None:
        """Return the attachment whose active connection delivered a message, if any."""
        for attachment in self.present:
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
