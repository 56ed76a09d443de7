"""The channels to the workers: one socket for deltas, another for messages in both directions.

ZeroMQ signals through one descriptor per socket, once, that something may have happened; the program must ask what, and
every call on the socket may clear the next signal. So messages are sent only in a wake, and each wake checks again
before it ends.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import zmq
from zmq.utils import z85

from router.control.codec import ControlError, decode_events, encode, encode_delta, join_octets
from router.control.messages import Event, Order
from router.control.ops import Op

ZAP_ENDPOINT: Final = "inproc://zeromq.zap.01"  # RFC 27: where ZeroMQ asks whether a peer may connect
ZAP_VERSION: Final = b"1.0"
ZAP_DOMAIN: Final = b"sluice"

# Messages received in one wake, in whole parts; then deltas and answers are sent, and other events handled. A worker
# applies a delta at once, so this also bounds how long that takes.
MESSAGES_A_WAKE: Final = 256

# Seconds until a worker that has subscribed but is not yet connected on the other socket is tried again. Usually the
# descriptor signals before; ZeroMQ does not guarantee it.
RETRY_AFTER: Final = 0.002


class Keys(NamedTuple):
    """CURVE keys (Z85) of the supervisor and of all workers together; they never leave these processes' memory."""

    server_public: bytes
    server_secret: bytes
    client_public: bytes
    client_secret: bytes


class Endpoints(NamedTuple):
    """Names of the sockets: abstract unix sockets, which end with the process."""

    pub: str
    ctl: str


def make_keys() -> Keys:
    """New key pairs. Raises RuntimeError where ZeroMQ has no CURVE."""
    if not zmq.has("curve"):
        raise RuntimeError("ZeroMQ was built without CURVE encryption, which the router needs")
    return Keys(*zmq.curve_keypair(), *zmq.curve_keypair())


def make_endpoints() -> Endpoints:
    """New names, unknown to other processes."""
    name = secrets.token_hex(8)
    return Endpoints(f"ipc://@sluice-{name}-pub", f"ipc://@sluice-{name}-ctl")


class Channels:
    """The supervisor's sockets. Owner: supervisor.

    receive(identity, messages): what a worker sent, each message with the octets that belong to it.
    subscribed(topic): a worker asked for a topic. refuse(identity, text): it sent what cannot be read. flush(): send
    what came of it, called in each wake.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        endpoints: Endpoints,
        keys: Keys,
        *,
        receive: Callable[[bytes, list[tuple[Event, bytes | None]]], None],
        subscribed: Callable[[bytes], None],
        refuse: Callable[[bytes, str], None],
        flush: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._client_public = z85.decode(keys.client_public)
        self._receive = receive
        self._subscribed = subscribed
        self._refuse = refuse
        self._flush = flush
        self._due: asyncio.Handle | None = None  # the next wake, where it is not left to the descriptors
        self._unreachable = False
        self._context = zmq.Context()
        self._zap = self._context.socket(zmq.REP)
        self._zap.bind(ZAP_ENDPOINT)
        self._pub = self._open(zmq.XPUB, endpoints.pub, keys)
        self._ctl = self._open(zmq.ROUTER, endpoints.ctl, keys)
        self._ctl.set(zmq.ROUTER_MANDATORY, 1)  # raise when a worker is not connected
        self._sockets = (self._zap, self._pub, self._ctl)
        for opened in self._sockets:
            loop.add_reader(_number(opened, zmq.FD), self.wake)

    def _open(self, kind: int, endpoint: str, keys: Keys) -> "zmq.Socket[bytes]":
        opened = self._context.socket(kind)
        opened.set(zmq.LINGER, 0)
        # No limit: a worker that does not read is killed for its missing acknowledgements.
        opened.set(zmq.SNDHWM, 0)
        opened.set(zmq.RCVHWM, 0)
        opened.set(zmq.CURVE_SERVER, 1)
        opened.set(zmq.CURVE_SECRETKEY, keys.server_secret)
        opened.set(zmq.CURVE_PUBLICKEY, keys.server_public)
        opened.set(zmq.ZAP_DOMAIN, ZAP_DOMAIN)
        opened.bind(endpoint)
        return opened

    def publish(self, epoch: int, ops: list[Op]) -> None:
        """Send a delta to all workers. From `flush` only."""
        self._pub.send(encode_delta(epoch, ops), zmq.NOBLOCK)

    def send(self, identity: bytes, messages: Sequence[Order], octets: Sequence[bytes] = ()) -> bool:
        """Send messages to one worker, with the octets of those that have any, in order; False when it is not connected
        yet: try at the next flush. From `flush` only.
        """
        parts = [identity, encode(messages), *octets]
        try:
            self._ctl.send_multipart(parts, zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._unreachable = True
            return False
        return True

    def wake(self) -> None:
        """Receive and handle messages, and send the results. Call it when there may be something to send."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self._unreachable = False
        try:
            self._answer_zap()
            self._read_subscriptions()
            self._read_messages()
            self._flush()
        finally:  # also after an error, or a signal of the sockets would be missed
            self._look_again()

    def _look_again(self) -> None:
        """Schedule a wake that no descriptor triggers: for input that came meanwhile, or an unreachable worker."""
        if any(_number(opened, zmq.EVENTS) & zmq.POLLIN for opened in self._sockets):
            self._due = self._loop.call_soon(self.wake)
        elif self._unreachable:
            self._due = self._loop.call_later(RETRY_AFTER, self.wake)

    def _read_messages(self) -> None:
        receive = self._ctl.recv_multipart
        taken = 0
        while taken < MESSAGES_A_WAKE:
            try:
                parts = receive(zmq.NOBLOCK)
            except zmq.Again:
                return
            identity = parts[0]
            taken += 1
            if parts[1:] == [b""]:  # ZMQ_PROBE_ROUTER: it is connected
                continue
            try:
                messages = join_octets(decode_events(parts[1]), parts[2:])
            except (ControlError, IndexError) as error:
                self._refuse(identity, str(error))
                continue
            taken += len(messages) - 1
            self._receive(identity, messages)

    def _read_subscriptions(self) -> None:
        while True:
            try:
                message = self._pub.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            if message[:1] == b"\x01":
                self._subscribed(message[1:])

    def _answer_zap(self) -> None:
        """Answer ZeroMQ whether a peer may connect: it must have the workers' key."""
        while True:
            try:
                parts = self._zap.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            known = len(parts) > 6 and parts[5] == b"CURVE" and secrets.compare_digest(parts[6], self._client_public)
            status, text, user = (b"200", b"OK", b"worker") if known else (b"400", b"not a worker of this router", b"")
            request = parts[1] if len(parts) > 1 else b""
            self._zap.send_multipart([ZAP_VERSION, request, status, text, user, b""], zmq.NOBLOCK)

    def close(self) -> None:
        """Close the sockets and drop unsent messages."""
        if self._due is not None:
            self._due.cancel()
        for opened in self._sockets:
            self._loop.remove_reader(_number(opened, zmq.FD))
            opened.close(0)
        self._context.term()


def _number(opened: "zmq.Socket[bytes]", option: int) -> int:
    """An option of a socket that is a number."""
    return int(opened.get(option))
