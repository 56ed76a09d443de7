"""Worker's end of the control channels: sends events, receives orders, deltas and connections."""

import os
import select
import socket
from collections import deque
from collections.abc import Callable
from typing import Protocol

import zmq

from sluice.router.control.codec import (
    ControlError,
    decode_delta,
    decode_handover,
    decode_orders,
    encode,
    encode_page_request,
    handover_number,
    join_octets,
)
from sluice.router.control.framing import FrameDecoder, pack
from sluice.router.control.handover import Handover, PageRequest
from sluice.router.control.messages import MESSAGES_A_PART, Closed, Event, Log, Order
from sluice.router.control.names import DELTA_TOPIC, deltas_path, identity
from sluice.router.control.ops import Op
from sluice.router.control.setup import WorkerSetup

HANDOVER_OCTETS = 65536
MESSAGE_OCTETS = 65536  # octets read at once from the control socket
HANDOVERS_PER_WAKE = 16  # bound for connections taken before the loop handles sockets again
# Bounds of one wake: messages of the supervisor, and operations of deltas. A delta is never divided: the supervisor
# keeps deltas small (docs/internals/control-protocol.md, "Turns").
MESSAGES_A_WAKE = 64
OPS_PER_WAKE = 512
DELAYED_EVENT_MS = 2  # time that an event waits for others if the supervisor need not be woken for it alone


class Channels(Protocol):
    """Channels between a Control and the supervisor. Receiving returns None if nothing is available."""

    def announcers(self) -> list[int]:
        """Return the descriptors that announce messages."""

    def delta_announcer(self) -> int:
        """Return the descriptor that announces deltas. After an event, deltas must be received until none is left."""

    def connections(self) -> int:
        """Return the descriptor that announces connections."""

    def receive_delta(self) -> bytes | None: ...

    def receive(self) -> list[bytes] | None:
        """Receive the parts of one message. After None, the descriptor announces the next message."""

    def receive_connection(self) -> tuple[bytes, list[int]] | None:
        """Receive octets and the descriptors sent with them."""

    def send(self, parts: list[bytes]) -> None: ...

    def send_back(self, data: bytes, descriptor: int) -> None:
        """Send a socket to the supervisor. Raises OSError."""

    def close(self) -> None: ...


class SocketChannels:
    """Channels over sockets. Owner: a Control."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._context = zmq.Context()
        self._deltas = self._bind(setup)
        self._messages = socket.socket(fileno=setup.control_fd)
        self._messages.setblocking(False)
        self._frames = FrameDecoder()
        self._drained = False  # the last read has emptied the control socket
        self._unsent = bytearray()  # octets for which the control socket has no room
        self._room = select.epoll()  # announces room in the control socket while octets wait
        self._room.register(self._messages, 0)
        self._deltas.subscribe(DELTA_TOPIC)
        self._deltas.subscribe(identity(setup.worker, setup.generation))
        self._handover = socket.socket(fileno=setup.handover_fd)
        self._handover.setblocking(False)

    def _bind(self, setup: WorkerSetup) -> "zmq.Socket[bytes]":
        """Bind the socket for deltas. The supervisor connects, then removes the socket's name."""
        own = identity(setup.worker, setup.generation)
        sock = self._context.socket(zmq.SUB)
        sock.setsockopt(zmq.LINGER, 0)
        sock.setsockopt(zmq.RCVHWM, 0)
        sock.setsockopt(zmq.SNDHWM, 0)
        sock.setsockopt(zmq.IDENTITY, own)
        sock.curve_serverkey = setup.server_public
        sock.curve_publickey = setup.client_public
        sock.curve_secretkey = setup.client_secret
        sock.bind(f"ipc://{deltas_path(setup.directory, own)}")
        return sock

    def announcers(self) -> list[int]:
        return [self._messages.fileno(), self._room.fileno()]

    def delta_announcer(self) -> int:
        """ZeroMQ's descriptor announces changes only: after each event, deltas must be received until none is left."""
        return int(self._deltas.getsockopt(zmq.FD))

    def connections(self) -> int:
        return self._handover.fileno()

    def receive_delta(self) -> bytes | None:
        try:
            return self._deltas.recv(zmq.NOBLOCK)
        except zmq.Again:
            return None

    def receive(self) -> list[bytes] | None:
        if self._unsent:
            self._write(b"")
        while (parts := self._frames.take()) is None:
            if self._drained:  # a read would find nothing, and epoll announces octets that arrive from now on
                self._drained = False
                return None
            try:
                octets = self._messages.recv(MESSAGE_OCTETS)
            except BlockingIOError:
                return None
            if not octets:
                os._exit(1)  # the supervisor has exited
            self._drained = len(octets) < MESSAGE_OCTETS
            self._frames.feed(octets)
        return parts

    def receive_connection(self) -> tuple[bytes, list[int]] | None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._handover, HANDOVER_OCTETS, 1)
        except BlockingIOError:
            return None
        return data, descriptors

    def send(self, parts: list[bytes]) -> None:
        self._write(pack(parts))

    def _write(self, octets: bytes) -> None:
        """Append octets to those that wait, and send as many as the socket has room for."""
        waited = bool(self._unsent)
        self._unsent += octets
        try:
            del self._unsent[: self._messages.send(self._unsent)]
        except BlockingIOError:
            pass
        except ConnectionError:
            os._exit(1)  # the supervisor has exited
        if bool(self._unsent) is not waited:
            self._room.modify(self._messages, 0 if waited else select.EPOLLOUT)

    def send_back(self, data: bytes, descriptor: int) -> None:
        socket.send_fds(self._handover, [data], [descriptor])

    def close(self) -> None:
        self._deltas.close()
        self._room.close()
        self._messages.close()
        self._context.term()
        self._handover.close()


class WorkerControl:
    """Worker's end of the control channels. Owner: the worker.

    The loop calls the callbacks of `descriptors` when something arrived, and `send` at the end of a wake with events
    (`dirty`). The amount that one wake takes is bounded. If a wake took something (`busy`), the loop calls `go_on` in
    the next one, and does not sleep before it while `more` may be available.
    """

    def __init__(
        self,
        channels: Channels,
        on_message: Callable[[Order, bytes | None], None],
        on_delta: Callable[[int, list[Op]], None],
        on_connection: Callable[[Handover, int], None],
        later: Callable[[int, Callable[[], None]], None],
        has_time: Callable[[], bool],
    ) -> None:
        """Create it. later(ms, action): call the action after that time. has_time(): true if this wake may take more
        than one item."""
        self.channels = channels
        self.later = later
        self.has_time = has_time
        self.on_message = on_message
        self.on_delta = on_delta
        self.on_connection = on_connection
        self.pending: list[tuple[Event, bytes | None]] = []
        self.dirty = False
        self.timed = False  # a timer will send `pending`
        self.busy = False
        self.more = False
        self.more_deltas = False
        self.more_messages = False
        self.taken: deque[tuple[Order, bytes | None]] = deque()  # messages of the last part read, not handled yet
        self.handovers = 1  # most connections to take in the next wake
        self.messages_left = MESSAGES_A_WAKE  # in this wake
        self.ops_left = OPS_PER_WAKE

    def descriptors(self) -> list[tuple[int, Callable[[], None]]]:
        """Return the descriptors to watch, each with its callback."""
        messages = [(descriptor, self.poll_messages) for descriptor in self.channels.announcers()]
        deltas = (self.channels.delta_announcer(), self.poll_deltas)
        return [deltas, *messages, (self.channels.connections(), self.adopt)]

    def send_event(self, message: Event, raw: bytes | None = None) -> None:
        """Send an event to the supervisor at the end of this wake; `raw` goes with a `local` message."""
        self.pending.append((message, raw))
        self.dirty = True

    def send_event_later(self, message: Event) -> None:
        """Send an event to the supervisor, in order, with the next event that wakes it or after DELAYED_EVENT_MS."""
        self.pending.append((message, None))
        if not self.timed:
            self.timed = True
            self.later(DELAYED_EVENT_MS, self._send_delayed_events)

    def _send_delayed_events(self) -> None:
        self.timed = False
        if self.pending:
            self.dirty = True

    def request_page(self, connection: int, request: bytes, *, certified: bool) -> int:
        """Let the supervisor answer an HTTP client; return the descriptor of its answer. certified: the client has
        presented a certificate. Raises OSError."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            ours.sendall(request)  # the empty socket has room for it
            self.channels.send_back(encode_page_request(PageRequest(connection, certified)), theirs.fileno())
            return ours.detach()

    def send(self) -> None:
        """Send the pending events in parts. The raw octets of a part follow its events."""
        self.dirty = False
        pending, self.pending = self.pending, []
        for start in range(0, len(pending), MESSAGES_A_PART):
            part = pending[start : start + MESSAGES_A_PART]
            octets = [raw for _, raw in part if raw is not None]
            self.channels.send([encode([message for message, _ in part]), *octets])

    def poll(self) -> None:
        """Take pending deltas and messages, within the bounds of a wake."""
        self.poll_deltas()
        self.poll_messages()

    def poll_deltas(self) -> None:
        """Take pending deltas."""
        self.busy = True
        self.more_deltas = not self._take_deltas()
        self.more = self.more_deltas or self.more_messages

    def poll_messages(self) -> None:
        """Take pending messages."""
        self.busy = True
        self.more_messages = not self._take_messages()
        self.more = self.more_deltas or self.more_messages

    def go_on(self) -> None:
        """Continue in a new wake, within its bounds."""
        self.busy = False
        self.messages_left = MESSAGES_A_WAKE
        self.ops_left = OPS_PER_WAKE
        if self.more_deltas:
            self.poll_deltas()
        if self.more_messages:
            self.poll_messages()

    def _take_deltas(self) -> bool:
        """Return False if there may be more."""
        while self.ops_left > 0:
            data = self.channels.receive_delta()
            if data is None:
                return True
            if data.startswith(DELTA_TOPIC):
                delta = decode_delta(data)
                self.ops_left -= len(delta.ops)
                self.on_delta(delta.epoch, delta.ops)
            if not self.has_time():
                break
        return False

    def _take_messages(self) -> bool:
        """Return False if there may be more."""
        while self.messages_left > 0:
            if not self.taken:
                parts = self.channels.receive()
                if parts is None:
                    return True
                self.taken.extend(join_octets(decode_orders(parts[0]), parts[1:]))
            self.messages_left -= 1
            self.on_message(*self.taken.popleft())
            if not self.has_time():
                break
        return False

    def adopt(self) -> None:
        """Take connections that the supervisor hands over.

        A look for another one costs a system call, and most connections come alone. So a wake takes one, and twice as
        many as the wake before if that has left some; epoll announces those that are left.
        """
        most = self.handovers
        self.handovers = min(2 * most, HANDOVERS_PER_WAKE)
        for _ in range(most):
            received = self.channels.receive_connection()
            if received is None:
                self.handovers = 1
                return
            data, descriptors = received
            if not data:
                os._exit(1)  # the supervisor has exited
            try:
                message = decode_handover(data)
            except ControlError as error:
                self._refuse(data, descriptors, str(error))
                continue
            self.on_connection(message, descriptors[0] if descriptors else -1)
            if not self.has_time():
                return

    def _refuse(self, data: bytes, descriptors: list[int], reason: str) -> None:
        """Close and log a connection whose hand-over is invalid."""
        for descriptor in descriptors:
            os.close(descriptor)
        number = handover_number(data)
        if number is None:
            text = f"A connection was dropped, because its hand-over to a worker is invalid: {reason}"
            self.send_event(Log("SERVER", "error", text))
        else:
            self.send_event(Closed(conn=number, error=("amqp:internal-error", reason)))

    def close(self) -> None:
        self.channels.close()
