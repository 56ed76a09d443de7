"""AMQP of the simulated router: a connection with its sessions and links, driven by an event loop."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import Any

from tests.peer import frames
from tests.peer.frames import AMQP_HEADER, SASL_HEADER, Frame, Performative, frame_octets, parse_frame
from tests.peer.router19.deliveries import MODIFIED, Incoming, Outgoing
from tests.peer.router19.encoding import WINDOW, begin_octets
from tests.peer.types import Array, Described, Symbol

MODULUS = 1 << 32
CAPACITY = 250
_ROOM = 64


class Router19Link:
    """Link. receiver: this side receives. remote: the peer's attach."""

    def __init__(self, session: Router19Session, name: str, handle: int, receiver: bool) -> None:
        self.session = session
        self.name = name
        self.handle = handle
        self.receiver = receiver
        self.remote: Frame | None = None
        self.remote_handle = -1
        #: Kind of link: control, data or endpoint.
        self.kind = "endpoint"
        self.capability: str | None = None
        self.delivery_count = 0
        self.credit = 0
        self.draining = False
        self.detached = False
        self.current: Incoming | None = None
        self.waiting: deque[Outgoing] = deque()
        self.unsettled: dict[int, Outgoing] = {}
        #: Other end of a routed link.
        self.routed: Any = None

    def frame(self, name: str, **fields: Any) -> None:
        """Send a frame with the local handle."""
        self.session.frame(name, handle=self.handle, **fields)

    def grant(self, credit: int = CAPACITY, drain: bool = False) -> None:
        """Grant credit, counted from the delivery-count."""
        self.session.flow(
            handle=self.handle, delivery_count=self.delivery_count, link_credit=credit, drain=drain or None
        )

    def detach(self, error: Described | None = None, closed: bool = True) -> None:
        """Detach this side, if it is not detached."""
        if not self.detached:
            self.detached = True
            self.frame("detach", closed=closed or None, error=error)

    # --- sending -----------------------------------------------------------------------------------------------------

    def load(self) -> int:
        """Return the number of unsent and unsettled copies."""
        return len(self.waiting) + len(self.unsettled)

    def queue(self, out: Outgoing) -> None:
        """Queue a copy. A presettled copy for a full queue first drops the presettled copies behind the head."""
        if out.presettled and len(self.waiting) >= CAPACITY:
            head = self.waiting[0]
            kept = [one for one in self.waiting if one is head or not one.presettled]
            self.waiting = deque(kept)
        self.waiting.append(out)
        self.pump()

    def on_more_octets(self, out: Outgoing) -> None:
        """Send further octets of a copy."""
        self.pump()

    def settle_out(self, out: Outgoing, state: Described | None) -> None:
        """Report the origin's settlement."""
        if self.unsettled.pop(out.id, None) is not None:
            self.session.frame("disposition", role=False, first=out.id, last=out.id, settled=True, state=state)

    def pump(self) -> None:
        """Send as far as credit and window allow."""
        while self.waiting and not self.detached:
            out = self.waiting[0]
            if out.aborted and not out.started:
                self.waiting.popleft()
                continue
            if not out.started and (self.credit <= 0 or not out.buffer):
                return
            if not self._send(out):
                return
            self.waiting.popleft()
            self.idle()

    def idle(self) -> None:
        """Handle the end of a delivery's transmission. Replaced on streaming links."""

    def _send(self, out: Outgoing) -> bool:
        """Send the available octets of a copy. Return True if that was its end."""
        session = self.session
        if session.remote_window <= 0:
            return False
        if not out.started:
            out.started = True
            out.id = session.take_delivery_id()
            self.credit -= 1
            self.delivery_count = (self.delivery_count + 1) % MODULUS
            session.senders[out.id] = self
            if not out.settled:
                self.unsettled[out.id] = out
            tag = out.incoming.tag if self.routed is not None else session.endpoint.next_tag()
            first = {"delivery_id": out.id, "delivery_tag": tag, "message_format": 0}
        else:
            first = {}
        room = session.endpoint.remote_frame_size - frames.FRAME_HEADER - _ROOM
        while out.buffer or out.complete:
            if session.remote_window <= 0:
                return False
            piece, out.buffer = bytes(out.buffer[:room]), out.buffer[room:]
            more = bool(out.buffer) or not out.complete
            fields = {"handle": self.handle, **first, "settled": out.presettled, "more": more}
            if out.aborted and not out.buffer:
                fields.update(aborted=True, more=False)
                self.unsettled.pop(out.id, None)
            session.transfer(piece, **fields)
            first = {}
            if not more:
                return True
        return False

    def fail(self) -> None:
        """Settle outgoing deliveries and abort the incoming one, after the link is lost."""
        self.detached = True
        for out in list(self.waiting):
            out.update(frames.RELEASED, True)
            self.unsettled.pop(out.id, None)
        self.waiting.clear()
        for out in list(self.unsettled.values()):
            out.update(MODIFIED, True)
        self.unsettled.clear()
        if self.current is not None:
            self.current.abort()
            self.current = None


class Router19Session:
    """Session."""

    def __init__(self, endpoint: Router19Endpoint, channel: int) -> None:
        self.endpoint = endpoint
        self.channel = channel
        self.remote: Frame | None = None
        self.remote_window = 0
        self.next_outgoing_id = 0
        self.next_incoming_id = 0
        self.next_delivery_id = 0
        self.links: list[Router19Link] = []
        self.by_remote: dict[int, Router19Link] = {}
        #: Link by delivery-id, for deliveries sent.
        self.senders: dict[int, Router19Link] = {}
        #: Incoming delivery by the peer's delivery-id.
        self.received: dict[int, Incoming] = {}

    def frame(self, name: str, **fields: Any) -> None:
        """Send a frame."""
        self.endpoint.send(Performative(name, **fields).encode(), self.channel)

    def take_delivery_id(self) -> int:
        """Return the next delivery-id."""
        self.next_delivery_id = (self.next_delivery_id + 1) % MODULUS
        return (self.next_delivery_id - 1) % MODULUS

    def transfer(self, payload: bytes, **fields: Any) -> None:
        """Send a transfer."""
        self.next_outgoing_id = (self.next_outgoing_id + 1) % MODULUS
        self.remote_window -= 1
        self.endpoint.send(Performative("transfer", **fields).encode() + payload, self.channel)

    def flow(self, **fields: Any) -> None:
        """Send a flow."""
        self.frame(
            "flow",
            next_incoming_id=self.next_incoming_id,
            incoming_window=WINDOW,
            next_outgoing_id=self.next_outgoing_id,
            outgoing_window=WINDOW,
            **fields,
        )

    def fresh_handle(self) -> int:
        """Return the lowest free handle."""
        used = {link.handle for link in self.links if not (link.detached and link.remote_handle == -1)}
        return next(number for number in range(len(used) + 1) if number not in used)


class Router19Endpoint(asyncio.Protocol):
    """Connection. Subclasses define its purpose by the methods that begin with `on_`."""

    def __init__(self, connector: bool, hostname: str | None = None, mechanism: str = "ANONYMOUS") -> None:
        self.connector = connector
        self.hostname = hostname
        self.mechanism = mechanism
        self.transport: asyncio.Transport | None = None
        self.remote_open: Frame | None = None
        self.opened = False
        self.lost = False
        self.remote_frame_size = 512
        self.sessions: dict[int, Router19Session] = {}
        self.by_channel: dict[int, Router19Session] = {}
        #: All received frames, with the octets of performative and payload.
        self.frames: list[tuple[Frame, bytes]] = []
        self._buffer = bytearray()
        self._stage = "sasl"
        self._touched: dict[int, Router19Link] = {}
        self._heartbeat: asyncio.TimerHandle | None = None

    # --- for subclasses ----------------------------------------------------------------------------------------------

    def open_octets(self) -> bytes:
        """Return the local open."""
        raise NotImplementedError

    def next_tag(self) -> bytes:
        """Return a delivery tag."""
        raise NotImplementedError

    def on_open(self) -> None:
        """Handle the exchange of both opens."""

    def on_attach(self, link: Router19Link, frame: Frame, fresh: bool) -> None:
        """Handle the peer's attach. fresh: the peer attached first, and an answer is needed."""

    def on_transfer(self, link: Router19Link, incoming: Incoming) -> None:
        """Handle a new or grown delivery."""

    def on_detach(self, link: Router19Link, frame: Frame) -> None:
        """Handle the peer's detach."""

    def on_flow(self, link: Router19Link, frame: Frame) -> None:
        """Handle credit from the peer."""
        link.pump()

    def on_lost(self) -> None:
        """Handle the loss of the connection."""

    def entered(self) -> Any:
        """Return a context manager for all work of a callback."""
        raise NotImplementedError

    # --- asyncio -----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self.connector:
            self._write(SASL_HEADER)

    def data_received(self, data: bytes) -> None:
        with self.entered():
            self._buffer += data
            while self._step():
                pass
            touched, self._touched = self._touched, {}
            for link in touched.values():
                if not link.detached and link.kind != "endpoint":
                    link.grant()

    def connection_lost(self, exc: Exception | None) -> None:
        with self.entered():
            self.lost = True
            if self._heartbeat is not None:
                self._heartbeat.cancel()
            for session in self.sessions.values():
                for link in session.links:
                    if not link.detached:
                        link.fail()
            self.on_lost()

    def drop(self) -> None:
        """Close the socket without an AMQP close."""
        if self.transport is not None:
            self.transport.abort()

    def _write(self, octets: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(octets)

    def send(self, body: bytes, channel: int = 0, kind: int = 0) -> None:
        """Write a frame."""
        self._write(frame_octets(body, channel, kind))

    # --- reading -----------------------------------------------------------------------------------------------------

    def _step(self) -> bool:
        """Take a header or a frame from the buffer. Return False if there is none."""
        if self._buffer[:4] == b"AMQP":
            if len(self._buffer) < 8:
                return False
            header = bytes(self._buffer[:8])
            del self._buffer[:8]
            self._on_header(header)
            return True
        if len(self._buffer) < 4:
            return False
        (size,) = struct.unpack_from("!I", self._buffer)
        if len(self._buffer) < size:
            return False
        octets = bytes(self._buffer[:size])
        del self._buffer[:size]
        frame = parse_frame(octets)
        if frame.performative is not None:
            self.frames.append((frame, octets[4 * octets[4] :]))
            handler = getattr(self, "_on_" + frame.name.replace("-", "_"), None)
            if handler is not None:
                handler(frame)
        return True

    def _on_header(self, header: bytes) -> None:
        if self.connector:
            return
        if header == SASL_HEADER:
            self._write(SASL_HEADER)
            mechanisms = Array([Symbol(self.mechanism)])
            self.send(Performative("sasl-mechanisms", sasl_server_mechanisms=mechanisms).encode(), kind=1)
        else:
            self._write(AMQP_HEADER)

    def _on_sasl_mechanisms(self, _frame: Frame) -> None:
        response = f"anonymous@{self.hostname}".encode() if self.mechanism == "ANONYMOUS" else b""
        self.send(Performative("sasl-init", mechanism=self.mechanism, initial_response=response).encode(), kind=1)

    def _on_sasl_init(self, _frame: Frame) -> None:
        self.send(Performative("sasl-outcome", code=0).encode(), kind=1)

    def _on_sasl_outcome(self, _frame: Frame) -> None:
        self._write(AMQP_HEADER)
        self.send(self.open_octets())

    def _on_open(self, frame: Frame) -> None:
        self.remote_open = frame
        self.remote_frame_size = min(frame.max_frame_size or 65536, 65536)
        if not self.connector:
            self.send(self.open_octets())
        if frame.idle_time_out:
            self._beat(int(frame.idle_time_out) / 2000)
        self.opened = True
        self.on_open()

    def _beat(self, seconds: float) -> None:
        self.send(b"")
        self._heartbeat = asyncio.get_running_loop().call_later(seconds, self._beat, seconds)

    def begin(self, channel: int) -> Router19Session:
        """Begin a session."""
        session = self.sessions[channel] = Router19Session(self, channel)
        self.send(begin_octets(), channel)
        return session

    def _on_begin(self, frame: Frame) -> None:
        if frame.remote_channel is None:
            channel = frame.channel
            while channel in self.sessions:
                channel += 1
            session = self.sessions[channel] = Router19Session(self, channel)
            self.send(begin_octets(frame.channel), channel)
        else:
            session = self.sessions[frame.remote_channel]
        session.remote = frame
        session.next_incoming_id = frame.next_outgoing_id
        session.remote_window = frame.incoming_window
        self.by_channel[frame.channel] = session

    def attach(self, session: Router19Session, name: str, receiver: bool, octets: bytes, handle: int) -> Router19Link:
        """Send a local attach."""
        link = Router19Link(session, name, handle, receiver)
        session.links.append(link)
        self.send(octets, session.channel)
        return link

    def _on_attach(self, frame: Frame) -> None:
        session = self.by_channel[frame.channel]
        name, receiver = frame.fields["name"], not frame.role
        fresh = False
        for link in session.links:
            if link.name == name and link.receiver == receiver and link.remote is None:
                break
        else:
            fresh = True
            used = {one.handle for one in session.links if not one.detached}
            handle = frame.handle if frame.handle not in used else session.fresh_handle()
            link = Router19Link(session, name, handle, receiver)
            session.links.append(link)
        link.remote, link.remote_handle = frame, frame.handle
        if receiver:
            link.delivery_count = frame.initial_delivery_count or 0
        session.by_remote[frame.handle] = link
        self.on_attach(link, frame, fresh)

    def _on_flow(self, frame: Frame) -> None:
        session = self.by_channel[frame.channel]
        if frame.incoming_window is not None:
            used = (session.next_outgoing_id - (frame.next_incoming_id or 0)) % MODULUS
            shut = session.remote_window <= 0
            session.remote_window = frame.incoming_window - used
            if shut:
                for one in session.links:
                    if not one.receiver:
                        one.pump()
        link = session.by_remote.get(frame.handle) if frame.handle is not None else None
        if link is None:
            for one in session.links:
                if not one.receiver:
                    one.pump()
        elif link.receiver:
            self.on_flow(link, frame)
        else:
            count = frame.delivery_count if frame.delivery_count is not None else 0
            link.credit = (count + (frame.link_credit or 0) - link.delivery_count) % MODULUS
            if link.credit > MODULUS // 2:
                link.credit -= MODULUS
            link.draining = bool(frame.drain)
            self.on_flow(link, frame)

    def _on_transfer(self, frame: Frame) -> None:
        session = self.by_channel[frame.channel]
        session.next_incoming_id = (session.next_incoming_id + 1) % MODULUS
        link = session.by_remote.get(frame.handle)
        if link is None or link.detached:
            return
        incoming = link.current
        if incoming is None:
            incoming = link.current = self._first(link, frame)
        if frame.settled:
            incoming.settled = True
            session.received.pop(incoming.number, None)
        if frame.aborted:
            link.current = None
            incoming.abort()
        else:
            incoming.extend(frame.payload, not frame.more)
            if not frame.more:
                link.current = None
        self.on_transfer(link, incoming)

    def _first(self, link: Router19Link, frame: Frame) -> Incoming:
        """Handle the first transfer of a delivery."""
        session, number = link.session, int(frame.delivery_id)

        def tell(state: Described | None, settled: bool) -> None:
            if self.lost or link.detached:
                return
            if settled:
                session.received.pop(number, None)
            session.frame("disposition", role=True, first=number, last=number, settled=settled, state=state)

        link.delivery_count = (link.delivery_count + 1) % MODULUS
        self._touched[id(link)] = link
        incoming = Incoming(tell, bool(frame.settled), self, frame.delivery_tag)
        incoming.number = number
        if not frame.settled:
            session.received[number] = incoming
        return incoming

    def _on_disposition(self, frame: Frame) -> None:
        session = self.by_channel[frame.channel]
        last = frame.first if frame.last is None else frame.last
        for number in range(int(frame.first), int(last) + 1):
            if not frame.role:
                incoming = session.received.get(number)
                if incoming is not None and frame.settled:
                    session.received.pop(number)
                    incoming.origin_settled(frame.state)
                continue
            link = session.senders.get(number)
            out = link.unsettled.get(number) if link is not None else None
            if link is None or out is None:
                continue
            if frame.settled:
                link.unsettled.pop(number)
                session.senders.pop(number)
            out.update(frame.state, bool(frame.settled))

    def _on_detach(self, frame: Frame) -> None:
        session = self.by_channel[frame.channel]
        link = session.by_remote.pop(frame.handle, None)
        if link is None:
            return
        link.remote_handle = -1
        self.on_detach(link, frame)

    def _on_end(self, frame: Frame) -> None:
        session = self.by_channel.pop(frame.channel, None)
        if session is None:
            return
        for link in session.links:
            if not link.detached:
                link.fail()
                self.on_detach(link, frame)
        self.sessions.pop(session.channel, None)
        session.frame("end")

    def _on_close(self, _frame: Frame) -> None:
        self.send(Performative("close").encode())
        if self.transport is not None:
            self.transport.close()
