"""Interior router with scripted neighbours, and a network protocol that records their messages."""

from sluice.router.addressing.settings import PRIORITIES
from sluice.workers.links.inter_router_link import CONTROL, DATA
from tests.peer.frames import source, target
from tests.peer.talk import MANY, flow, say, start
from tests.peer.types import Symbol
from tests.unit.ops import wire

INTERIOR = """
router {
    mode: interior
    id: QDR
}
listener {
    name: main
    host: 127.0.0.1
    port: 0
    idleTimeoutSeconds: 0
}
listener {
    name: net
    host: 127.0.0.1
    port: 1
    role: inter-router
    cost: 3
    idleTimeoutSeconds: 0
}
"""


class RecordingNetwork:
    """Network protocol that records the calls of its neighbours."""

    def __init__(self):
        self.calls = []

    def link_up(self, conn, cost, ours, only=None):
        self.calls.append(("up", conn, cost, ours))

    def link_down(self, conn):
        self.calls.append(("down", conn))

    def received(self, conn, octets):
        self.calls.append((conn, octets))


class InteriorRouter:
    """Interior router with a recording network protocol."""

    def __init__(self, router):
        self.router = router
        self.network = RecordingNetwork()
        router.core.neighbours.join(self.network)

    def peer(self, links=PRIORITIES, worker=0, credit=MANY, **fields):
        """Connect a router that attaches a control pair and `links` data pairs in one session."""
        peer = self.router.connect(worker, "net")
        peer.feed(start(**fields) + attach(0, True, CONTROL) + attach(1, False, CONTROL))
        for number in range(links):
            peer.feed(attach(2 * number + 2, True, DATA) + attach(2 * number + 3, False, DATA))
        if credit:
            peer.feed(flow(0, credit))
        self.router.settle()
        return peer

    def hop(self, peer):
        """Return the op for the next hop in a snapshot."""
        return next(
            (op for op in wire(self.router.core.events.snapshot_ops()) if op[:2] == ["hop", peer.client.number]), None
        )


def attach(handle, receiver, capability, **more):
    given = {
        "name": f"link{handle}",
        "handle": handle,
        "role": receiver,
        "source": source(capabilities=Symbol(capability)),
        "target": target(capabilities=Symbol(capability)),
        **({} if receiver else {"initial_delivery_count": 0}),
        **more,
    }
    return say("attach", **given)
