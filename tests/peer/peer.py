"""Scripted peer: a connection with sessions and links under the test's control.

Bookkeeping that every test needs (delivery-ids, credit, reassembly of deliveries) is done while frames are read.
Nothing is sent that the test did not request.
"""

from __future__ import annotations

import socket
import time
from typing import Any

from tests.peer import frames
from tests.peer.frames import AMQP_HEADER, FRAME_HEADER, SASL_HEADER, Frame, Performative, frame_octets
from tests.peer.types import Described
from tests.peer.websocket import WebSocket
from tests.peer.wire import TIMEOUT, FrameSocket, PeerError, PeerTimeout

#: Session window that never closes.
WIDE = 2147483647
#: Modulus of AMQP's serial numbers.
MODULUS = 1 << 32


class PeerDelivery:
    """Delivery at a receiver, complete or not."""

    def __init__(self, link: PeerReceiver, first: Frame) -> None:
        self.link = link
        self.id: int = first.delivery_id
        self.tag: bytes = first.delivery_tag
        self.format = first.message_format
        self.payload = b""
        self.settled = False
        self.aborted = False
        self.complete = False
        self.state: Described | None = None
        self.transfers: list[Frame] = []

    def add(self, frame: Frame) -> None:
        """Add a transfer frame."""
        self.transfers.append(frame)
        self.payload += frame.payload
        self.settled = self.settled or bool(frame.settled)
        self.aborted = bool(frame.aborted)
        self.complete = not frame.more or self.aborted
        self.state = frame.state if frame.state is not None else self.state

    def settle(self, state: Described | None = frames.ACCEPTED, settled: bool = True) -> None:
        """Send a disposition for this delivery alone."""
        self.link.session.disposition(self.id, state=state, settled=settled)

    def __repr__(self) -> str:
        return f"<delivery {self.id} {len(self.payload)} octets settled={self.settled} aborted={self.aborted}>"


class PeerLink:
    """Base class of senders and receivers. `remote` is the router's attach, `remote_handle` its handle."""

    def __init__(self, session: PeerSession, name: str, handle: int) -> None:
        self.session = session
        self.peer = session.peer
        self.name = name
        self.handle = handle
        self.remote: Frame | None = None
        self.remote_handle: int | None = None
        self.detached: Frame | None = None

    @property
    def source(self) -> dict[str, Any]:
        """Source of the router's attach, by field name."""
        return frames.terminus(self._attach.source)

    @property
    def target(self) -> dict[str, Any]:
        """Target of the router's attach, by field name."""
        return frames.terminus(self._attach.target)

    @property
    def _attach(self) -> Frame:
        if self.remote is None:
            raise PeerError(f"link {self.name} has not been attached by the router")
        return self.remote

    def wait_attached(self, timeout: float = TIMEOUT) -> Frame:
        """Wait for the router's attach."""
        frame: Frame = self.peer.until(lambda: self.remote, f"attach of {self.name}", timeout)
        return frame

    def wait_detached(self, timeout: float = TIMEOUT) -> tuple[str, str | None] | None:
        """Wait for the router's detach. Return its (condition, description), None without an error."""
        frame: Frame = self.peer.until(lambda: self.detached, f"detach of {self.name}", timeout)
        return frames.error_of(frame.error)

    def send_detach(self, closed: bool = True, error: Described | None = None) -> None:
        """Send a detach."""
        self.session.frame("detach", handle=self.handle, closed=closed or None, error=error)

    def detach(self, closed: bool = True) -> Frame:
        """Send a detach and wait for the answer."""
        self.send_detach(closed)
        self.wait_detached()
        assert self.detached is not None
        return self.detached

    def on_flow(self, frame: Frame) -> None:
        """Handle a flow for this link."""


class PeerOutcome:
    """Dispositions for one sent delivery: `steps` in order, the last state, and the settlement."""

    def __init__(self) -> None:
        self.steps: list[tuple[Described | None, bool]] = []

    @property
    def state(self) -> Described | None:
        """Last state received."""
        states = [state for state, _settled in self.steps if state is not None]
        return states[-1] if states else None

    @property
    def settled(self) -> bool:
        """True if the router has settled."""
        return any(settled for _state, settled in self.steps)

    @property
    def name(self) -> str | None:
        """`accepted`, `released`, ...; None without a state."""
        return frames.state_name(self.state)

    @property
    def error(self) -> tuple[str, str | None] | None:
        """(condition, description) of a rejected state."""
        if self.state is None or self.state.descriptor != 0x25 or not self.state.value:
            return None
        return frames.error_of(self.state.value[0])

    def __repr__(self) -> str:
        return f"Outcome({self.steps})"


class PeerSender(PeerLink):
    """Link on which the test sends."""

    def __init__(self, session: PeerSession, name: str, handle: int, delivery_count: int = 0) -> None:
        super().__init__(session, name, handle)
        self.delivery_count = delivery_count
        #: Delivery-count at which the credit of the router's last flow ends.
        self.limit = delivery_count
        self.draining = False
        self.flows: list[Frame] = []
        self._open_delivery: int | None = None

    @property
    def credit(self) -> int:
        """Number of deliveries that may be sent now."""
        left = (self.limit - self.delivery_count) % MODULUS
        return left if left < MODULUS // 2 else left - MODULUS

    def on_flow(self, frame: Frame) -> None:
        self.flows.append(frame)
        base = frame.delivery_count if frame.delivery_count is not None else 0
        self.limit = (base + (frame.link_credit or 0)) % MODULUS
        self.draining = bool(frame.drain)

    def wait_credit(self, at_least: int = 1, timeout: float = TIMEOUT) -> int:
        """Wait until the router has granted at least `at_least` credits."""
        self.peer.until(lambda: self.credit >= at_least, f"{at_least} credits on {self.name}", timeout)
        return self.credit

    def send(
        self, payload: bytes, settled: bool | None = None, more: bool = False, tag: bytes | None = None, **fields: Any
    ) -> int:
        """Send a delivery, or, while the one before has `more`, its continuation. Return the delivery-id.

        The payload is cut to the router's max-frame-size, and each frame waits for the session window. Credit is not
        checked.
        """
        session = self.session
        if self._open_delivery is None:
            delivery = session.take_delivery_id()
            self.delivery_count = (self.delivery_count + 1) % MODULUS
            first: dict[str, Any] = {
                "delivery_id": delivery,
                "delivery_tag": delivery.to_bytes(4, "big") if tag is None else tag,
                "message_format": fields.pop("message_format", 0),
            }
        else:
            delivery, first = self._open_delivery, {}
        room = self.peer.payload_room
        pieces = [payload[at : at + room] for at in range(0, len(payload), room)] or [b""]
        for number, piece in enumerate(pieces):
            last = number == len(pieces) - 1
            given = {"handle": self.handle, **first, "settled": settled, "more": True if more or not last else None}
            if last:
                given.update(fields)
            session.wait_window(look=len(pieces) > 1)
            self.peer.raw(session.transfer_octets(piece, **given))
            first = {}
        self._open_delivery = delivery if more else None
        return delivery

    def send_some(self, payload: bytes, timeout: float, **fields: Any) -> bool:
        """Send as far as window and socket allow within `timeout` seconds. Return False if they did not take all of
        it.

        After False the connection can only be dropped: a frame may be half written.
        """
        peer, session = self.peer, self.session
        first: dict[str, Any] = {}
        if self._open_delivery is None:
            first = {"delivery_id": session.take_delivery_id(), "delivery_tag": b"some"}
            self.delivery_count = (self.delivery_count + 1) % MODULUS
        room = peer.payload_room
        deadline = time.monotonic() + timeout
        for at in range(0, len(payload), room):
            peer.read_available()
            while session.remote_window <= 0:
                if time.monotonic() > deadline:
                    return False
                peer.idle_until(min(deadline, time.monotonic() + 0.05))
            more = at + room < len(payload) or fields.get("more")
            octets = session.transfer_octets(
                payload[at : at + room], **{"handle": self.handle, **first, **fields, "more": more or None}
            )
            first = {}
            if peer.raw_some(octets, max(0.01, deadline - time.monotonic())) < len(octets):
                return False
        self._open_delivery = 0 if fields.get("more") else None
        return True

    def abort(self) -> None:
        """Abort the unfinished delivery."""
        self.peer.raw(self.session.transfer_octets(b"", handle=self.handle, aborted=True))
        self._open_delivery = None

    def outcome(self, delivery: int, settled: bool = True, timeout: float = TIMEOUT) -> PeerOutcome:
        """Wait until the delivery has been settled or, with settled=False, has any disposition."""
        outcomes = self.session.outcomes

        def come() -> bool:
            return delivery in outcomes and (outcomes[delivery].settled or not settled)

        self.peer.until(come, f"outcome of delivery {delivery} on {self.name}", timeout)
        return outcomes[delivery]

    def request(self, payload: bytes, **fields: Any) -> PeerOutcome:
        """Send unsettled and wait for the settled outcome."""
        return self.outcome(self.send(payload, **fields))

    def settle(self, delivery: int, state: Described | None = None, settled: bool = True) -> None:
        """Send a disposition as sender."""
        self.session.disposition(delivery, state=state, settled=settled, role=False)


class PeerReceiver(PeerLink):
    """Link on which the test receives. `deliveries` holds all deliveries, `taken` counts those returned by `next`."""

    def __init__(self, session: PeerSession, name: str, handle: int) -> None:
        super().__init__(session, name, handle)
        self.deliveries: list[PeerDelivery] = []
        self.taken = 0
        self.flows: list[Frame] = []
        #: Delivery-count at this receiver.
        self.delivery_count = 0

    @property
    def address(self) -> str:
        """Address of the source; for a dynamic one, the router's generated address."""
        return str(self.source["address"])

    def on_flow(self, frame: Frame) -> None:
        self.flows.append(frame)

    def on_transfer(self, frame: Frame) -> None:
        """Handle a transfer for this link."""
        if self.deliveries and not self.deliveries[-1].complete:
            self.deliveries[-1].add(frame)
        else:
            delivery = PeerDelivery(self, frame)
            delivery.add(frame)
            self.deliveries.append(delivery)
            self.delivery_count = (self.delivery_count + 1) % MODULUS

    def flow(self, credit: int, drain: bool = False, echo: bool = False, delivery_count: int | None = None) -> None:
        """Grant credit, counted from the delivery-count seen so far."""
        count = self.delivery_count if delivery_count is None else delivery_count
        self.session.flow(
            handle=self.handle, delivery_count=count, link_credit=credit, drain=drain or None, echo=echo or None
        )

    def next(self, timeout: float = TIMEOUT, complete: bool = True) -> PeerDelivery:
        """Return the next delivery; with complete=False as soon as its first transfer has arrived."""

        def come() -> bool:
            return len(self.deliveries) > self.taken and (self.deliveries[self.taken].complete or not complete)

        self.peer.until(come, f"a delivery on {self.name} (got {self.taken})", timeout)
        self.taken += 1
        return self.deliveries[self.taken - 1]

    def receive(self, count: int, timeout: float = TIMEOUT) -> list[PeerDelivery]:
        """Return the next `count` deliveries."""
        deadline = time.monotonic() + timeout
        return [self.next(max(0.0, deadline - time.monotonic())) for _ in range(count)]


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

__all__ = [
    "MODULUS",
    "WIDE",
    "AmqpPeer",
    "PeerDelivery",
    "PeerOutcome",
    "PeerReceiver",
    "PeerSender",
    "PeerSession",
    "PeerTimeout",
]
