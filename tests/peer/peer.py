"""Scripted peer: a connection with sessions and links under the test's control.

Bookkeeping that every test needs (delivery-ids, credit, reassembly of deliveries) is done while frames are read.
Nothing is sent that the test did not request.
"""

from __future__ import annotations

import socket
from typing import Any

from tests.peer import frames
from tests.peer.frames import AMQP_HEADER, FRAME_HEADER, SASL_HEADER, Frame, Performative, frame_octets
from tests.peer.links import MODULUS, PeerLink, PeerOutcome, PeerReceiver, PeerSender
from tests.peer.types import Described
from tests.peer.websocket import WebSocket
from tests.peer.wire import TIMEOUT, FrameSocket, PeerError

#: Session window that never closes.
WIDE = 2147483647


class PeerSession:
    """Session with its ids, handles and links."""

    def __init__(self, peer: AmqpPeer, channel: int, next_outgoing_id: int, incoming_window: int) -> None:
        self.peer = peer
        self.channel = channel
        self.next_outgoing_id = next_outgoing_id
        self.next_delivery_id = next_outgoing_id
        self.next_incoming_id = 0
        self.incoming_window = incoming_window
        self.remote: Frame | None = None
        self.remote_channel: int | None = None
        self.links: list[PeerLink] = []
        self.outcomes: dict[int, PeerOutcome] = {}
        #: Settlements by the router of its own deliveries.
        self.remote_settled: dict[int, PeerOutcome] = {}
        self.remote_window = 0
        self._next_handle = 0

    def frame(self, name: str, /, payload: bytes = b"", **fields: Any) -> None:
        """Send a frame on this session's channel."""
        self.peer.frame(name, payload, channel=self.channel, **fields)

    def take_delivery_id(self) -> int:
        """Return a new delivery-id."""
        delivery = self.next_delivery_id
        self.next_delivery_id = (delivery + 1) % MODULUS
        return delivery

    def transfer_octets(self, payload: bytes, **fields: Any) -> bytes:
        """Return a transfer frame. It is counted in the session window but not sent."""
        self.next_outgoing_id = (self.next_outgoing_id + 1) % MODULUS
        self.remote_window -= 1
        return frame_octets(Performative("transfer", **fields).encode() + payload, self.channel)

    def wait_window(self, look: bool = False) -> None:
        """Wait until the router's incoming window allows a frame. look: first read the frames that have arrived."""
        if look:
            self.peer.read_available()
        self.peer.until(lambda: self.remote_window > 0, "an open session window")

    def flow(self, **fields: Any) -> None:
        """Send a flow with the session's fields filled in."""
        given = {
            "next_incoming_id": self.next_incoming_id,
            "incoming_window": self.incoming_window,
            "next_outgoing_id": self.next_outgoing_id,
            "outgoing_window": WIDE,
        }
        self.frame("flow", **{**given, **fields})

    def disposition(
        self,
        first: int,
        last: int | None = None,
        state: Described | None = frames.ACCEPTED,
        settled: bool = True,
        role: bool = True,
    ) -> None:
        """Send a disposition. role: True for the receiver's side."""
        self.frame("disposition", role=role, first=first, last=last, settled=settled or None, state=state)

    def fresh_handle(self) -> int:
        """Return the next unused handle."""
        self._next_handle += 1
        return self._next_handle - 1

    def sender(self, address: str | None = None, wait: bool = True, credit: bool = True, **fields: Any) -> PeerSender:
        """Attach a sender (address None: an anonymous link). Waits for the attach and, with `credit`, for the first
        credit.

        Keywords are attach fields, `target` among them; `handle` and `name` may be given.
        """
        handle = fields.pop("handle", None)
        handle = self.fresh_handle() if handle is None else handle
        name = fields.pop("name", None) or self.peer.fresh_name("s")
        link = PeerSender(self, name, handle, fields.get("initial_delivery_count", 0))
        self.links.append(link)
        given = {
            "role": False,
            "source": frames.source("test-source"),
            "target": frames.target(address),
            "initial_delivery_count": 0,
        }
        self.frame("attach", name=name, handle=handle, **{**given, **fields})
        if wait:
            link.wait_attached()
            if credit:
                link.wait_credit()
        return link

    def receiver(
        self, address: str | None = None, credit: int = 0, wait: bool = True, dynamic: bool = False, **fields: Any
    ) -> PeerReceiver:
        """Attach a receiver and grant credit. Keywords are attach fields, `source` among them."""
        handle = fields.pop("handle", None)
        handle = self.fresh_handle() if handle is None else handle
        name = fields.pop("name", None) or self.peer.fresh_name("r")
        link = PeerReceiver(self, name, handle)
        self.links.append(link)
        source = frames.source(address, dynamic=True) if dynamic else frames.source(address)
        given = {"role": True, "source": source, "target": frames.target("test-target")}
        self.frame("attach", name=name, handle=handle, **{**given, **fields})
        if wait:
            link.wait_attached()
        if credit:
            link.flow(credit)
        return link

    def end(self, error: Any = None) -> None:
        """Send end and wait for the answer."""
        self.frame("end", error=error)
        self.peer.expect("end", channel=self.remote_channel)


class AmqpPeer(FrameSocket):
    """Connection. `AmqpPeer(port)` only connects; `AmqpPeer.opened(port)` also exchanges headers, SASL and open."""

    def __init__(
        self, port: int | socket.socket | WebSocket, host: str = "127.0.0.1", receive_buffer: int | None = None
    ) -> None:
        super().__init__(port, host, receive_buffer)
        self.on_frame = self._track
        self.remote_open: Frame | None = None
        self.sessions: list[PeerSession] = []
        self._names = 0
        self._session: PeerSession | None = None

    @classmethod
    def opened(cls, port: int, sasl: bool = True, **fields: Any) -> AmqpPeer:
        """Connect, authenticate as ANONYMOUS (or skip SASL) and open. Keywords are open fields."""
        buffer = fields.pop("receive_buffer", None)
        peer = cls(port, receive_buffer=buffer)
        try:
            peer.open(sasl, **fields)
        except BaseException:
            peer.drop()
            raise
        return peer

    @property
    def payload_room(self) -> int:
        """Octets of payload that fit in any transfer frame to the router."""
        size = self.remote_open.max_frame_size if self.remote_open is not None else None
        #: The transfer performatives of these tests take less than 64 octets.
        return (size or 16384) - FRAME_HEADER - 64

    def fresh_name(self, prefix: str) -> str:
        """Return a link name unused on this connection."""
        self._names += 1
        return f"{prefix}{self._names}"

    def open(self, sasl: bool = True, *, mechanism: str = "ANONYMOUS", **fields: Any) -> Frame:
        """Exchange headers, SASL in one step, and open. Return the router's open. max_frame_size defaults to 65536."""
        self.send_open(sasl, mechanism=mechanism, **fields)
        if sasl:
            self._expect_header(SASL_HEADER)
            self.expect("sasl-mechanisms")
            outcome = self.expect("sasl-outcome")
            if outcome.code != 0:
                raise PeerError(f"SASL failed: {outcome}")
        self._expect_header(AMQP_HEADER)
        self.remote_open = self.expect("open")
        return self.remote_open

    def send_open(self, sasl: bool = True, *, mechanism: str = "ANONYMOUS", **fields: Any) -> None:
        """Send all output of `open` without waiting."""
        hello = Performative("open", **{"container_id": "peer", "max_frame_size": 65536, **fields}).encode()
        if sasl:
            init = Performative("sasl-init", mechanism=mechanism, initial_response=b"").encode()
            self.raw(SASL_HEADER + frame_octets(init, kind=1) + AMQP_HEADER + frame_octets(hello))
        else:
            self.raw(AMQP_HEADER + frame_octets(hello))

    def _expect_header(self, wanted: bytes) -> None:
        header = self.read_octets(8)
        if header != wanted:
            raise PeerError(f"expected header {wanted!r}, got {header!r}")

    def begin(self, next_outgoing_id: int = 0, incoming_window: int = WIDE, **fields: Any) -> PeerSession:
        """Begin another session and wait for the answer. `channel` may be given."""
        channel = fields.pop("channel", len(self.sessions))
        session = PeerSession(self, channel, next_outgoing_id, incoming_window)
        self.sessions.append(session)
        given = {
            "next_outgoing_id": next_outgoing_id,
            "incoming_window": incoming_window,
            "outgoing_window": WIDE,
        }
        self.frame("begin", channel=channel, **{**given, **fields})
        self.until(lambda: session.remote, f"begin for channel {channel}")
        return session

    @property
    def session(self) -> PeerSession:
        """Default session, begun on first use."""
        if self._session is None:
            self._session = self.begin()
        return self._session

    def sender(self, address: str | None = None, **fields: Any) -> PeerSender:
        """Attach a sender on the default session."""
        return self.session.sender(address, **fields)

    def receiver(self, address: str | None = None, credit: int = 0, **fields: Any) -> PeerReceiver:
        """Attach a receiver on the default session."""
        return self.session.receiver(address, credit, **fields)

    def close(self) -> Frame:
        """Send close, and wait for the answer and the end of stream."""
        self.frame("close")
        answer = self.expect("close")
        self.expect_end()
        self.drop()
        return answer

    def expect_close(self, timeout: float = TIMEOUT) -> tuple[str, str | None] | None:
        """Wait for the router's close and the end of stream after it. Return (condition, description)."""
        error = frames.error_of(self.expect("close", timeout).error)
        self.expect_end(timeout)
        return error

    def barrier(self) -> None:
        """Make a round trip through the router. Afterwards both sides have read everything sent before on this
        connection."""
        self.begin().end()

    # --- bookkeeping ------------------------------------------------------------------------------------------------

    def _track(self, frame: Frame) -> None:
        if frame.name == "begin":
            for session in self.sessions:
                if session.remote is None and session.channel == frame.remote_channel:
                    session.remote, session.remote_channel = frame, frame.channel
                    session.next_incoming_id = frame.next_outgoing_id
                    session.remote_window = frame.incoming_window
                    return
            return
        on = self._session_on(frame.channel)
        if on is None:
            return
        handler = _TRACKERS.get(frame.name)
        if handler is not None:
            handler(on, frame)

    def _session_on(self, channel: int) -> PeerSession | None:
        live = [session for session in self.sessions if session.remote_channel == channel]
        return live[-1] if live else None


def _on_attach(session: PeerSession, frame: Frame) -> None:
    name, role = frame.fields["name"], frame.role
    for link in session.links:
        if link.name == name and link.remote is None and isinstance(link, PeerSender) == bool(role):
            link.remote, link.remote_handle = frame, frame.handle
            if isinstance(link, PeerReceiver):
                link.delivery_count = frame.initial_delivery_count or 0
            return


def _link_on(session: PeerSession, handle: int) -> PeerLink | None:
    for link in session.links:
        if link.remote_handle == handle and link.detached is None:
            return link
    return None


def _on_detach(session: PeerSession, frame: Frame) -> None:
    link = _link_on(session, frame.handle)
    if link is not None:
        link.detached = frame


def _on_flow(session: PeerSession, frame: Frame) -> None:
    if frame.incoming_window is not None:
        used = (session.next_outgoing_id - (frame.next_incoming_id or 0)) % MODULUS
        session.remote_window = frame.incoming_window - used
    if frame.handle is not None and (link := _link_on(session, frame.handle)) is not None:
        link.on_flow(frame)


def _on_transfer(session: PeerSession, frame: Frame) -> None:
    session.next_incoming_id = (session.next_incoming_id + 1) % MODULUS
    link = _link_on(session, frame.handle)
    if isinstance(link, PeerReceiver):
        link.on_transfer(frame)


def _on_disposition(session: PeerSession, frame: Frame) -> None:
    table = session.outcomes if frame.role else session.remote_settled
    last = frame.first if frame.last is None else frame.last
    for delivery in range(frame.first, last + 1):
        table.setdefault(delivery, PeerOutcome()).steps.append((frame.state, bool(frame.settled)))


_TRACKERS = {
    "attach": _on_attach,
    "detach": _on_detach,
    "flow": _on_flow,
    "transfer": _on_transfer,
    "disposition": _on_disposition,
}
