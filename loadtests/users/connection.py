"""AMQP connection of one locust user: proton's engine on a socket that gevent makes cooperative.

Proton's engine does no I/O of its own, so neither a reactor nor a thread is needed. One greenlet reads the socket and
dispatches the engine's events, one writes, one drives the heartbeat clock. The user's greenlet calls methods here and
waits for their effects. Owner of everything: the process; its greenlets never run at once.
"""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import gevent
import proton
from gevent.event import Event as Wake
from proton import Endpoint, Event

from loadtests.users.errors import ConnectionLost, LocustError, RefusedByPeer, TimedOut
from loadtests.users.security import Security

PORTS = {"amqp": 5672, "amqps": 5671}
READ_SIZE = 65536  # octets read from the socket at once
HEARTBEAT_LOOK = 5.0  # seconds between clock checks while the engine has no deadline
CLOSE_LIMIT = 2.0  # seconds to wait for the peer's close before the socket is closed


class DeliveryListener(Protocol):
    """Owner of a proton link, notified of the link's events."""

    def on_delivery(self, delivery: proton.Delivery) -> None:
        """Handle a new delivery, or a changed state of one."""


class GeventConnection:
    """Connection with one session. `lost`: reason for its end; None while it is up."""

    def __init__(
        self, url: str, *, container_id: str = "", timeout: float = 10.0, security: Security | None = None
    ) -> None:
        """Prepare a connection. timeout: seconds for each wait. Raises ValueError.

        url: amqp[s]://[USER:PASSWORD@]HOST[:PORT]; without a user, SASL ANONYMOUS.
        """
        parts = urlsplit(url if "//" in url else f"amqp://{url}")
        if parts.scheme not in PORTS or not parts.hostname:
            raise ValueError("not a URL like amqp://HOST:PORT or amqps://HOST:PORT")
        self.host, self.port = parts.hostname, parts.port or PORTS[parts.scheme]
        given = security or Security()
        if parts.username and not given.user:
            given = replace(given, user=unquote(parts.username), password=unquote(parts.password or ""))
        self.timeout = timeout
        self.lost: LocustError | None = None
        self._closing = False
        self._waiting = 0
        self._changed = Wake()
        self._output = Wake()
        self._greenlets: list[gevent.Greenlet] = []
        self._collector = proton.Collector()
        self._engine = proton.Connection()
        self._engine.collect(self._collector)
        self._engine.container = container_id or f"locust-{uuid.uuid4()}"
        self._engine.hostname = self.host
        self._transport = proton.Transport()
        if given.user:
            self._engine.user, self._engine.password = given.user, given.password
        given.log_in(self._transport.sasl())
        if parts.scheme == "amqps":
            given.encrypt(self._transport, self.host)
        self._transport.bind(self._engine)
        self.session = self._engine.session()

    def open(self) -> None:
        """Connect, authenticate, open and begin; return when the peer has done so too. Raises AmqpError."""
        try:
            self._socket = socket.create_connection((self.host, self.port), self.timeout)
        except OSError as error:
            self.lost = ConnectionLost(f"connect: {error.strerror or error}")
            raise self.lost from error
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._engine.open()
        self.session.open()
        self._greenlets = [gevent.spawn(run) for run in (self._read, self._write, self._keep_alive)]
        self.flush()
        try:
            self.wait(lambda: bool(self.session.state & Endpoint.REMOTE_ACTIVE), "open")
        except LocustError:
            self.abort()
            raise

    def flush(self) -> None:
        """Schedule the engine's output, which is written as soon as this greenlet waits."""
        self._output.set()

    def wait(self, ready: Callable[[], bool], what: str, timeout: float | None = None) -> None:
        """Wait until `ready()` returns True. It is called after each input.

        Raises TimedOut after `timeout` seconds (the connection's by default), or the reason why the connection ended.
        """
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while not ready():
            if self.lost:
                raise self.lost
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimedOut(f"{what}: nothing within the time limit")
            self._waiting += 1
            try:
                self._changed.wait(left)
            finally:
                self._waiting -= 1

    def close(self) -> None:
        """Close, wait briefly for the peer's close, and close the socket.

        Raises AmqpError if the peer's close had an error or did not arrive.
        """
        if self.lost:
            self.abort()
            return
        self._closing = True
        self._engine.close()
        self.flush()
        try:
            self.wait(lambda: bool(self._engine.state & Endpoint.REMOTE_CLOSED), "close", CLOSE_LIMIT)
        finally:
            self.abort()

    def abort(self) -> None:
        """Close the socket and end the greenlets without a close frame."""
        self.lost = self.lost or ConnectionLost("closed here")
        gevent.killall([one for one in self._greenlets if one is not gevent.getcurrent()], block=False)
        self._greenlets = []
        if hasattr(self, "_socket"):
            self._socket.close()

    # Greenlets of the connection.

    def _read(self) -> None:
        while not self.lost:
            try:
                octets = self._socket.recv(READ_SIZE)
            except OSError as error:
                self._end(ConnectionLost(f"connection lost: {error.strerror or error}"))
                return
            if not octets:
                self._transport.pending()  # only this call makes the engine evaluate a refusal by SASL
                self._dispatch()
                self._transport.close_tail()
                self._dispatch()
                self._end(ConnectionLost("connection lost: end of stream"))
                return
            self._take(octets)

    def _take(self, octets: bytes) -> None:
        """Pass input to the engine, as much as it has room for at a time."""
        try:
            while octets:
                room = self._transport.capacity()
                if room <= 0:
                    self._dispatch()
                    self._end(ConnectionLost("connection lost: the engine takes no more"))
                    return
                self._transport.push(octets[:room])
                octets = octets[room:]
                self._dispatch()
        except proton.ProtonException as error:
            self._end(ConnectionLost(f"connection lost: {error}"))

    def _write(self) -> None:
        while not self.lost:
            self._output.wait()
            self._output.clear()
            try:
                while (pending := self._transport.pending()) > 0:
                    octets = self._transport.peek(min(pending, READ_SIZE))
                    self._transport.pop(self._socket.send(octets or b""))
            except (OSError, proton.ProtonException) as error:
                self._end(ConnectionLost(f"connection lost: {getattr(error, 'strerror', None) or error}"))

    def _keep_alive(self) -> None:
        while not self.lost:
            now = time.monotonic()
            deadline = self._transport.tick(now)
            self._dispatch()
            self.flush()
            gevent.sleep(min(max(deadline - now, 0.1), HEARTBEAT_LOOK) if deadline else HEARTBEAT_LOOK)

    # Events of the engine.

    def _dispatch(self) -> None:
        while event := self._collector.peek():
            self._handle(event)
            self._collector.pop()
        self.flush()
        self._wake()

    def _wake(self) -> None:
        if self._waiting:
            self._changed.set()
            self._changed = Wake()

    def _handle(self, event: Any) -> None:
        kind = event.type
        if kind == Event.DELIVERY:
            event.context.link.owner.on_delivery(event.context)
        elif kind == Event.CONNECTION_REMOTE_CLOSE and not self._closing:
            self._engine.close()
            self._end(RefusedByPeer("connection closed", self._engine.remote_condition))
        elif kind == Event.SESSION_REMOTE_CLOSE and not self._closing:
            self._end(RefusedByPeer("session ended", self.session.remote_condition))
        elif kind == Event.TRANSPORT_ERROR and not self._closing:
            self._end(RefusedByPeer("connection lost", self._transport.condition))

    def _end(self, reason: LocustError) -> None:
        """Mark the connection as unusable, and wake all waiting greenlets."""
        if self.lost is None:
            self.lost = reason
        self._wake()
