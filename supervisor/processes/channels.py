"""The channels to the workers: a ZeroMQ socket for the deltas of all, and a socket pair for the messages of each, in
both directions (docs/decisions/0040-control-pairs.md).

ZeroMQ signals through one descriptor per socket, once, that something may have happened; the program must ask what, and
every call on the socket may clear the next signal. So deltas are sent only in a wake, and a wake that has sent some
checks again before it ends.
"""

import asyncio
import contextlib
import os
import secrets
import select
import socket
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import zmq
from zmq.utils import z85

from router.control.codec import ControlError, decode_events, encode, encode_delta, join_octets
from router.control.framing import FrameError, Frames, pack
from router.control.messages import Event, Order
from router.control.names import deltas_path
from router.control.ops import Op

ZAP_ENDPOINT: Final = "inproc://zeromq.zap.01"  # RFC 27: where ZeroMQ asks whether a peer may connect
ZAP_VERSION: Final = b"1.0"
ZAP_DOMAIN: Final = b"sluice"

# Messages received in one wake, in whole parts; then deltas and answers are sent, and other events handled. A worker
# applies a delta at once, so this also bounds how long that takes.
MESSAGES_A_WAKE: Final = 256

# Plain numbers: each use of one of ZeroMQ's flags makes an object.
_NO_WAIT: Final = int(zmq.NOBLOCK)
_INPUT: Final = int(zmq.POLLIN)

# Between attempts to connect to a worker that does not listen yet, or for lack of a descriptor.
FIRST_RETRY_MS: Final = 4
MOST_RETRY_MS: Final = 200

READ_OCTETS: Final = 1 << 18  # of one worker in one wake; nothing while messages of it wait


class Keys(NamedTuple):
    """CURVE keys (Z85) of the supervisor and of all workers together; they never leave these processes' memory."""

    server_public: bytes
    server_secret: bytes
    client_public: bytes
    client_secret: bytes


def make_keys() -> Keys:
    """New key pairs. Raises RuntimeError where ZeroMQ has no CURVE."""
    if not zmq.has("curve"):
        raise RuntimeError("ZeroMQ was built without CURVE encryption, which the router needs")
    return Keys(*zmq.curve_keypair(), *zmq.curve_keypair())


class _Line:
    """The control channel of one worker. Owner: the channels."""

    __slots__ = ("_opened", "frames", "identity", "number", "unsent")

    def __init__(self, identity: bytes, opened: socket.socket) -> None:
        self.identity = identity
        self.number = opened.fileno()
        self.frames = Frames()
        self.unsent = bytearray()  # what the worker has had no room for
        self._opened = opened

    def read(self, room: memoryview) -> bool:
        """Take some octets, by way of `room`. False: the worker has ended."""
        try:
            count = self._opened.recv_into(room)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        self.frames.feed(room[:count])
        return count > 0

    def write(self, octets: bytes) -> None:
        """Send these octets behind those that wait, as far as there is room."""
        self.unsent += octets
        try:
            del self.unsent[: self._opened.send(self.unsent)]
        except BlockingIOError:
            pass
        except ConnectionError:  # the worker has ended: its process descriptor says so
            self.unsent.clear()

    def close(self) -> None:
        self._opened.close()


class Channels:
    """The supervisor's sockets. Owner: supervisor.

    receive(identity, messages): what a worker sent, each message with the octets that belong to it.
    subscribed(topic): a worker asked for a topic. refuse(identity, text): it sent what cannot be read. flush(): send
    what came of it, called in each wake.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        directory: str,
        keys: Keys,
        *,
        receive: Callable[[bytes, list[tuple[Event, bytes | None]]], None],
        subscribed: Callable[[bytes], None],
        refuse: Callable[[bytes, str], None],
        flush: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._directory = directory
        self._client_public = z85.decode(keys.client_public)
        self._receive = receive
        self._subscribed = subscribed
        self._refuse = refuse
        self._flush = flush
        self._due: asyncio.Handle | None = None  # the next wake, where it is not left to the descriptors
        self._lines: dict[bytes, _Line] = {}  # by identity
        self._open: dict[int, _Line] = {}  # those whose worker has not ended, by descriptor
        self._waiting: OrderedDict[_Line, None] = OrderedDict()  # those that may have a frame; whose turn it is first
        self._room = memoryview(bytearray(READ_OCTETS))  # to read into: new memory of that size is mapped each time
        self._ready = select.epoll()  # of all lines
        self._context = zmq.Context()
        self._zap = self._context.socket(zmq.REP)
        self._zap.bind(ZAP_ENDPOINT)
        self._pub = self._open_deltas(keys)
        self._asked = True  # there may be subscriptions
        loop.add_reader(_number(self._zap, zmq.FD), self._answer_zap)
        loop.add_reader(_number(self._pub, zmq.FD), self._ask)
        loop.add_reader(self._ready.fileno(), self.wake)

    def _open_deltas(self, keys: Keys) -> "zmq.Socket[bytes]":
        """The socket connects to the workers: libzmq tries again when there is no descriptor for that, whereas for one
        that it would have to accept it ends the process (docs/decisions/0056-workers-bind.md)."""
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
        """A worker will have the other end of this socket, and listen at the path of its identity."""
        opened.setblocking(False)
        line = _Line(identity, opened)
        self._pub.connect(self._endpoint(identity))
        self._lines[identity] = self._open[line.number] = line
        self._ready.register(line.number, select.EPOLLIN)

    def disconnect(self, identity: bytes) -> None:
        """The worker is gone, or never was."""
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
        """Take the name of a worker's socket away: nobody can connect to it any more."""
        with contextlib.suppress(OSError):  # it has none, or the directory is another user's that the router has become
            os.unlink(deltas_path(self._directory, identity))

    def publish(self, epoch: int, ops: list[Op]) -> None:
        """Send a delta to all workers. From `flush` only."""
        self._asked = True
        self._pub.send(encode_delta(epoch, ops), _NO_WAIT)

    def send(self, identity: bytes, messages: Sequence[Order], octets: Sequence[bytes] = ()) -> None:
        """Send messages to one worker, with the octets of those that have any, in order."""
        line = self._lines.get(identity)
        if line is not None:
            self._write(line, pack([encode(messages), *octets]))

    def _write(self, line: _Line, octets: bytes) -> None:
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
            self._flush()
        finally:  # also after an error, or a signal of the sockets would be missed
            self._look_again()

    def _look_again(self) -> None:
        """Schedule a wake that no descriptor triggers: for input that came meanwhile."""
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
        """Handle messages of the workers in turn."""
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
                self._refuse(line.identity, str(error))
                continue
            taken += len(messages)
            self._receive(line.identity, messages)

    def _read_subscriptions(self) -> None:
        while True:
            try:
                message = self._pub.recv(_NO_WAIT)
            except zmq.Again:
                return
            if message[:1] == b"\x01":
                if message[1:] in self._lines:
                    self._hide(message[1:])
                self._subscribed(message[1:])

    def _answer_zap(self) -> None:
        """Answer ZeroMQ whether a peer may connect: it must have the workers' key."""
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
    """An option of a socket that is a number."""
    return int(opened.get(option))
