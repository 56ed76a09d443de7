"""Limits between a socket and the HTTP library: time, size, number of connections.

A connection carries one request and lives for seconds, unless it requests WebSocket: then it is handed over with the
octets read from it. When a new connection needs room, connections without a request are closed first, then those whose
client does not read the answer, so slow clients cannot lock out probes and scrapers. A host at its limit makes room
for itself; if the total limit is reached, the host with most connections makes room.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from sluice.router.config.entities import ListenerConfig
from sluice.router.websocket.handshake import answer_upgrade, requests_websocket
from sluice.router.websocket.http import END, HeadError, parse_request
from sluice.router.websocket.origins import OriginPolicy
from sluice.supervisor.runtime.deadline import Deadline
from sluice.supervisor.runtime.remote_hosts import HostCounts, remote_host

MAX_CONNECTIONS: Final = 64  # limit of all HTTP listeners together
MOST_OF_HOST: Final = 32  # limit for one host
MAX_ARRIVING: Final = 128  # limit of connections not counted yet: TLS is not ruled out, or its handshake is incomplete
MOST_ARRIVING_OF_HOST: Final = 32
MAX_REQUEST: Final = 16384  # limit in octets of request line and headers
REQUEST_TIME: Final = 10.0  # seconds for a request to arrive
HALF_CLOSED_TIME: Final = 1.0  # seconds to process the request of a client that has closed its half
ANSWER_TIME: Final = 30.0  # seconds to make the answer and for the client to read it

_GET: Final = b"GET "
_BAD: Final = b"HTTP/1.1 400 Bad Request\r\nServer: sluice-router\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
_TOO_LARGE: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class HttpConnectionLimiter:
    """Count and limit of connections. Owner: the HTTP service."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.arriving: Final = HostCounts(MAX_ARRIVING, MOST_ARRIVING_OF_HOST)
        self.refused: dict[str, int] = dict.fromkeys(("full", "host", "slow", "large"), 0)
        self._asking: dict[HttpConnection, None] = {}  # guards without a complete request, in order of arrival
        self._answering: dict[HttpConnection, None] = {}  # guards with a request, in order of request

    @property
    def connections(self) -> int:
        """Return the number of open connections."""
        return len(self._asking) + len(self._answering)

    def enter(self, guard: "HttpConnection") -> bool:
        """Admit a new connection, closing an idle or unread one if needed. Returns False if there is no room."""
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

    def _idle(self, host: str) -> "HttpConnection | None":
        """Return the connection of a host to close first, or None if all are being answered."""
        asking = next((each for each in self._asking if each.host == host), None)
        return asking or next((each for each in self._answering if each.host == host and each.unread), None)

    def asked(self, guard: "HttpConnection") -> None:
        """Move a connection to those with a request."""
        if guard in self._asking:
            del self._asking[guard]
            self._answering[guard] = None

    def leave(self, guard: "HttpConnection") -> None:
        """Remove a connection that has closed."""
        self._asking.pop(guard, None)
        self._answering.pop(guard, None)

    def abort_all(self) -> None:
        """Close all connections at once."""
        for guard in [*self._asking, *self._answering]:
            guard.abort()


class HttpConnection(asyncio.Protocol):
    """HTTP connection that passes input to the library's protocol within the limits. Owner: its transport."""

    def __init__(
        self,
        gate: HttpConnectionLimiter,
        listener: ListenerConfig,
        make: Callable[[], asyncio.Protocol],
        upgrade: Callable[[asyncio.Transport, bytes], bool],
        address: str,
        *,
        certified: bool = False,
    ) -> None:
        """address: of the client. certified: a worker has verified its certificate. upgrade(transport, octets): hands
        over a connection that requests WebSocket, with the octets read from it; returns False if that is impossible
        now.
        """
        self.listener = listener
        self.host: Final = remote_host(address)
        self._gate = gate
        self._make = make
        self._upgrade = upgrade
        self._certified = certified
        # incomplete head of a request that may ask for WebSocket; None: the library reads the request
        self._head: bytes | None = b""
        self._inner: asyncio.Protocol | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: Deadline | None = None
        self._received = 0
        self._asked = False

    def asked(self) -> None:
        """Start the answer timer when the request is complete. Nothing more is read."""
        self._asked = True
        self._gate.asked(self)
        self._start_timer(ANSWER_TIME)

    @property
    def site(self) -> OriginPolicy:
        """Return the attributes of the listener that the rules for web pages need."""
        place = None if self._transport is None else self._transport.get_extra_info("sockname")
        # no address if a worker holds the socket and reads for the supervisor
        address = place[0] if isinstance(place, tuple) else ""
        return OriginPolicy(self.listener.host, self.listener.allowed_origins, address)

    @property
    def certified(self) -> bool:
        """Return whether the client has presented a certificate, which the supervisor or a worker has verified."""
        own = None if self._transport is None else self._transport.get_extra_info("peercert")
        return self._certified or bool(own)

    @property
    def unread(self) -> bool:
        """Return whether a part of the answer waits for the client to read."""
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def abort(self) -> None:
        """Close the connection: at once in the gate, later in the library."""
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
        """Decide from the head of a request whether it is for WebSocket or for a page."""
        assert self._transport is not None
        assert self._inner is not None
        end = octets.find(END)
        if end < 0 and len(octets) == MAX_REQUEST:  # a worker that reads for the supervisor stops at this size
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
        elif not requests_websocket(head):
            self._pass_on(head, octets)
        elif not self.listener.websockets:
            self._refuse(answer_upgrade(head, self.site, enabled=False).octets)
        elif not self._upgrade(self._transport, octets):
            self._refuse(_FULL)

    def _pass_on(self, head: bytes, octets: bytes) -> None:
        """Pass a request to the library, unless two parsers could understand it differently."""
        assert self._inner is not None
        try:
            _, _, _, parsed = parse_request(head)
            length = parsed.one("content-length")
            if length is not None and (not length.isdecimal() or "transfer-encoding" in parsed.headers):
                raise HeadError("the request has two lengths")
            parsed.one("host")
        except HeadError:
            self._refuse(_BAD)
            return
        self._inner.data_received(octets)

    def eof_received(self) -> bool | None:
        """Limit the time for a request whose client has closed its half. The request may not be parsed yet."""
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
        """Send a response with the reason, and close."""
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
