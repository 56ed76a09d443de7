"""Scripted remote end of a connector: a listening socket, and a peer that answers.

Sessions and links that the router begins are answered only by calls of the test.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Sequence
from typing import Any

from tests.peer import frames
from tests.peer.frames import AMQP_HEADER, SASL_HEADER, Frame
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.peer import WIDE, AmqpPeer, PeerSession
from tests.peer.types import Array, Symbol
from tests.peer.wire import TIMEOUT

#: Default container-id of an answering open.
NAME = "broker"


class Container(AmqpPeer):
    """Accepted connection."""

    #: The router's sasl-init.
    init: Frame
    #: Number of sessions that the test has begun itself.
    own = 0

    def serve(self, mechanisms: Sequence[str] = ("ANONYMOUS",), code: int = 0, **fields: Any) -> Container:
        """Exchange headers, SASL and open as a broker. A `code` other than 0 refuses the login. Keywords are open
        fields."""
        self.offer(mechanisms)
        self.frame("sasl-outcome", code=code)
        return self if code else self.open_after_sasl(**fields)

    def open_after_sasl(self, **fields: Any) -> Container:
        """Exchange header and open, after SASL. Keywords are open fields."""
        self._expect_header(AMQP_HEADER)
        self.raw(AMQP_HEADER)
        self.remote_open = self.expect("open")
        self.frame("open", **{"container_id": NAME, "max_frame_size": 65536, **fields})
        return self

    def offer(self, mechanisms: Sequence[str] = ("ANONYMOUS",)) -> None:
        """Send SASL header and mechanisms, and read the router's choice."""
        self._expect_header(SASL_HEADER)
        self.raw(SASL_HEADER)
        self.frame("sasl-mechanisms", sasl_server_mechanisms=Array([Symbol(name) for name in mechanisms]))
        self.init = self.expect("sasl-init")

    def session_begun(self, timeout: float = TIMEOUT, channel: int | None = None, **fields: Any) -> PeerSession:
        """Wait for a session that the router begins (on `channel`, if given), and answer."""
        begin = self.expect("begin", timeout, **({} if channel is None else {"channel": channel}))
        session = PeerSession(self, begin.channel, 0, WIDE)
        session.remote, session.remote_channel = begin, begin.channel
        session.next_incoming_id, session.remote_window = begin.next_outgoing_id, begin.incoming_window
        self.sessions.append(session)
        given = {"next_outgoing_id": 0, "incoming_window": WIDE, "outgoing_window": WIDE}
        session.frame("begin", **{"remote_channel": begin.channel, **given, **fields})
        return session

    def link_attached(self, answer: bool = True, timeout: float = TIMEOUT, **where: Any) -> PeerSender | PeerReceiver:
        """Wait for a link that the router attaches, and answer with its own termini, unless `answer` is false. If the
        router begins a session for the link, answer the session first."""
        attach = self.expect("attach", timeout, **where)
        if any(frame.name == "begin" and frame.channel == attach.channel for frame in self.inbox):
            self.session_begun(timeout, attach.channel)
        session = next(each for each in reversed(self.sessions) if each.remote_channel == attach.channel)
        kind = PeerSender if attach.role else PeerReceiver
        link = kind(session, attach.fields["name"], session.fresh_handle())
        link.remote, link.remote_handle = attach, attach.handle
        session.links.append(link)
        if answer:
            accept(link)
        return link


def accept(link: PeerSender | PeerReceiver, **fields: Any) -> None:
    """Answer the router's attach. Keywords are attach fields; the defaults are those of the router's attach."""
    asked = link.remote
    assert asked is not None
    given = {
        "role": not asked.role,
        "source": asked.source,
        "target": asked.target,
        "initial_delivery_count": 0 if isinstance(link, PeerSender) else None,
    }
    link.session.frame("attach", name=link.name, handle=link.handle, **{**given, **fields})


def refuse(link: PeerSender | PeerReceiver, condition: str, description: str) -> None:
    """Answer the router's attach with a null terminus, then detach with an error."""
    accept(link, **{"source" if isinstance(link, PeerSender) else "target": None})
    link.send_detach(error=frames.error(condition, description))


class ScriptedBroker:
    """Listening socket for connectors. It can be closed, and opened again on the same port."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        """tls: context for all connections; None: no TLS."""
        self.port = 0
        self.accepted: list[Container] = []
        self._socket: socket.socket | None = None
        self.tls = tls
        self.listen()

    def listen(self) -> None:
        """Start to listen, on the same port if called again."""
        self._socket = socket.create_server(("127.0.0.1", self.port), backlog=8)
        self.port = self._socket.getsockname()[1]

    def refuse(self) -> None:
        """Stop accepting connections. `listen` reuses the port."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def accept(self, timeout: float = TIMEOUT) -> Container:
        """Accept the next connection, before any output. Raises TimeoutError and TLS errors."""
        assert self._socket is not None
        self._socket.settimeout(timeout)
        transport = self._socket.accept()[0]
        if self.tls is not None:
            transport.settimeout(timeout)
            transport = self.tls.wrap_socket(transport, server_side=True)
        container = Container(transport)
        self.accepted.append(container)
        return container

    def serve(self, timeout: float = TIMEOUT, **fields: Any) -> Container:
        """Accept and open the next connection. Keywords as in Container.serve."""
        return self.accept(timeout).serve(**fields)

    def quiet(self, seconds: float) -> bool:
        """Return True if no connection arrives for a while."""
        deadline = time.monotonic() + seconds
        try:
            self.accept(max(0.01, deadline - time.monotonic()))
        except TimeoutError:
            return True
        return False

    def close(self) -> None:
        """Close all sockets."""
        self.refuse()
        for container in self.accepted:
            container.drop()
