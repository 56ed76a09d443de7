"""Pairs of routed links, from the decision about an attach to the end of both links.

Does no input or output. brokers-and-edge.md 5.3, 5.5; inter-router.md 12.

One link of a pair was attached by a client or by the previous router. The router attaches the other link to the
container or to the next router. This module calls the two ends client and container in either case.

The messages are described in `workers/links/routed.py`. The supervisor creates the pair. After that it keeps the pair
only for management, and to end a link whose other end was lost before the two were connected.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from sluice.router.config.roles import INTER_ROUTER
from sluice.router.control import messages as control
from sluice.router.control import pair_messages
from sluice.router.control.handlers import HandlerTable
from sluice.router.routed.errors import LINK_LOST
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.connections.connections import RegisteredConnection, RegisteredLink, describe_error
from sluice.supervisor.linkroutes.local import LinkAddress
from sluice.supervisor.linkroutes.targets import LinkNextHop, RouterOf, no_router
from sluice.supervisor.links.attach import NO_ROUTE, AttachRouted
from sluice.supervisor.subsystem import Subsystem

# Limit of links with one name that were attached by routers and are unanswered. More of them are in a loop, which
# routers of Dispatch 1.19 allow.
MOST_UNANSWERED: Final = 16


class LinkPair:
    """Two links that relay all frames to each other. Owner: the pairs."""

    __slots__ = (
        "client", "client_link", "container", "container_link", "hop", "name", "number", "outward", "round", "route",
        "survives", "text",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        client: RegisteredLink,
        client_link: int,
        container: RegisteredConnection,
        outward: int,
        hop: LinkNextHop | None,
        route: LinkAddress | None = None,
    ) -> None:
        self.number = number
        self.client: RegisteredLink | None = client
        self.client_link = client_link  # number that the client's worker gave the link
        self.container = container  # connection of the container, or to the next router
        self.container_link: RegisteredLink | None = None
        self.outward = outward  # identity of the container's link
        self.hop = hop  # None: the container is connected to this router
        self.route = route  # link-route address of the container; None: another router has the container
        # Only the first router appends the client's container id (brokers-and-edge.md LR-13).
        self.name = client.name if from_router(client) else f"{client.name}@{client.connection.container}"
        self.survives = False
        self.text = ""
        self.round: tuple[str, bool] | None = None  # key in `LinkPairs._rounds` while the link may be in a loop


class LinkPairs(Subsystem):
    """All pairs of routed links. Owner: the core."""

    def __init__(
        self,
        workers: Mapping[int, WorkerProcess],
        take_identity: Callable[[], int],
        add_link: Callable[[RegisteredConnection, int, RegisteredLink, str], None],
        router_of: RouterOf = no_router,
    ) -> None:
        """add_link(connection, number, link, text): registers a link; `number` is the one that its worker uses."""
        self._workers = workers
        self._take_identity = take_identity
        self._add_link = add_link
        self._router_of = router_of
        self._pairs: dict[int, LinkPair] = {}
        self._by_link: dict[int, LinkPair] = {}  # by identity of either link, until that link is dropped
        # pairs without the container's link yet, by container connection
        self._making: dict[RegisteredConnection, dict[int, LinkPair]] = {}
        self._rounds: Counter[tuple[str, bool]] = Counter()  # unanswered links from routers, by name and direction
        self._next = 1

    def begin(
        self, worker: WorkerProcess, client: RegisteredLink, message: control.Attach, decision: AttachRouted
    ) -> None:
        """Make the container's worker attach the second link of a pair, for a client's attach that goes to a
        container.
        """
        container = decision.connection
        route = decision.route
        pair = LinkPair(self._next, client, message.link, container, self._take_identity(), decision.hop, route)
        if decision.keeps_name:
            pair.name = client.name
        client.routed_to = message.address or ""
        if from_router(client):
            pair.round = (pair.name, client.consumer)
            if self._rounds[pair.round] >= MOST_UNANSWERED:
                pair.round = None
                self._refuse(pair, *NO_ROUTE)
                return
            self._rounds[pair.round] += 1
        if route is not None:
            route.attempts += 1
        self._next += 1
        self._pairs[pair.number] = pair
        self._making.setdefault(container, {})[pair.number] = pair
        pair.survives = message.timeout > 0 or message.expiry == "never"
        pair.text = message.text
        self._by_link[client.identity] = pair
        client.other = pair.outward
        self._send(client.connection, control.Decided(client.connection.number, pair.client_link))
        passed = None
        if decision.hop is not None:
            passed = decision.hop.route if decision.hop.ours else []
        order = pair_messages.Pair(
            conn=container.number,
            pair=pair.number,
            identity=pair.outward,
            outgoing=not client.consumer,
            name=pair.name,
            worker=worker.index,
            epoch=worker.serving_from,
            slot=client.slot,
            gen=client.generation,
            survives=pair.survives,
            address=decision.address,
            answer=(decision.remove, decision.put),
            route=passed,
            # Links of one session belong to one client, even if another Sluice router relays them.
            group=f"{client.connection.number}.{message.channel}",
        )
        self._send(container, order)

    def messages(self, handlers: HandlerTable[WorkerProcess]) -> None:
        handlers.on(pair_messages.Pairable, self._pairable)
        handlers.on(pair_messages.Unpairable, self._unpairable)
        handlers.on(pair_messages.Unpaired, self._unpaired)
        handlers.on(pair_messages.RoutedUp, self._answered)

    def _pairable(self, worker: WorkerProcess, message: pair_messages.Pairable) -> None:
        """Connect the client's link to the container's, which now exists."""
        pair = self._pairs.get(message.pair)
        connection = worker.connections.get(message.conn)
        if pair is None or connection is None:
            return
        client = pair.client
        assert client is not None  # a pair that loses its client before this message is dropped at once
        place = (message.slot, message.gen, connection, worker.index)
        link = RegisteredLink(pair.outward, pair.name, not client.consumer, *place)
        self._by_link[link.identity] = pair
        link.other = client.identity
        link.routed_to = client.routed_to
        pair.container_link = link
        self._made(pair)
        self._add_link(connection, message.link, link, pair.text)
        plain = False
        if from_router(client):
            neighbour = self._router_of(client.connection.number)
            plain = neighbour is None or not neighbour[1]
        order = pair_messages.Paired(
            conn=client.connection.number,
            link=pair.client_link,
            pair=pair.number,
            identity=client.identity,
            worker=worker.index,
            epoch=worker.serving_from,
            slot=link.slot,
            gen=link.generation,
            survives=pair.survives,
            plain=plain,
        )
        self._send(client.connection, order)

    def _unpairable(self, worker: WorkerProcess, message: pair_messages.Unpairable) -> None:
        """Refuse the client's link because the container's cannot be made."""
        del worker
        pair = self._pairs.pop(message.pair, None)
        if pair is not None:
            self._made(pair)
            self._refuse(pair, message.condition, message.description)

    def _unpaired(self, worker: WorkerProcess, message: pair_messages.Unpaired) -> None:
        """Cancel the container's link because the client's link ended before the two were connected."""
        del worker
        pair = self._pairs.get(message.pair)
        if pair is not None:
            self._send(pair.container, pair_messages.Unpair(pair.number))

    def _answered(self, worker: WorkerProcess, message: pair_messages.RoutedUp) -> None:
        """Mark a link as up when its peer has answered the attach."""
        connection = worker.connections.get(message.conn)
        link = None if connection is None else connection.links.get(message.link)
        if link is None:
            return
        link.up = True
        pair = self._by_link.get(link.identity)
        if pair is not None and link is pair.client:
            self._count_answered(pair)

    def connection_closed(self, connection: RegisteredConnection) -> None:
        """Refuse the clients of pairs that still wait for a link of this container."""
        for pair in self._making.pop(connection, {}).values():
            del self._pairs[pair.number]
            self._refuse(pair, *LINK_LOST)

    def link_dropped(self, worker: WorkerProcess, link: RegisteredLink) -> None:
        pair = self._by_link.pop(link.identity, None)
        if pair is None:
            return
        if link is pair.client:
            pair.client = None
            self._count_answered(pair)
            if pair.container_link is None and self._pairs.pop(pair.number, None) is not None:
                self._made(pair)
                self._send(pair.container, pair_messages.Unpair(pair.number))
        if link is pair.container_link:
            self._pairs.pop(pair.number, None)
            if pair.route is not None and link.error is not None:
                pair.route.refused(describe_error(link.error))

    def _made(self, pair: LinkPair) -> None:
        """Remove a pair from those under construction, because it is complete or has failed."""
        making = self._making.get(pair.container, {})
        making.pop(pair.number, None)
        if not making:
            self._making.pop(pair.container, None)

    def _count_answered(self, pair: LinkPair) -> None:
        if pair.round is not None:
            self._rounds[pair.round] -= 1
            if not self._rounds[pair.round]:
                del self._rounds[pair.round]
            pair.round = None

    def _refuse(self, pair: LinkPair, condition: str | None, description: str | None) -> None:
        client = pair.client
        if client is not None:
            self._send(
                client.connection,
                control.Refused(client.connection.number, pair.client_link, condition, description),
            )

    def _send(self, connection: RegisteredConnection, message: control.Order) -> None:
        """Send a message to the worker of a connection, unless the worker or the connection has ended."""
        worker = None if connection.worker is None else self._workers.get(connection.worker)
        if worker is not None and connection.number in worker.connections:
            worker.outbox.append(message)


def from_router(link: RegisteredLink) -> bool:
    """Return whether a router attached the link, rather than a client."""
    return link.connection.origin.role == INTER_ROUTER
