"""Limits between a socket and the HTTP library: time, size, number of connections.

A connection carries one request and lives for seconds, unless it asks for WebSocket: then it leaves, with what was
read of it. When a new one needs room, connections without a request are closed first, then those that do not read the
answer, so slow clients cannot keep probes and scrapers out. A host that has its share makes room for itself; when there
is no room at all, the host with most connections makes it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from router.config.entities import ListenerConfig
from router.websocket.handshake import answer, asks
from router.websocket.http import END, HeadError, parse_request
from router.websocket.site import Site
from supervisor.runtime.deadline import Deadline
from supervisor.runtime.remote_hosts import HostShares, remote_host

MAX_CONNECTIONS: Final = 64  # of all HTTP listeners together
MOST_OF_HOST: Final = 32  # of these
MAX_ARRIVING: Final = 128  # connections before that: they may speak TLS, or their handshake is not complete
MOST_ARRIVING_OF_HOST: Final = 32
MAX_REQUEST: Final = 16384  # octets of request line and headers
REQUEST_TIME: Final = 10.0  # seconds for a request to arrive
HALF_CLOSED_TIME: Final = 1.0  # seconds for a request to be looked at whose client sends no more
ANSWER_TIME: Final = 30.0  # seconds for the answer to be made and taken

_GET: Final = b"GET "
_BAD: Final = b"HTTP/1.1 400 Bad Request\r\nServer: sluice-router\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
_TOO_LARGE: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Gate:
    """Counts and limits the connections. Owner: the HTTP service."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.arriving: Final = HostShares(MAX_ARRIVING, MOST_ARRIVING_OF_HOST)
        self.refused: dict[str, int] = dict.fromkeys(("full", "host", "slow", "large"), 0)
        self._asking: dict[Guard, None] = {}  # no whole request yet, in order of arrival
        self._answering: dict[Guard, None] = {}  # in order of request

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._asking) + len(self._answering)

    def enter(self, guard: "Guard") -> bool:
        """A new connection; False when there is no room, even after closing idle and unread ones."""
        counts = Counter(each.host for each in (*self._asking, *self._answering))
        if counts[guard.host] >= MOST_OF_HOST:
            self.refused["host"] += 1
            last = self._idle(guard.host)
        elif self.connections >= MAX_CONNECTIONS:
            self.refused["full"] += 1
            last = next(filter(None, (self._idle(host) for host, _ in counts.most_common())), None)
        else:
            self._asking[guard] = None
            return True
        if last is None:
            return False
        last.abort()
        self._asking[guard] = None
        return True

    def _idle(self, host: str) -> "Guard | None":
        """The connection of a host that is closed before others of it; None: all are being answered."""
        asking = next((each for each in self._asking if each.host == host), None)
        return asking or next((each for each in self._answering if each.host == host and each.unread), None)

    def asked(self, guard: "Guard") -> None:
        """Its request is here."""
        if guard in self._asking:
            del self._asking[guard]
            self._answering[guard] = None

    def leave(self, guard: "Guard") -> None:
        """It is closed."""
        self._asking.pop(guard, None)
        self._answering.pop(guard, None)

    def abort_all(self) -> None:
        """Close all connections at once."""
        for guard in [*self._asking, *self._answering]:
            guard.abort()


class Guard(asyncio.Protocol):
    """One HTTP connection: passes what arrives to the library's protocol, within the limits. Owner: its transport."""

    def __init__(
        self,
        gate: Gate,
        listener: ListenerConfig,
        make: Callable[[], asyncio.Protocol],
        upgrade: Callable[[asyncio.Transport, bytes], bool],
        address: str,
    ) -> None:
        """address: of the client. upgrade(transport, octets): give the connection away, with what its client has said,
        which asks for WebSocket. False: that cannot be now."""
        self.listener = listener
        self.host: Final = remote_host(address)
        self._gate = gate
        self._make = make
        self._upgrade = upgrade
        self._head: bytes | None = b""  # what may ask for WebSocket, as far as it is here; None: it is for the library
        self._inner: asyncio.Protocol | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: Deadline | None = None
        self._received = 0
        self._asked = False

    def asked(self) -> None:
        """The request is here: from now on the time of the answer counts, and nothing more is read."""
        self._asked = True
        self._gate.asked(self)
        self._start_timer(ANSWER_TIME)

    @property
    def site(self) -> Site:
        """The listener, as rules for web pages see it."""
        place = None if self._transport is None else self._transport.get_extra_info("sockname")
        address = place[0] if isinstance(place, tuple) else ""  # a worker that reads for us has the socket
        return Site(self.listener.host, self.listener.allowed_origins, address)

    @property
    def encrypted(self) -> bool:
        """Whether the client speaks TLS, with the supervisor or with a worker that reads for it."""
        if self._transport is None:
            return False
        own = self._transport.get_extra_info("ssl_object") is not None
        return own or not isinstance(self._transport.get_extra_info("sockname"), tuple)

    @property
    def unread(self) -> bool:
        """Whether a part of the answer waits for the client."""
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def abort(self) -> None:
        """Close at once; the gate drops it now, the library in the event loop."""
        self._gate.leave(self)
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self._gate.enter(self):
            self._refuse(_FULL)
            return
        self._start_timer(REQUEST_TIME)
        self._inner = self._make()
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._inner is None or self._asked:
            return
        self._received += len(data)
        if self._received > MAX_REQUEST:
            self._gate.refused["large"] += 1
            self._refuse(_TOO_LARGE)
            return
        if self._head is None:
            self._inner.data_received(data)
        else:
            self._look(self._head + data)

    def _look(self, octets: bytes) -> None:
        """The beginning of a request: find out what it is for."""
        assert self._transport is not None
        assert self._inner is not None
        end = octets.find(END)
        if end < 0 and len(octets) == MAX_REQUEST:  # a worker that reads for us stops there
            self._gate.refused["large"] += 1
            self._refuse(_TOO_LARGE)
            return
        if end < 0 and octets[: len(_GET)] == _GET[: len(octets)]:
            self._head = octets
            return
        self._head = None
        head = octets[: end + len(END)]
        if end < 0 or not head.startswith(_GET):
            self._inner.data_received(octets)
        elif not asks(head):
            self._pass_on(head, octets)
        elif not self.listener.websockets:
            self._refuse(answer(head, self.site, enabled=False).octets)
        elif not self._upgrade(self._transport, octets):
            self._refuse(_FULL)

    def _pass_on(self, head: bytes, octets: bytes) -> None:
        """A request for a page, unless two parsers could understand it in two ways."""
        assert self._inner is not None
        try:
            _, _, _, parsed = parse_request(head)
            length = parsed.one("content-length")
            if length is not None and (not length.isdecimal() or "transfer-encoding" in parsed.headers):
                raise HeadError("it has two lengths")
            parsed.one("host")
        except HeadError:
            self._refuse(_BAD)
            return
        self._inner.data_received(octets)

    def eof_received(self) -> bool | None:
        """The client has closed its half after the request, which may not have been parsed yet."""
        if not self._asked:
            self._start_timer(HALF_CLOSED_TIME, self.abort)
        return self._received > 0

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gate.leave(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._inner is not None:
            self._inner.connection_lost(exc)
            self._inner = None
        self._transport = None

    def _refuse(self, response: bytes) -> None:
        """Answer with the reason, and close."""
        assert self._transport is not None
        self._asked = True
        self._start_timer(REQUEST_TIME)
        self._transport.write(response)
        self._transport.close()

    def _start_timer(self, seconds: float, action: Callable[[], None] | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = Deadline(self._gate.loop, seconds, action or self._expire)

    def _expire(self) -> None:
        self._gate.refused["slow"] += 1
        self.abort()
