"""What stands between a socket and the HTTP library: the limits of time, size and number of connections.

A connection carries one request and lives for seconds. Whoever holds one without asking anything is the first to go
when another wants in, then who does not take the answer, so slow clients cannot keep probes and scrapers out.
"""
import asyncio
from collections.abc import Callable
from typing import Final

from router.config.entities import ListenerConfig
from supervisor.deadline import Deadline

MAX_CONNECTIONS: Final = 64  # of all HTTP listeners together
MAX_REQUEST: Final = 16384  # octets of request line and headers
REQUEST_TIME: Final = 10.0  # seconds for a request to arrive
HALF_CLOSED_TIME: Final = 1.0  # seconds for a request to be looked at whose client sends no more
ANSWER_TIME: Final = 30.0  # seconds for the answer to be made and taken

_FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
)


class Gate:
    """Counts and limits the connections. Owner: the HTTP service."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.refused: dict[str, int] = dict.fromkeys(("full", "slow", "large"), 0)
        self._asking: dict[Guard, None] = {}  # no whole request yet, in order of arrival
        self._answering: dict[Guard, None] = {}  # in order of request

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._asking) + len(self._answering)

    def enter(self, guard: "Guard") -> bool:
        """A new connection; False when there is no room, even without those that have not asked anything or do not
        read.
        """
        if self.connections >= MAX_CONNECTIONS:
            self.refused["full"] += 1
            last = next(iter(self._asking), None) or next((each for each in self._answering if each.unread), None)
            if last is None:
                return False
            last.abort()
        self._asking[guard] = None
        return True

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

    def __init__(self, gate: Gate, listener: ListenerConfig, make: Callable[[], asyncio.Protocol]) -> None:
        self.listener = listener
        self._gate = gate
        self._make = make
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
    def unread(self) -> bool:
        """Whether a part of the answer waits for the client."""
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def abort(self) -> None:
        """Close at once; the gate forgets it now, the library when the event loop gets to it."""
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
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """A client may close its half behind its request, which then is here, though perhaps not looked at yet."""
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
        """Say why, and close."""
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
