"""Pairs of routed links, from the decision about an attach to the end of both. No input or output here.

Of each pair one link was attached by a client, or by the router nearer to it; the other one we attach to the container,
or to the next router on the way. Both are called client and container here.

`workers/routed.py` says who tells whom what. The supervisor makes the pair; then the workers need it no more, except
for what it shows of them, and to end a link whose other end was gone before the two knew each other.
"""
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from router.ipc.control import DECIDED, PAIR, PAIRED, REFUSED, UNPAIR, Message
from supervisor.attach import NO_ROUTE, Routed
from supervisor.connections import Connection, Link
from supervisor.linktargets import INTER_ROUTER, Hop, RouterOf, no_router
from supervisor.worker import Worker

# As many links of one name as may come from other routers and wait for their answers: more go round in circles, which
# routers of Dispatch 1.19 let them.
ROUNDS: Final = 16
LOST = ("qd:routed-link-lost", "Connectivity to the peer container was lost")


class Pair:
    """Two links. Owner: the pairs."""

    __slots__ = (
        "client", "client_link", "container", "container_link", "hop", "name", "number", "outward", "round", "survives",
        "text",
    )  # fmt: skip

    def __init__(
        self, number: int, client: Link, client_link: int, container: Connection, outward: int, hop: Hop | None
    ) -> None:
        self.number = number
        self.client: Link | None = client
        self.client_link = client_link  # its worker's number
        self.container = container  # the connection
        self.container_link: Link | None = None
        self.outward = outward  # identity of the container's link
        self.hop = hop  # None: the container is at this router
        # LR-13: only the first router adds who the client is.
        self.name = client.name if from_router(client) else f"{client.name}@{client.connection.container}"
        self.survives = False
        self.text = ""
        self.round: tuple[str, bool] | None = None  # what it is counted by, while it may go round


class Pairs:
    """All pairs. Owner: the core."""

    def __init__(
        self,
        workers: Mapping[int, Worker],
        take_identity: Callable[[], int],
        add_link: Callable[[Connection, int, Link, str], None],
        router_of: RouterOf = no_router,
    ) -> None:
        """add_link(connection, worker's number, link, text): make a link known."""
        self._workers = workers
        self._take_identity = take_identity
        self._add_link = add_link
        self._router_of = router_of
        self._pairs: dict[int, Pair] = {}
        self._making: dict[Connection, dict[int, Pair]] = {}  # without a container's link, by the container
        self._rounds: Counter[tuple[str, bool]] = Counter()  # links from routers that wait for their answer
        self._next = 1

    def begin(self, worker: Worker, client: Link, message: Mapping[str, Any], decision: Routed) -> None:
        """A client's attach is for a container: have its worker make the other link."""
        container = decision.connection
        pair = Pair(self._next, client, message["link"], container, self._take_identity(), decision.hop)
        client.routed_to = message["address"] or ""
        if from_router(client):
            pair.round = (pair.name, client.consumer)
            if self._rounds[pair.round] >= ROUNDS:
                pair.round = None
                self._refuse(pair, *NO_ROUTE)
                return
            self._rounds[pair.round] += 1
        self._next += 1
        self._pairs[pair.number] = pair
        self._making.setdefault(container, {})[pair.number] = pair
        pair.survives = message["timeout"] > 0 or message["expiry"] == "never"
        pair.text = message["text"]
        client.pair = pair
        client.other = pair.outward
        self._send(client.connection, {"t": DECIDED, "conn": client.connection.number, "link": pair.client_link})
        order = {
            "t": PAIR,
            "conn": container.number,
            "pair": pair.number,
            "identity": pair.outward,
            "outgoing": not client.consumer,
            "name": pair.name,
            "worker": worker.index,
            "slot": client.slot,
            "gen": client.generation,
            "survives": pair.survives,
            "address": decision.address,
            "answer": [decision.remove, decision.put],
        }
        if decision.hop is not None:
            order["route"] = decision.hop.route if decision.hop.ours else []
        # What comes by one session is of one client, also from another router of ours.
        order["group"] = f"{client.connection.number}.{message['channel']}"
        self._send(container, order)

    def pairable(self, worker: Worker, message: Message) -> None:
        """The container's link is there: the client's worker has what it needs."""
        pair = self._pairs.get(message["pair"])
        connection = worker.connections.get(message["conn"])
        if pair is None or connection is None:
            return
        client = pair.client
        assert client is not None  # a pair without client is forgotten until its container's link is there
        place = (message["slot"], message["gen"], connection, worker.index)
        link = Link(pair.outward, pair.name, not client.consumer, *place)
        link.pair = pair
        link.other = client.identity
        link.routed_to = client.routed_to
        pair.container_link = link
        self._made(pair)
        self._add_link(connection, message["link"], link, pair.text)
        order = {
            "t": PAIRED,
            "conn": client.connection.number,
            "link": pair.client_link,
            "pair": pair.number,
            "identity": client.identity,
            "worker": worker.index,
            "slot": link.slot,
            "gen": link.generation,
            "survives": pair.survives,
        }
        if from_router(client):
            neighbour = self._router_of(client.connection.number)
            order["plain"] = neighbour is None or not neighbour[1]
        self._send(client.connection, order)

    def unpairable(self, worker: Worker, message: Message) -> None:
        """The container's link cannot be made."""
        del worker
        pair = self._pairs.pop(message["pair"], None)
        if pair is not None:
            self._made(pair)
            self._refuse(pair, message["condition"], message["description"])

    def unpaired(self, worker: Worker, message: Message) -> None:
        """The client's link was gone before it knew of the container's."""
        del worker
        pair = self._pairs.get(message["pair"])
        if pair is not None:
            self._send(pair.container, {"t": UNPAIR, "pair": pair.number})

    def answered(self, link: Link) -> None:
        """A link is answered."""
        if link.pair is not None and link is link.pair.client:
            self._end_round(link.pair)

    def connection_gone(self, connection: Connection) -> None:
        """Pairs that were being made with this container come to nothing."""
        for pair in self._making.pop(connection, {}).values():
            del self._pairs[pair.number]
            self._refuse(pair, *LOST)

    def dropped(self, link: Link) -> None:
        """A link of a pair is gone."""
        pair = link.pair
        if pair is None:
            return
        link.pair = None
        if link is pair.client:
            pair.client = None
            self._end_round(pair)
            if pair.container_link is None and self._pairs.pop(pair.number, None) is not None:
                self._made(pair)
                self._send(pair.container, {"t": UNPAIR, "pair": pair.number})
        if link is pair.container_link:
            self._pairs.pop(pair.number, None)

    def _made(self, pair: Pair) -> None:
        """A pair is made, or will not be."""
        making = self._making.get(pair.container, {})
        making.pop(pair.number, None)
        if not making:
            self._making.pop(pair.container, None)

    def _end_round(self, pair: Pair) -> None:
        if pair.round is not None:
            self._rounds[pair.round] -= 1
            if not self._rounds[pair.round]:
                del self._rounds[pair.round]
            pair.round = None

    def _refuse(self, pair: Pair, condition: str, description: str) -> None:
        client = pair.client
        if client is not None:
            self._send(
                client.connection,
                {
                    "t": REFUSED,
                    "conn": client.connection.number,
                    "link": pair.client_link,
                    "condition": condition,
                    "description": description,
                },
            )

    def _send(self, connection: Connection, message: Message) -> None:
        """To the worker that has the connection, if it lives."""
        worker = None if connection.worker is None else self._workers.get(connection.worker)
        if worker is not None and connection.number in worker.connections:
            worker.outbox.append(message)


def from_router(link: Link) -> bool:
    """Another router has attached it, not a client."""
    return link.connection.origin.role == INTER_ROUTER
