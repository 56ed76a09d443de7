"""Client and route container with one routed link, whose ends flood each other."""

from typing import Any

from sluice.router.testing.output import octets_waiting
from tests.component.engine.host import InProcessPeer, InProcessRouter
from tests.component.engine.routed_ends import ROUTED, ScriptedRouteContainer, link_route
from tests.peer.talk import consumer, flow, frames, producer, say, start, transfer

OUTPUT_HIGH = 131_072  # octets in a write buffer above which nothing more is added (router/amqp/endpoint.pxd)
FRAME = 16_384  # octets of the longest frame
HANDLE = 40  # handle of the container's link
PADDING = "y" * 12_000


class RoutedLinkPair:
    """Client and container with one routed link. Both link routes exist, and a second pair for bystanders."""

    def __init__(self, router: InProcessRouter, *, sends: bool, link: bool = True) -> None:
        """sends: the client sends to the container. link: the client attaches a link."""
        self.router = router
        router.core.link_routes.replace(
            (link_route("in"), link_route("out"), link_route("in", "other"), link_route("out", "other"))
        )
        self.sends = sends
        last = len(router.workers) - 1
        self.container = ScriptedRouteContainer(router, last)
        self.client = self.connect(0)
        if link:
            self.client.feed(producer(0, "queue.a") if sends else consumer(0, "queue.a", 0))
            self.container.accept()
            router.settle()
        self.discard()

    def connect(self, worker: int) -> InProcessPeer:
        peer = self.router.connect(worker)
        peer.feed(start())
        self.router.settle()
        frames(peer)
        return peer

    def discard(self) -> None:
        frames(self.client)
        frames(self.container.peer)

    def end(self, reader: str) -> InProcessPeer:
        return self.client if reader == "client" else self.container.peer

    def flood(self, reader: str, octets: bytes) -> None:
        """Send octets from the other end of `reader`."""
        (self.container.peer if reader == "client" else self.client).feed(octets)
        self.router.settle()

    def flow(self, reader: str, credit: int, count: int = 0, **fields: Any) -> bytes:
        """Return a flow from the other end of `reader`."""
        if reader == "client":
            return flow(HANDLE, credit, delivery_count=count, channel=ROUTED, **fields)
        return flow(0, credit, delivery_count=count, **fields)

    def close(self) -> None:
        for peer in (self.client, self.container.peer):
            peer.blocked = False
            peer.lose()
        self.router.settle()


def fill(pair: RoutedLinkPair, reader: str) -> None:
    """Fill a reader's write buffer to its bound with messages that it does not read."""
    size = 2 * OUTPUT_HIGH // 8_000
    if reader == "client":
        pair.client.feed(flow(0, size))
        pair.router.settle()
        octets = b"".join(
            say("transfer", channel=ROUTED, payload=b"z" * 8_000, handle=HANDLE, delivery_id=n, delivery_tag=b"%d" % n,
                message_format=0, settled=True)
            for n in range(size)
        )  # fmt: skip
    else:
        pair.container.flow(HANDLE, size)
        octets = b"".join(transfer(0, n, b"z" * 8_000, settled=True) for n in range(size))
    pair.flood(reader, octets)


def check_bounded(peer: InProcessPeer) -> None:
    assert octets_waiting(peer.connection) <= OUTPUT_HIGH + FRAME
