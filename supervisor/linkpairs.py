"""Pairs of routed links, from the decision about a client's attach to the end of both. No input or output here.

`workers/routed.py` says who tells whom what. The supervisor makes the pair; then the workers need it no more, except
for what it shows of them, and to end a link whose other end was gone before the two knew each other.
"""
from collections.abc import Callable, Mapping
from typing import Any

from router.ipc.control import PAIR, PAIRED, REFUSED, UNPAIR, Message
from supervisor.attach import Routed
from supervisor.connections import Connection, Link
from supervisor.worker import Worker

LOST = ("qd:routed-link-lost", "Connectivity to the peer container was lost")


class Pair:
    """Two links. Owner: the pairs."""

    __slots__ = ("client", "client_link", "container", "container_link", "number", "outward", "survives", "text")

    def __init__(self, number: int, client: Link, client_link: int, container: Connection, outward: int) -> None:
        self.number = number
        self.client: Link | None = client
        self.client_link = client_link  # its worker's number
        self.container = container  # the connection
        self.container_link: Link | None = None
        self.outward = outward  # identity of the container's link
        self.survives = False
        self.text = ""


class Pairs:
    """All pairs. Owner: the core."""

    def __init__(
        self,
        workers: Mapping[int, Worker],
        take_identity: Callable[[], int],
        add_link: Callable[[Connection, int, Link, str], None],
    ) -> None:
        """add_link(connection, worker's number, link, text): make a link known."""
        self._workers = workers
        self._take_identity = take_identity
        self._add_link = add_link
        self._pairs: dict[int, Pair] = {}
        self._next = 1

    def begin(self, worker: Worker, client: Link, message: Mapping[str, Any], decision: Routed) -> None:
        """A client's attach is for a container: have its worker make the other link."""
        container = decision.connection
        pair = Pair(self._next, client, message["link"], container, self._take_identity())
        self._next += 1
        self._pairs[pair.number] = pair
        pair.survives = message["timeout"] > 0 or message["expiry"] == "never"
        pair.text = message["text"]
        client.pair = pair
        client.other = pair.outward
        client.routed_to = message["address"] or ""
        order = {
            "t": PAIR,
            "conn": container.number,
            "pair": pair.number,
            "identity": pair.outward,
            "outgoing": not client.consumer,
            "name": f"{client.name}@{client.connection.container}",
            "worker": worker.index,
            "slot": client.slot,
            "gen": client.generation,
            "survives": pair.survives,
            "address": decision.address,
            "answer": [decision.remove, decision.put],
        }
        self._send(container, order)

    def pairable(self, worker: Worker, message: Message) -> None:
        """The container's link is there: the client's worker has what it needs."""
        pair = self._pairs.get(message["pair"])
        connection = worker.connections.get(message["conn"])
        if pair is None or connection is None:
            return
        client = pair.client
        assert client is not None  # a pair without client is forgotten until its container's link is there
        link = Link(
            pair.outward,
            f"{client.name}@{client.connection.container}",
            not client.consumer,
            message["slot"],
            message["gen"],
            connection,
            worker.index,
        )
        link.pair = pair
        link.other = client.identity
        link.routed_to = client.routed_to
        pair.container_link = link
        self._add_link(connection, message["link"], link, pair.text)
        self._send(
            client.connection,
            {
                "t": PAIRED,
                "conn": client.connection.number,
                "link": pair.client_link,
                "pair": pair.number,
                "identity": client.identity,
                "worker": worker.index,
                "slot": link.slot,
                "gen": link.generation,
                "survives": pair.survives,
            },
        )

    def unpairable(self, worker: Worker, message: Message) -> None:
        """The container's link cannot be made."""
        del worker
        pair = self._pairs.pop(message["pair"], None)
        if pair is not None:
            self._refuse(pair, message["condition"], message["description"])

    def unpaired(self, worker: Worker, message: Message) -> None:
        """The client's link was gone before it knew of the container's."""
        del worker
        pair = self._pairs.get(message["pair"])
        if pair is not None:
            self._send(pair.container, {"t": UNPAIR, "pair": pair.number})

    def connection_gone(self, connection: Connection) -> None:
        """Pairs that were being made with this container come to nothing."""
        for pair in [each for each in self._pairs.values() if each.container is connection]:
            if pair.container_link is None:
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
            if pair.container_link is None and self._pairs.pop(pair.number, None) is not None:
                self._send(pair.container, {"t": UNPAIR, "pair": pair.number})
        if link is pair.container_link:
            self._pairs.pop(pair.number, None)

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
