"""Channels to the workers: one ZeroMQ socket for the deltas to all, and a socket pair with each for messages in both
directions (docs/decisions/0040-control-pairs.md).

ZeroMQ signals through one descriptor per socket, once, that something may have happened. The program must query the
events, and every call on the socket may clear the next signal. Deltas are therefore sent only in a wake, and a wake
that has sent some checks again before it ends.
"""

import asyncio
import contextlib
import os
import secrets
import select
import socket
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import zmq
from zmq.utils import z85

from sluice.router.control.codec import ControlError, decode_events, encode, encode_delta, join_octets
from sluice.router.control.framing import FrameDecoder, FrameError, pack
from sluice.router.control.messages import Event, Order
from sluice.router.control.names import deltas_path
from sluice.router.control.ops import Op

ZAP_ENDPOINT: Final = "inproc://zeromq.zap.01"  # RFC 27: ZeroMQ asks at this address whether a peer may connect
ZAP_VERSION: Final = b"1.0"
ZAP_DOMAIN: Final = b"sluice"

# Messages received in one wake, rounded up to whole parts, before deltas and answers are sent and other events are
# handled. A worker applies a delta at once, so this also bounds the time until it does.
MESSAGES_A_WAKE: Final = 256

# Plain integers, because each use of one of ZeroMQ's flags creates an object.
_NO_WAIT: Final = int(zmq.NOBLOCK)
_INPUT: Final = int(zmq.POLLIN)

# Interval between attempts to connect to a worker that does not listen yet, or when descriptors are exhausted.
FIRST_RETRY_MS: Final = 4
MOST_RETRY_MS: Final = 200

READ_OCTETS: Final = 1 << 18  # limit for one worker in one wake; nothing is read while messages of that worker wait


class CurveKeys(NamedTuple):
    """CURVE keys (Z85) of the supervisor, and of all workers together. They never leave the memory of
    these processes.
    """

    server_public: bytes
    server_secret: bytes
    client_public: bytes
    client_secret: bytes


def make_keys() -> CurveKeys:
    """Return new key pairs. Raises RuntimeError if ZeroMQ has no CURVE."""
    if not zmq.has("curve"):
        raise RuntimeError("ZeroMQ was built without CURVE encryption, which the router needs")
    return CurveKeys(*zmq.curve_keypair(), *zmq.curve_keypair())


class _WorkerChannel:
    """Control channel of one worker. Owner: the channels."""

    __slots__ = ("_opened", "frames", "identity", "number", "unsent")

    def __init__(self, identity: bytes, opened: socket.socket) -> None:
        self.identity = identity
        self.number = opened.fileno()
        self.frames = FrameDecoder()
        self.unsent = bytearray()  # octets for which the worker's socket had no room
        self._opened = opened

    def read(self, room: memoryview) -> bool:
        """Read octets into `room` and add them to the frames. Returns False if the worker has ended."""
        try:
            count = self._opened.recv_into(room)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        self.frames.feed(room[:count])
        return count > 0

    def write(self, octets: bytes) -> None:
        """Append octets to those unsent, and send as much as the socket takes."""
        self.unsent += octets
        try:
            del self.unsent[: self._opened.send(self.unsent)]
        except BlockingIOError:
            pass
        except ConnectionError:  # the worker has ended, as its pidfd will report
            self.unsent.clear()

    def close(self) -> None:
        self._opened.close()


class MessageHandler(Protocol):
    """Handler of all that arrives on the channels, in the wakes of the supervisor."""

    def receive(self, identity: bytes, messages: list[tuple[Event, bytes | None]]) -> None:
        """Handle messages of a worker, each with its octets."""

    def subscribed(self, topic: bytes) -> None:
        """Note that a worker has subscribed to a topic."""

    def refuse(self, identity: bytes, text: str) -> None:
        """End a worker that sent invalid data."""

    def flush(self) -> None:
        """Send the results of a wake."""


class WorkerChannels:
    """Sockets of the supervisor. Owner: supervisor."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, directory: str, keys: CurveKeys, handler: MessageHandler
    ) -> None:
        self._loop = loop
        self._directory = directory
        self._client_public = z85.decode(keys.client_public)
        self._handler = handler
        self._due: asyncio.Handle | None = None  # the next wake, if scheduled instead of left to the descriptors
        self._lines: dict[bytes, _WorkerChannel] = {}  # by identity
        self._open: dict[int, _WorkerChannel] = {}  # lines of running workers, by descriptor
        # lines that may have a complete frame, in rotation order
        self._waiting: OrderedDict[_WorkerChannel, None] = OrderedDict()
        # reusable read buffer, because a new one of that size would be mapped each time
        self._room = memoryview(bytearray(READ_OCTETS))
        self._ready = select.epoll()  # of all lines
        self._context = zmq.Context()
        self._zap = self._context.socket(zmq.REP)
        self._zap.bind(ZAP_ENDPOINT)
        self._pub = self._open_deltas(keys)
        self._asked = True  # whether subscriptions may have arrived
        loop.add_reader(_number(self._zap, zmq.FD), self._answer_zap)
        loop.add_reader(_number(self._pub, zmq.FD), self._ask)
        loop.add_reader(self._ready.fileno(), self.wake)

    def _open_deltas(self, keys: CurveKeys) -> "zmq.Socket[bytes]":
        """Return the socket for deltas, which connects to the workers.

        If descriptors are exhausted, libzmq retries a connect, but aborts the process when it cannot accept
        (docs/decisions/0056-workers-bind.md).
        """
        opened = self._context.socket(zmq.XPUB)
        opened.set(zmq.LINGER, 0)
        opened.set(zmq.RECONNECT_IVL, FIRST_RETRY_MS)
        opened.set(zmq.RECONNECT_IVL_MAX, MOST_RETRY_MS)
        # No limit: a worker that does not read is killed for its missing acknowledgements.
        opened.set(zmq.SNDHWM, 0)
        opened.set(zmq.RCVHWM, 0)
        opened.set(zmq.CURVE_SERVER, 1)
        opened.set(zmq.CURVE_SECRETKEY, keys.server_secret)
        opened.set(zmq.CURVE_PUBLICKEY, keys.server_public)
        opened.set(zmq.ZAP_DOMAIN, ZAP_DOMAIN)
        return opened

    # Workers

    def connect(self, identity: bytes, opened: socket.socket) -> None:
        """Register a worker that has the other end of this socket, and listens at the path of its identity."""
        opened.setblocking(False)
        line = _WorkerChannel(identity, opened)
        self._pub.connect(self._endpoint(identity))
        self._lines[identity] = self._open[line.number] = line
        self._ready.register(line.number, select.EPOLLIN)

    def disconnect(self, identity: bytes) -> None:
        """Close the channel of a worker that has ended or never started."""
        line = self._lines.pop(identity, None)
        if line is not None:
            self._open.pop(line.number, None)
            self._waiting.pop(line, None)
            line.close()
            self._pub.disconnect(self._endpoint(identity))
            self._hide(identity)

    def _endpoint(self, identity: bytes) -> str:
        return f"ipc://{deltas_path(self._directory, identity)}"

    def _hide(self, identity: bytes) -> None:
        """Unlink a worker's socket, so that nobody else can connect to it."""
        with contextlib.suppress(OSError):  # no such file, or the directory belongs to the former user of the router
            os.unlink(deltas_path(self._directory, identity))

    def publish(self, epoch: int, ops: list[Op]) -> None:
        """Send a delta to all workers. May only be called from `flush`."""
        self._asked = True
        self._pub.send(encode_delta(epoch, ops), _NO_WAIT)

    def send(self, identity: bytes, messages: Sequence[Order], octets: Sequence[bytes] = ()) -> None:
        """Send messages to one worker, followed by the octets of those messages that have any, in order."""
        line = self._lines.get(identity)
        if line is not None:
            self._write(line, pack([encode(messages), *octets]))

    def _write(self, line: _WorkerChannel, octets: bytes) -> None:
        if line.number not in self._open:
            return
        waited = bool(line.unsent)
        line.write(octets)
        if bool(line.unsent) is not waited:
            self._ready.modify(line.number, select.EPOLLIN | (0 if waited else select.EPOLLOUT))

    # Wakes

    def _ask(self) -> None:
        self._asked = True
        self.wake()

    def wake(self) -> None:
        """Receive and handle messages, and send the results. Call it when there may be something to send."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        try:
            if self._asked:
                self._read_subscriptions()
            self._read_lines()
            self._take_messages()
            self._handler.flush()
        finally:  # also after an error, or a signal of the sockets would be missed
            self._schedule_wake()

    def _schedule_wake(self) -> None:
        """Schedule a wake for input that no descriptor signals."""
        self._asked = self._asked and bool(_number(self._pub, zmq.EVENTS) & _INPUT)
        if self._asked or self._waiting:
            self._due = self._loop.call_soon(self.wake)

    def _read_lines(self) -> None:
        for number, events in self._ready.poll(0):
            line = self._open[number]
            if events & select.EPOLLOUT:
                self._write(line, b"")
            if events & ~select.EPOLLOUT and line not in self._waiting:
                if not line.read(self._room):
                    self._ready.unregister(number)
                    del self._open[number]
                self._waiting[line] = None

    def _take_messages(self) -> None:
        """Handle messages of the workers in rotation, up to the limit of a wake."""
        taken = 0
        while self._waiting and taken < MESSAGES_A_WAKE:
            line = next(iter(self._waiting))
            try:
                parts = line.frames.take()
                if parts is None:
                    del self._waiting[line]
                    continue
                self._waiting.move_to_end(line)
                messages = join_octets(decode_events(parts[0]), parts[1:])
            except (ControlError, FrameError, IndexError) as error:
                self._waiting.pop(line, None)
                self._handler.refuse(line.identity, str(error))
                continue
            taken += len(messages)
            self._handler.receive(line.identity, messages)

    def _read_subscriptions(self) -> None:
        while True:
            try:
                message = self._pub.recv(_NO_WAIT)
            except zmq.Again:
                return
            if message[:1] == b"\x01":
                if message[1:] in self._lines:
                    self._hide(message[1:])
                self._handler.subscribed(message[1:])

    def _answer_zap(self) -> None:
        """Answer ZeroMQ's requests whether a peer may connect. Only peers with the workers' key may."""
        while True:
            try:
                parts = self._zap.recv_multipart(_NO_WAIT)
            except zmq.Again:
                return
            known = len(parts) > 6 and parts[5] == b"CURVE" and secrets.compare_digest(parts[6], self._client_public)
            status, text, user = (b"200", b"OK", b"worker") if known else (b"400", b"not a worker of this router", b"")
            request = parts[1] if len(parts) > 1 else b""
            self._zap.send_multipart([ZAP_VERSION, request, status, text, user, b""], _NO_WAIT)

    def close(self) -> None:
        """Close the sockets and drop unsent messages."""
        if self._due is not None:
            self._due.cancel()
        self._loop.remove_reader(self._ready.fileno())
        for line in self._lines.values():
            line.close()
        self._ready.close()
        for opened in (self._zap, self._pub):
            self._loop.remove_reader(_number(opened, zmq.FD))
            opened.close(0)
        self._context.term()


def _number(opened: "zmq.Socket[bytes]", option: int) -> int:
    """Return the value of an integer option of a socket."""
    return int(opened.get(option))
