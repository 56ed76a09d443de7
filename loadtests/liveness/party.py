"""Parties: connections of clients and brokers, with their sessions, as state machines on frames."""

from __future__ import annotations

import selectors
import socket
import struct
from typing import TYPE_CHECKING, Any

from loadtests.liveness import frames
from loadtests.liveness.consumer import InLink
from loadtests.liveness.draw import WIDE, ConnectionSpec, SessionSpec
from loadtests.liveness.links import PartyLink, Role
from loadtests.liveness.producer import OutLink, ProducerRole
from tests.peer.frames import AMQP_HEADER, SASL_HEADER, terminus
from tests.peer.types import Array, Symbol

if TYPE_CHECKING:
    from loadtests.liveness.round import LivenessRound

#: Pending output in octets above which no transfer is produced. A connection that gushes has no such limit.
WRITE_AHEAD = 65536
#: Octets read at once, and produced in one turn.
READ_OCTETS = 1 << 18
TURN_OCTETS = 1 << 18
HEARTBEAT = 4.0


class PartySession:
    """Session of a party."""

    def __init__(self, connection: PartyConnection, spec: SessionSpec, channel: int) -> None:
        self.connection = connection
        self.spec = spec
        self.channel = channel
        self.remote_channel: int | None = None
        self.out_id = spec.first_id
        self.delivery_id = spec.first_id
        #: frames that the router may still receive
        self.out_window = 0
        self.in_id = 0
        self.in_window = spec.window
        self.shut = False
        self.usable = True
        #: our end has been sent
        self.leaving = False
        self.links: dict[int, PartyLink] = {}
        self.by_remote: dict[int, PartyLink] = {}
        self.sent: dict[int, OutLink] = {}
        self.received: dict[int, Any] = {}

    def __str__(self) -> str:
        return f"{self.connection.spec.name}/{self.channel}"

    # --- out ----------------------------------------------------------------------------------------------------------

    def write(self, performative: str, /, **fields: Any) -> None:
        """Write any frame but the frequent ones."""
        if self.usable:
            self.connection.put(frames.rare(performative, self.channel, **fields))

    def begin(self, remote: int | None = None) -> None:
        """Write our begin."""
        self.write(
            "begin",
            remote_channel=remote,
            next_outgoing_id=self.out_id,
            incoming_window=self.spec.window,
            outgoing_window=WIDE,
        )

    def take_handle(self) -> int:
        """Return the lowest free handle."""
        return next(number for number in range(len(self.links) + 1) if number not in self.links)

    def take_delivery(self) -> int:
        """Return the next delivery-id."""
        number, self.delivery_id = self.delivery_id, (self.delivery_id + 1) % frames.MODULUS
        return number

    def flow(self, link: tuple[int, int, int, bool, bool] | None = None) -> None:
        """Write a flow, which also opens the window unless it is shut."""
        if not self.usable:
            return
        if not self.shut:
            self.in_window = self.spec.window
        self.connection.put(frames.flow(self.channel, (self.in_id, max(0, self.in_window), self.out_id, WIDE), link))

    def transfer(
        self,
        handle: int,
        payload: bytes | memoryview,
        more: bool,
        first: tuple[int, bytes, bool] | None,
        aborted: bool = False,
    ) -> None:
        """Write a transfer."""
        self.out_id = (self.out_id + 1) % frames.MODULUS
        self.out_window -= 1
        self.connection.put(frames.transfer(self.channel, handle, payload, more, first, aborted))

    def dispose(self, receiver: bool, first: int, last: int, settled: bool, state: bytes | None) -> None:
        """Write a disposition."""
        if self.usable:
            self.connection.put(frames.disposition(self.channel, receiver, first, last, settled, state))

    def open_window(self) -> None:
        """Accept frames again."""
        self.shut = False
        if self.remote_channel is not None:
            self.flow()

    # --- in -----------------------------------------------------------------------------------------------------------

    def on_begin(self, channel: int, fields: list[Any]) -> None:
        """Handle the router's begin."""
        self.remote_channel = channel
        self.in_id = int(fields[1])
        self.out_window = int(fields[2])

    def on_frame(self, code: int, fields: list[Any], payload: memoryview) -> None:
        """Handle a frame for this session."""
        if self.leaving and code != frames.END:
            return
        if code == frames.TRANSFER:
            self.on_transfer(fields, payload)
        elif code == frames.DISPOSITION:
            self.on_disposition(fields)
        elif code == frames.FLOW:
            self.on_flow(fields)
        elif code == frames.ATTACH:
            self.on_attach(fields)
        elif code == frames.DETACH:
            link = self.by_remote.get(int(fields[0]))
            if link is not None:
                link.on_detach(fields)
        elif code == frames.END:
            self.on_end(fields)

    def on_transfer(self, fields: list[Any], payload: memoryview) -> None:
        self.in_id = (self.in_id + 1) % frames.MODULUS
        self.in_window -= 1
        round_ = self.connection.round
        if self.in_window < 0:
            round_.fault(f"{self}: a transfer beyond the window")
        link = self.by_remote.get(int(fields[0]))
        if isinstance(link, InLink):
            link.on_transfer(fields, payload)
        else:
            round_.fault(f"{self}: a transfer for handle {fields[0]}, which is {link}")
        window = self.spec.window
        if not self.shut and (
            (self.spec.reopen == "each" and window < 1000)
            or self.in_window <= (0 if self.spec.reopen == "zero" else window // 2)
        ):
            self.flow()

    def on_flow(self, fields: list[Any]) -> None:
        mine = frames.field(fields, 0)
        self.out_window = int(fields[1]) - frames.serial(
            self.out_id - (int(mine) if mine is not None else self.spec.first_id)
        )
        handle = frames.field(fields, 4)
        if handle is not None:
            link = self.by_remote.get(int(handle))
            if isinstance(link, OutLink | InLink) and not link.leaving:
                link.on_flow(fields)
        elif frames.field(fields, 9):
            self.flow()
        if self.out_window > 0:
            self.connection.wants()

    def on_disposition(self, fields: list[Any]) -> None:
        first = int(fields[1])
        last = frames.field(fields, 2)
        count = frames.serial((int(last) if last is not None else first) - first) + 1
        settled, state = bool(frames.field(fields, 3)), frames.state_name(frames.field(fields, 4))
        for step in range(count):
            number = (first + step) % frames.MODULUS
            if fields[0]:
                link = self.sent.get(number)
                if link is not None:
                    link.on_outcome(number, state, settled)
            elif settled:
                delivery = self.received.get(number)
                if delivery is not None:
                    delivery.link.on_settled(number)

    def on_attach(self, fields: list[Any]) -> None:
        name = str(fields[0])
        for link in self.links.values():
            if link.name == name and isinstance(link, OutLink) != (not fields[2]) and link.remote_handle is None:
                self.by_remote[int(fields[1])] = link
                link.on_attach(fields)
                return
        self.asked(fields)

    def asked(self, fields: list[Any]) -> None:
        """Answer an attach by the router: an auto link, or a routed link of a client."""
        side = terminus(frames.field(fields, 5 if fields[2] else 6))
        role = self.connection.role_for(str(side.get("address")), bool(fields[2]))
        answer = {"source": frames.field(fields, 5), "target": frames.field(fields, 6)}
        if role is None:
            self.connection.flapping(self, fields, answer)
            return
        link = role.answer(self, fields)
        link.name = str(fields[0])
        link.remote_handle = int(fields[1])
        self.by_remote[link.remote_handle] = link
        count = link.count if isinstance(link, OutLink) else None
        self.write(
            "attach", name=link.name, handle=link.handle, role=not fields[2], initial_delivery_count=count, **answer
        )
        if isinstance(link, InLink):
            link.count = link.limit = int(frames.field(fields, 9) or 0)
        link.up = True
        self.connection.round.progress()
        link.opened()

    def on_end(self, fields: list[Any]) -> None:
        connection = self.connection
        if not self.leaving:
            connection.round.unexpected(connection, f"{self} was ended: {frames.field(fields, 0)}")
            self.write("end")
        self.dead(self.leaving)
        connection.forget(self)

    def end(self) -> None:
        """End the session; its links are gone."""
        if self.usable and not self.leaving:
            self.write("end")
            self.leaving = True
            self.dead(True, clean=True)

    def dead(self, by_us: bool, clean: bool = False) -> None:
        """Lose all links. `clean`: messages sent settled before are not lost."""
        self.usable = False
        for link in list(self.links.values()):
            link.clean |= clean
            if not link.leaving:
                link.lost()
            link.end(by_us)


class PartyConnection:
    """Party: a client or a broker."""

    def __init__(self, round_: LivenessRound, spec: ConnectionSpec, roles: dict[SessionSpec, list[Role]]) -> None:
        self.round = round_
        self.spec = spec
        self.roles = roles
        self.sock: socket.socket | None = None
        self.sessions: dict[int, PartySession] = {}
        self.by_channel: dict[int, PartySession] = {}
        self.opened = False
        self.room = 512 - frames.TRANSFER_ROOM
        self.deaf = False
        self.closing = False
        self.out = bytearray()
        self._in = bytearray()
        self._headers = 0
        self._turn = 0
        self.attempt = 0
        #: handles of links without a role: an auto link that is created and deleted
        self.flaps: dict[tuple[int, int], int] = {}

    def __str__(self) -> str:
        return self.spec.name

    # --- life ---------------------------------------------------------------------------------------------------------

    def connect(self, port: int) -> None:
        """Connect to the router, open, begin, attach."""
        sock = socket.socket()
        if self.spec.receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.spec.receive_buffer)
        sock.settimeout(5)
        sock.connect(("127.0.0.1", port))
        self.use(sock)
        self.put(AMQP_HEADER)
        self._open()
        if not self.spec.broker:
            for spec in self.spec.sessions:
                self.begin(spec)

    def use(self, sock: socket.socket) -> None:
        """Use a connected socket."""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.attempt += 1
        self.opened = self.closing = self.deaf = False
        self.out.clear()
        self._in.clear()
        self._headers = 0
        self.sessions, self.by_channel = {}, {}
        self._watch()
        self.round.loop.after(HEARTBEAT, lambda: self._beat(sock))

    def _beat(self, sock: socket.socket) -> None:
        if self.sock is sock:
            if not self.out:
                self.put(frames.frame(b"", 0))
            self.round.loop.after(HEARTBEAT, lambda: self._beat(sock))

    def _open(self) -> None:
        name = f"{self.spec.name}-{self.round.scenario.seed}"
        # Link routes identify containers by name. The name of a client does not matter.
        self.put(frames.rare("open", container_id=name, max_frame_size=self.spec.frame, channel_max=1000))

    def begin(self, spec: SessionSpec) -> None:
        """Begin a session and attach its links."""
        channel = next(number for number in range(len(self.sessions) + 1) if number not in self.sessions)
        session = self.sessions[channel] = PartySession(self, spec, channel)
        session.begin()
        for role in self.roles[spec]:
            role.attach(session)

    def current(self, spec: SessionSpec) -> PartySession | None:
        """Return the present session of a drawn one. None: there is none."""
        return next((one for one in self.sessions.values() if one.spec is spec and one.usable), None)

    def drop(self, reset: bool = False) -> None:
        """Close the socket without a close frame."""
        if self.sock is None:
            return
        if reset:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._gone(True)

    def close(self) -> None:
        """Close in order, after earlier output."""
        if self.sock is not None and not self.closing:
            self.put(frames.rare("close"))
            self.closing = True
            for session in list(self.sessions.values()):
                session.dead(True, clean=True)

    def _gone(self, by_us: bool) -> None:
        sock, self.sock = self.sock, None
        if sock is None:
            return
        self.round.loop.watch(sock, self, 0)
        sock.close()
        self.opened = False
        self.out.clear()
        for session in list(self.sessions.values()):
            if session.usable:
                session.dead(True)
        self.sessions, self.by_channel, self.flaps = {}, {}, {}
        if not by_us and not self.closing:
            self.round.unexpected(self, f"{self} was closed by the router")
        self.round.connection_gone(self)

    def forget(self, session: PartySession) -> None:
        """Remove a session that has ended."""
        self.sessions.pop(session.channel, None)
        if session.remote_channel is not None:
            self.by_channel.pop(session.remote_channel, None)

    def role_for(self, address: str, sends: bool) -> Role | None:
        """Return the role that the router attaches a link for. None: no such role."""
        for roles in self.roles.values():
            for role in roles:
                if role.address.text == address and isinstance(role, ProducerRole) == sends:
                    return role
        return None

    def flapping(self, session: PartySession, fields: list[Any], answer: dict[str, Any]) -> None:
        """Answer a link without a role, then leave it alone until the router detaches it."""
        handle = 1000 + len(self.flaps)
        self.flaps[session.channel, int(fields[1])] = handle
        count = 0 if fields[2] else None
        session.write(
            "attach", name=str(fields[0]), handle=handle, role=not fields[2], initial_delivery_count=count, **answer
        )
        self.round.flapped(self)

    # --- out ----------------------------------------------------------------------------------------------------------

    def put(self, octets: bytes) -> None:
        """Append octets to the output."""
        if self.sock is None or self.closing:
            return
        self.out += octets
        self.wants()

    def wants(self) -> None:
        """Schedule a call of `pump`: there may be output."""
        self.round.loop.soon(self.pump)

    def pump(self) -> None:
        """Produce transfers in turns, and write."""
        if self.sock is None:
            return
        most = 1 << 40 if self.spec.gush else WRITE_AHEAD
        made = 0
        while len(self.out) < most and (made < TURN_OCTETS or self.spec.gush) and self.opened and not self.closing:
            link = self._next()
            if link is None:
                break
            before = len(self.out)
            link.write()
            made += len(self.out) - before
        self._send()
        if made >= TURN_OCTETS:
            self.wants()

    def _next(self) -> OutLink | None:
        ready = [
            link
            for session in self.sessions.values()
            if session.out_window > 0 and session.usable
            for link in session.links.values()
            if isinstance(link, OutLink) and link.ready
        ]
        if not ready:
            return None
        if self.spec.order == "serial":
            begun = next((link for link in ready if link.current is not None), None)
            if begun is not None:
                return begun
        if self.spec.order == "random":
            return self.round.order.choice(ready)
        self._turn += 1
        return ready[self._turn % len(ready)]

    def _send(self) -> None:
        sock = self.sock
        if sock is None:
            return
        while self.out:
            try:
                sent = sock.send(memoryview(self.out)[: 1 << 20])
            except BlockingIOError:
                break
            except OSError:
                self._gone(False)
                return
            del self.out[:sent]
        self._watch()

    def _watch(self) -> None:
        if self.sock is not None:
            events = 0 if self.deaf else selectors.EVENT_READ
            self.round.loop.watch(self.sock, self, events | (selectors.EVENT_WRITE if self.out else 0))

    def writable(self) -> None:
        """Write, now that the socket has room."""
        self.pump()

    # --- in -----------------------------------------------------------------------------------------------------------

    def set_deaf(self, deaf: bool) -> None:
        """Stop or resume reading."""
        self.deaf = deaf
        self._watch()

    def readable(self) -> None:
        """Read available input."""
        if self.sock is None or self.deaf:
            return
        try:
            octets = self.sock.recv(READ_OCTETS)
        except BlockingIOError:
            return
        except OSError:
            octets = b""
        if not octets:
            self._gone(False)
            return
        self.round.loop.last_input = self.round.loop.now
        self._in += octets
        self._frames()

    def _frames(self) -> None:
        at = 0
        octets = bytes(self._in)
        view = memoryview(octets)
        while len(octets) - at >= 8 and self.sock is not None and not self.deaf:
            if octets[at : at + 4] == b"AMQP":
                self._header(octets[at : at + 8])
                at += 8
                continue
            size = int.from_bytes(octets[at : at + 4], "big")
            if len(octets) - at < size:
                break
            if size > self.spec.frame and self.opened:
                self.round.fault(f"{self}: a frame of {size} octets; {self.spec.frame} are the most")
            channel, code, fields, end = frames.read(octets[at : at + size])
            self._frame(channel, code, fields, view[at + end : at + size])
            at += size
        if self.sock is not None:
            del self._in[:at]

    def _header(self, octets: bytes) -> None:
        if self.spec.role != "host":
            return
        if octets == SASL_HEADER:
            self.put(SASL_HEADER)
            self.put(frames.rare("sasl-mechanisms", 0, 1, sasl_server_mechanisms=Array([Symbol("ANONYMOUS")])))
        else:
            self.put(AMQP_HEADER)

    def _frame(self, channel: int, code: int, fields: list[Any], payload: memoryview) -> None:
        if code == frames.INIT:
            self.put(frames.rare("sasl-outcome", 0, 1, code=0))
        elif code == frames.OPEN:
            if self.spec.role == "host":
                self._open()
            # The router's maximum, but no more than this party would produce by itself.
            self.room = min(int(frames.field(fields, 2) or 65536), max(512, self.spec.frame)) - frames.TRANSFER_ROOM
            self.opened = True
            self.round.progress()
        elif code == frames.BEGIN:
            self._begin(channel, fields)
        elif code == frames.CLOSE:
            if not self.closing:
                self.round.unexpected(self, f"{self} was closed: {frames.field(fields, 0)}")
                self.put(frames.rare("close"))
                self.closing = True
            self._send()
            self._gone(True)
        elif frames.ATTACH <= code < frames.CLOSE and not self.closing:
            if code == frames.DETACH and (channel_handle := self._flap(channel, fields)) is not None:
                session, handle = channel_handle
                session.write("detach", handle=handle, closed=True)
                return
            session_ = self.by_channel.get(channel)
            if session_ is not None:
                session_.on_frame(code, fields, payload)

    def _flap(self, channel: int, fields: list[Any]) -> tuple[PartySession, int] | None:
        session = self.by_channel.get(channel)
        if session is None:
            return None
        handle = self.flaps.pop((session.channel, int(fields[0])), None)
        return None if handle is None else (session, handle)

    def _begin(self, channel: int, fields: list[Any]) -> None:
        remote = fields[0]
        if remote is not None:
            session = self.sessions.get(int(remote))
            if session is None:
                return
        else:
            number = next(n for n in range(len(self.sessions) + 1) if n not in self.sessions)
            spec = self.spec.sessions[0]
            session = self.sessions[number] = PartySession(self, spec, number)
            session.begin(channel)
        session.on_begin(channel, fields)
        self.by_channel[channel] = session
        self.wants()
