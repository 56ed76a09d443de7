"""Offer of the running router: the socket at which a new router process asks for the listening sockets."""

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from sluice.router.log import NOTICE, WARNING, ProcessLog
from sluice.supervisor.takeover.messages import (
    MOST_SOCKETS,
    MOST_SOCKETS_EACH,
    PROTOCOL,
    SOCKET_NAME,
    Greeting,
    Handed,
    Peer,
    Refusal,
    Request,
    RunningIdentity,
    SuccessorReady,
    Take,
    TakeOverError,
    Yielded,
    peer_of,
    receive_request,
    send,
)

MOST_CONNECTIONS: Final = 4  # connections at a time; further ones wait in the kernel's queue
HELLO_SECONDS: Final = 10.0  # time limit for the first two messages
READY_SECONDS: Final = 300.0  # time limit for the start of the new router
LOG_MODULE: Final = "SERVER"


class RunningRouter(Protocol):
    """Router that can be taken over."""

    @property
    def identity(self) -> tuple[str, str]:
        """Id and version of the router."""

    def refusal(self) -> str | None:
        """Return why the router cannot be taken over now, or None."""

    def handed(self) -> tuple[Handed, Sequence[socket.socket]]:
        """Return the description of all listening sockets, and the sockets."""

    def hand_over(self, to: Peer, taken: Sequence[socket.socket], yielded: Callable[[], None]) -> None:
        """Accept nothing any longer, and drain. taken: sockets that the new router uses.

        yielded: to be called when no connection to another router is left.
        """


class TakeOverOffer:
    """Socket for new router processes of the same user or root. Owner: the supervisor.

    Several processes may ask, but only one gets the sockets at a time. The router goes on unchanged until that process
    reports that it is ready.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, directory: Path, router: RunningRouter, log: ProcessLog
    ) -> None:
        self.loop: Final = loop
        self.router: Final = router
        self.log: Final = log
        self.successor: Successor | None = None  # the process that has got the sockets
        self._path: Final = directory / SOCKET_NAME
        self._listening: socket.socket | None = None
        self._connections: set[Successor] = set()

    def open(self) -> None:
        """Begin to accept new router processes. A fault is logged: the router then cannot be taken over."""
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            opened.setblocking(False)
            opened.bind(os.fspath(self._path))
            opened.listen(MOST_CONNECTIONS)
        except OSError as error:
            self.log.warning(LOG_MODULE, f"The router cannot be taken over: {self._path}: {error.strerror}")
            opened.close()
            return
        self._listening = opened
        self.loop.add_reader(opened, self._accept)

    def close(self) -> None:
        """Close the socket and all connections."""
        if self._listening is not None:
            self.loop.remove_reader(self._listening)
            self._listening.close()
            self._listening = None
        for each in list(self._connections):
            each.end()

    def _accept(self) -> None:
        assert self._listening is not None
        try:
            channel, _ = self._listening.accept()
        except OSError as error:
            if not isinstance(error, BlockingIOError):
                self.log.repeated(WARNING, LOG_MODULE, "takeover", f"A take-over cannot begin: {error.strerror}")
            return
        channel.setblocking(False)
        connection = Successor(self, channel)
        self._connections.add(connection)
        connection.begin()
        if len(self._connections) >= MOST_CONNECTIONS:
            self.loop.remove_reader(self._listening)

    def ended(self, connection: "Successor") -> None:
        """Forget a closed connection."""
        self._connections.discard(connection)
        if self.successor is connection:
            self.successor = None
        if self._listening is not None:
            self.loop.add_reader(self._listening, self._accept)


class Successor:
    """Connection of a new router process. Owner: the offer."""

    def __init__(self, offer: TakeOverOffer, channel: socket.socket) -> None:
        self._offer: Final = offer
        self._channel: Final = channel
        self._peer: Final = peer_of(channel)
        self._said_hello = False
        self._sockets: Sequence[socket.socket] | None = None  # sockets of which this process has duplicates
        self._is_ready = False
        self._timer = offer.loop.call_later(HELLO_SECONDS, self._refuse, "the time limit has passed")

    def begin(self) -> None:
        """Read requests, unless the process belongs to another user."""
        self._offer.loop.add_reader(self._channel, self._receive)
        if self._peer.user not in (os.geteuid(), 0):
            self._refuse(f"user {self._peer.user} is not that of the router")

    def _receive(self) -> None:
        try:
            request = receive_request(self._channel)
        except BlockingIOError:
            return
        except TakeOverError as error:
            self._refuse(str(error))
            return
        except OSError:
            request = None
        if request is None:
            self._gone()
            return
        try:
            self._handle(request)
        except TakeOverError as error:
            self._refuse(str(error))
        except OSError as error:
            self._refuse(f"the answer cannot be sent: {error.strerror}")

    def _handle(self, request: Request) -> None:
        """Answer a request. Raises TakeOverError and OSError."""
        if self._is_ready:
            raise TakeOverError("a message after 'ready'")
        if isinstance(request, Greeting) and not self._said_hello:
            if not request.lowest <= PROTOCOL <= request.highest:
                spoken = f"{request.lowest} to {request.highest}"
                raise TakeOverError(f"the protocol of take-overs has version {PROTOCOL} here, {spoken} there")
            self._said_hello = True
            send(self._channel, RunningIdentity(PROTOCOL, *self._offer.router.identity))
        elif isinstance(request, Take) and self._said_hello and self._sockets is None:
            self._hand_sockets(request)
        elif isinstance(request, SuccessorReady) and self._sockets is not None:
            self._yield(request, self._sockets)
        else:
            raise TakeOverError(f"unexpected message '{type(request).__struct_config__.tag}'")

    def _hand_sockets(self, request: Take) -> None:
        """Send all listening sockets."""
        offer = self._offer
        reason = "another take-over is in progress" if offer.successor is not None else offer.router.refusal()
        if reason is not None:
            raise TakeOverError(reason)
        whole, sockets = offer.router.handed()
        if len(sockets) > MOST_SOCKETS:
            raise TakeOverError(f"the router has more than {MOST_SOCKETS} listening sockets")
        offer.successor = self
        self._sockets = sockets
        for first in range(0, max(1, len(sockets)), MOST_SOCKETS_EACH):
            end = first + MOST_SOCKETS_EACH
            part = Handed(whole.sockets[first:end], end < len(sockets), whole.notify, whole.watchdog)
            send(self._channel, part, [each.fileno() for each in sockets[first:end]])
        self._timer.cancel()
        self._timer = offer.loop.call_later(READY_SECONDS, self._refuse, "the time limit has passed")
        text = f"process {self._peer.pid}, version {request.version[:40]!r}, gets {len(sockets)} listening sockets"
        offer.log.notice(LOG_MODULE, f"Take-over: {text}")

    def _yield(self, request: SuccessorReady, sockets: Sequence[socket.socket]) -> None:
        """Hand over. From here on, the router cannot go back."""
        if not all(0 <= index < len(sockets) for index in request.taken):
            raise TakeOverError("an index in 'ready' is that of no socket")
        reason = self._offer.router.refusal()
        if reason is not None:
            raise TakeOverError(reason)
        self._is_ready = True
        self._timer.cancel()
        taken = [sockets[index] for index in sorted(set(request.taken))]
        self._offer.router.hand_over(self._peer, taken, self._report_yielded)

    def _report_yielded(self) -> None:
        if self._channel.fileno() < 0:
            return
        try:
            send(self._channel, Yielded())
        except OSError as error:
            self._offer.log.warning(LOG_MODULE, f"The new router cannot be notified: {error.strerror}")
        self._offer.close()

    def _refuse(self, reason: str) -> None:
        """Send the reason, and close the connection."""
        text = f"Take-over by process {self._peer.pid} of user {self._peer.user} is refused: {reason}"
        self._offer.log.repeated(WARNING, LOG_MODULE, "takeover", text)
        try:
            send(self._channel, Refusal(reason))
        except OSError as error:
            self._offer.log.debug(LOG_MODULE, f"The refusal of a take-over cannot be sent: {error.strerror}")
        self.end()

    def _gone(self) -> None:
        """Note that the new router process has ended, or has asked for the identity only."""
        if self._sockets is not None:
            after = "after it was ready" if self._is_ready else "before it was ready, so this router goes on"
            level = WARNING if self._is_ready else NOTICE
            self._offer.log.write(level, LOG_MODULE, f"Take-over: process {self._peer.pid} has ended {after}")
        self.end()

    def end(self) -> None:
        """Close the connection."""
        if self._channel.fileno() < 0:
            return
        self._timer.cancel()
        self._offer.loop.remove_reader(self._channel)
        self._channel.close()
        self._offer.ended(self)
