"""Edge routers that are connected to this one by connections of role inter-edge (docs/internals/edge.md). No I/O here.

Each of two such routers attaches a receiver at the other one for each address with local consumers, so that clients of
one router reach consumers of the other. A message from such a link goes to clients only, never to another router.
"""

from collections.abc import Callable
from typing import Final

from sluice.router.addressing.address import MOBILE
from sluice.router.addressing.settings import LOCAL
from sluice.router.config.entities import ConnectorConfig
from sluice.router.config.roles import INTER_EDGE
from sluice.router.control.messages import Opened
from sluice.router.log import INFO, ProcessLog
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.addresses.settings import Settings
from sluice.supervisor.addresses.table import AddressTable
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.edge.announced import PeerAddresses, is_announceable
from sluice.supervisor.edge.proxies import Proxies
from sluice.supervisor.edge.router_links import RouterLinkState
from sluice.supervisor.links.attach import DOWNLINK_CAPABILITY, HEARTBEAT
from sluice.supervisor.links.initiated import InitiatedLinkOptions, InitiatedLinks
from sluice.supervisor.runtime.waker import Waker
from sluice.supervisor.subsystem import NEVER, Subsystem

CONFINED: Final = ("qd:no-route-to-dest", "The address is known only at its own edge router")


class EdgePeerRouter:
    """Edge router at the other end of an inter-edge connection. Owner: the peers."""

    def __init__(self, container: str, proxies: Proxies) -> None:
        self.container: Final = container
        self.proxies: Final = proxies
        self.bearer: RegisteredConnection | None = None  # connection with the link for messages to this router itself


class EdgePeers(Subsystem):
    """All edge routers with a connection of role inter-edge to this one. Owner: the core."""

    roles = (INTER_EDGE,)

    def __init__(
        self,
        router_id: str,
        table: AddressTable,
        settings: Settings,
        initiated_links: InitiatedLinks,
        close_link: Callable[[RegisteredConnection, int, str, str], None],
        waker: Waker,
        log: ProcessLog,
    ) -> None:
        """close_link(connection, number, condition, description): closes a link of a peer."""
        self._router_id = router_id
        self._table = table
        self._addresses = PeerAddresses(table, settings)
        self._initiated_links = initiated_links
        self._close_link = close_link
        self._waker = waker
        self._log = log
        self._peers: dict[str, EdgePeerRouter] = {}  # by mark
        # Addresses by key that became local and still have consumers at peers.
        self._confined: dict[str, AddressRecord] = {}
        table.watch_users(self._user_changed)

    def container(self, mark: str) -> str:
        """Return the id of the edge router with a mark; empty if it is unknown."""
        peer = self._peers.get(mark)
        return "" if peer is None else peer.container

    def rows(self) -> dict[str, tuple[int, int, int]]:
        """Return for each edge router id: open connections, addresses with local consumers announced to it, and
        addresses with consumers there. Routers with equal ids are counted together."""
        found: dict[str, tuple[int, int, int]] = {}
        for peer in self._peers.values():
            members = peer.proxies.members.values()
            links = (link for connection in members for link in connection.links.values() if link.consumer and link.up)
            there = {link.record.key for link in links if link.record is not None and is_announceable(link.record.key)}
            row = len(members), len(peer.proxies.receivers), len(there)
            before = found.get(peer.container, (0, 0, 0))
            found[peer.container] = (row[0] + before[0], row[1] + before[1], row[2] + before[2])
        return found

    def connection_opened(self, connection: RegisteredConnection, message: Opened) -> None:
        mark, container = connection.way.peer, connection.container or ""
        peer = self._peers.get(mark)
        if peer is None:
            proxies = Proxies(self._table, self._addresses, self._initiated_links, self._waker)
            peer = self._peers[mark] = EdgePeerRouter(container, proxies)
            if isinstance(connection.origin, ConnectorConfig):
                proxies.gather(connection.origin.parallel_connections)
        self._write(f"Edge connection (id={connection.number}) to edge router '{container}' established")
        peer.proxies.use(connection)
        self._attach(connection, True, InitiatedLinkOptions(address=HEARTBEAT, use="heartbeat", second=True))
        if peer.bearer is None:
            self._bear(peer, connection)

    def _bear(self, peer: EdgePeerRouter, connection: RegisteredConnection) -> None:
        """Attach the link for messages to this router itself on a connection."""
        peer.bearer = connection
        own = InitiatedLinkOptions(
            address=self._router_id, use="anonymous", capability=DOWNLINK_CAPABILITY, mirrored=True
        )
        self._attach(connection, False, own)

    def _attach(self, connection: RegisteredConnection, outgoing: bool, wanted: InitiatedLinkOptions) -> None:
        self._initiated_links.attach(connection, outgoing, wanted, RouterLinkState(lambda own: None))

    def connection_closed(self, connection: RegisteredConnection) -> None:
        mark = connection.way.peer
        peer = self._peers.get(mark)
        if peer is None or connection.number not in peer.proxies.members:
            return
        self._write(f"Edge connection (id={connection.number}) to edge router '{peer.container}' lost")
        peer.proxies.lost(connection)
        if not peer.proxies.members:
            del self._peers[mark]
        elif peer.bearer is connection:
            self._bear(peer, next(iter(peer.proxies.members.values())))

    def _write(self, text: str) -> None:
        self._log.write(INFO, "ROUTER_CORE", text)

    # Addresses

    def _user_changed(self, record: AddressRecord) -> None:
        for peer in self._peers.values():
            peer.proxies.user_changed(record)
        if record.scope == LOCAL and record.key[0] == MOBILE and record.consumers_at_peers:
            self._confined[record.key] = record
            self._waker.wake()

    def _confine(self) -> None:
        """Close links of peers for addresses that became local. A link whose attach is unanswered is closed later."""
        confined, self._confined = self._confined, {}
        for peer in self._peers.values():
            for connection in peer.proxies.members.values():
                for number, link in list(connection.links.items()):
                    record = link.record
                    if not link.consumer or record is None or confined.get(record.key) is not record:
                        continue
                    if link.up:
                        self._close_link(connection, number, *CONFINED)
                    else:
                        self._confined[record.key] = record

    # Each wake

    def step(self) -> None:
        if self._confined:
            self._confine()
        for peer in self._peers.values():
            peer.proxies.step()

    @property
    def deadline(self) -> float:
        if not self._peers:
            return NEVER
        return min((peer.proxies.deadline for peer in self._peers.values()), default=NEVER)
