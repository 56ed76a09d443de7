"""Messages of a take-over, each one packet of a SOCK_SEQPACKET socket (decision 0093).

The two routers may have different versions, so the messages are JSON objects whose unknown fields are ignored. The new
router sends `Greeting`, `Take` and `SuccessorReady`. The running one answers with `RunningIdentity`, one or more
`Handed` with descriptors, and `Yielded`. Instead of any answer it may send `Refusal`, and closes the connection.
"""

import array
import os
import socket
from typing import Final

import msgspec
from msgspec import Struct

PROTOCOL: Final = 1  # version of this protocol
SOCKET_NAME: Final = "takeover"  # of the socket in the private directory
MOST_OCTETS: Final = 65536  # limit of a message
MOST_SOCKETS_EACH: Final = 200  # listening sockets with one message; the kernel's limit is 253
# Listening sockets of a router. All messages with them fit into the queue of the new router (net.unix.max_dgram_qlen,
# 10), so that the running router need not wait.
MOST_SOCKETS: Final = 1600


class Greeting(Struct, tag="hello", tag_field="kind"):
    """First message of the new router: the versions of the protocol that it knows, from `lowest` to `highest`."""

    lowest: int = PROTOCOL
    highest: int = PROTOCOL


class Take(Struct, tag="take", tag_field="kind"):
    """Request for the listening sockets."""

    version: str  # of the new router, for the log


class SuccessorReady(Struct, tag="ready", tag_field="kind"):
    """Report that the workers of the new router run. taken: indexes of the sockets that it uses."""

    taken: list[int]


class RunningIdentity(Struct, tag="identity", tag_field="kind"):
    """Answer to `Greeting`: the version of the protocol to use, and the running router's id and version."""

    protocol: int
    router: str
    version: str


class HandedSocket(Struct):
    """Listening socket of the running router.

    name: of its listener, or of the socket if the service manager has opened it. hosts: of the listener if the kernel
    chose the port, otherwise empty.
    """

    name: str
    by_manager: bool = False
    hosts: tuple[str, ...] = ()


class Handed(Struct, tag="handed", tag_field="kind"):
    """Listening sockets, whose descriptors accompany the message in this order.

    more: another message follows. notify: address of the service manager's socket; watchdog: its period in µs.
    """

    sockets: list[HandedSocket]
    more: bool = False
    notify: str = ""
    watchdog: str = ""


class Yielded(Struct, tag="yielded", tag_field="kind"):
    """Report that the running router accepts nothing any longer, and has no connection to another router."""


class Refusal(Struct, tag="refusal", tag_field="kind"):
    """Reason why the running router hands nothing over."""

    reason: str


Request = Greeting | Take | SuccessorReady
Answer = RunningIdentity | Handed | Yielded | Refusal


class TakeOverError(Exception):
    """Error of a take-over; the text is the reason."""


class Peer(Struct, frozen=True):
    """Process at the other end, as the kernel reports it (SO_PEERCRED); pid 0: in another pid namespace."""

    pid: int
    user: int


_requests: Final[msgspec.json.Decoder[Request]] = msgspec.json.Decoder(Request)
_answers: Final[msgspec.json.Decoder[Answer]] = msgspec.json.Decoder(Answer)
_MALFORMED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode_request(octets: bytes) -> Request:
    """Decode a message of the new router. Raises TakeOverError."""
    try:
        return _requests.decode(octets)
    except _MALFORMED as error:
        raise TakeOverError(f"bad message: {error}") from None


def decode_answer(octets: bytes) -> Answer:
    """Decode a message of the running router. Raises TakeOverError."""
    try:
        return _answers.decode(octets)
    except _MALFORMED as error:
        raise TakeOverError(f"bad message: {error}") from None


def peer_of(channel: socket.socket) -> Peer:
    """Return the process at the other end of a connection."""
    pid, user, _ = array.array("i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 3 * 4))
    return Peer(pid, user)


def send(channel: socket.socket, message: Request | Answer, descriptors: list[int] | None = None) -> None:
    """Send a message. Raises OSError."""
    socket.send_fds(channel, [msgspec.json.encode(message)], descriptors or [])


def receive_request(channel: socket.socket) -> Request | None:
    """Receive a message of the new router; None: the connection is closed. Raises TakeOverError and OSError.

    The kernel closes descriptors that come with the message.
    """
    octets, _, flags, _ = channel.recvmsg(MOST_OCTETS)
    _check_whole(flags & ~socket.MSG_CTRUNC)
    return decode_request(octets) if octets else None


def receive_answer(channel: socket.socket) -> tuple[Answer | None, list[socket.socket]]:
    """Receive a message of the running router; None: the connection is closed. Raises TakeOverError and OSError."""
    octets, descriptors, flags, _ = socket.recv_fds(channel, MOST_OCTETS, MOST_SOCKETS_EACH)
    opened = []
    try:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
            opened.append(socket.socket(fileno=descriptor))
        _check_whole(flags)
        answer = decode_answer(octets) if octets else None
        expected = len(answer.sockets) if isinstance(answer, Handed) else 0
        if len(opened) != expected:
            raise TakeOverError(f"{len(opened)} descriptors came for {expected} sockets")
    except (TakeOverError, OSError):
        for descriptor in descriptors[len(opened) :]:
            os.close(descriptor)
        for each in opened:
            each.close()
        raise
    return answer, opened


def _check_whole(flags: int) -> None:
    """Raise TakeOverError if the kernel has cut off a part of a message."""
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        raise TakeOverError(f"a message has more than {MOST_OCTETS} octets, or too many descriptors")
