"""Scripted router on an inter-router connection: frames and links only, without the routing protocol.

As a connector it attaches the links of a 1.19 router, or as many as the test gives. As a listener it answers the links
of the router under test. It announces nothing: tests that need the routing protocol use `router19`.
"""

from __future__ import annotations

from typing import Any

from tests.peer import frames
from tests.peer.container import Container, accept
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.peer import AmqpPeer, PeerSession
from tests.peer.types import Int, Map, Symbol
from tests.peer.wire import TIMEOUT

CONTROL = "qd.router"
DATA = "qd.router-data"
PRIORITIES = 10
CREDIT = 250
CAPABILITIES = ("ANONYMOUS-RELAY", "qd.streaming-links")


def properties(cost: int = 1, **more: Any) -> Map:
    """Return the open properties of a 1.19 router, followed by `more`."""
    pairs: list[tuple[Any, Any]] = [
        (Symbol("product"), "qpid-dispatch-router"),
        (Symbol("version"), "1.19.0"),
        (Symbol("qd.conn-id"), Int(1)),
    ]
    if cost > 1:
        pairs.append((Symbol("qd.inter-router-cost"), Int(cost)))
    pairs.append((Symbol("qd.annotations-version"), Int(1)))
    pairs += [(Symbol(key), value) for key, value in more.items()]
    return Map(pairs)


def terminus(kind: Any, capability: Any) -> Any:
    """Return a source or target as attached by routers."""
    return kind(None, durable=0, expiry_policy="link-detach", timeout=0, dynamic=False, capabilities=Symbol(capability))


class RouterPeer:
    """Links of one connection, by direction from this peer's view: `outs[p]` is the sender of priority p."""

    def __init__(self, peer: AmqpPeer) -> None:
        self.peer = peer
        self.control_in: PeerReceiver | None = None
        self.control_out: PeerSender | None = None
        self.ins: list[PeerReceiver] = []
        self.outs: list[PeerSender] = []

    @classmethod
    def connected(cls, port: int, name: str = "P", links: int = PRIORITIES, cost: int = 1, **fields: Any) -> RouterPeer:
        """Connect to a listener and attach the control links and `links` pairs of data links."""
        given = {"container_id": name, "properties": properties(cost), "offered_capabilities": list(CAPABILITIES)}
        own = cls(AmqpPeer.opened(port, **{**given, **fields}))
        own.attach_control()
        for _ in range(links):
            own.attach_data()
        return own

    def attach_control(self, session: PeerSession | None = None) -> None:
        """Attach the control pair. The receiver grants credit once attached."""
        session = session or self.peer.begin()
        self.control_in = self.receiver(session, CONTROL)
        self.control_out = self.sender(session, CONTROL)

    def attach_data(self, session: PeerSession | None = None) -> None:
        """Attach the next pair of data links."""
        session = session or self.peer.begin()
        self.ins.append(self.receiver(session, DATA))
        self.outs.append(self.sender(session, DATA))

    def receiver(self, session: PeerSession, capability: str, credit: int = CREDIT, **fields: Any) -> PeerReceiver:
        """Attach a receiver."""
        given = {"source": terminus(frames.source, capability), "target": terminus(frames.target, capability)}
        return session.receiver(None, credit, snd_settle_mode=2, rcv_settle_mode=0, **{**given, **fields})

    def sender(self, session: PeerSession, capability: str, **fields: Any) -> PeerSender:
        """Attach a sender and wait for its credit."""
        given = {"source": terminus(frames.source, capability), "target": terminus(frames.target, capability)}
        return session.sender(None, snd_settle_mode=2, rcv_settle_mode=0, **{**given, **fields})

    @classmethod
    def served(cls, container: Container, sessions: int = 1 + PRIORITIES, timeout: float = TIMEOUT) -> RouterPeer:
        """Answer a connector's sessions (`sessions` of them) and its 22 links."""
        own = cls(container)
        for _ in range(sessions):
            container.session_begun(timeout)
        for number in range(2 * (1 + PRIORITIES)):
            link = container.link_attached(answer=False)
            answer(link)
            if isinstance(link, PeerReceiver):
                link.flow(CREDIT)
                if number < 2:
                    own.control_in = link
                else:
                    own.ins.append(link)
            elif number < 2:
                own.control_out = link
            else:
                own.outs.append(link)
        return own

    def send_control(self, octets: bytes, **fields: Any) -> int:
        """Send a presettled message on the control link."""
        assert self.control_out is not None
        return self.control_out.send(octets, **{"settled": True, **fields})


def answer(link: PeerSender | PeerReceiver) -> None:
    """Answer an attach like a 1.19 listener."""
    accept(link, snd_settle_mode=2, rcv_settle_mode=0, initial_delivery_count=0, max_message_size=0)
