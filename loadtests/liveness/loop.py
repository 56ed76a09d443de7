"""Event loop that drives all parties in one thread: sockets and timers."""

from __future__ import annotations

import heapq
import itertools
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any, Protocol


class SocketOwner(Protocol):
    """Owner of a socket in the loop."""

    def readable(self) -> None:
        """Handle a socket that is readable or has ended."""

    def writable(self) -> None:
        """Handle a writable socket."""


class Timer:
    """Call at a given time, unless cancelled."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Cancel the call."""
        self.call = None


class PartyLoop:
    """Sockets, timers, and calls at the end of each turn."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._dirty: dict[Any, None] = {}
        self.now = time.monotonic()
        #: time of the last input
        self.last_input = self.now

    def close(self) -> None:
        """Release the selector."""
        self._selector.close()

    def watch(self, sock: socket.socket, owner: SocketOwner, events: int) -> None:
        """Call `owner` for these events; 0: none."""
        key = self._selector.get_map().get(sock) if sock.fileno() >= 0 else None
        if key is None:
            if events:
                self._selector.register(sock, events, owner)
        elif not events:
            self._selector.unregister(sock)
        elif key.events != events:
            self._selector.modify(sock, events, owner)

    def after(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Call once, after `seconds`."""
        timer = Timer(call)
        heapq.heappush(self._timers, (self.now + seconds, next(self._numbers), timer))
        return timer

    def soon(self, pump: Callable[[], None]) -> None:
        """Call at the end of this turn, at most once."""
        self._dirty[pump] = None

    def turn(self, limit: float) -> None:
        """Wait for events, at most `limit` seconds, and handle them."""
        self.now = time.monotonic()
        if self._timers:
            limit = min(limit, max(0.0, self._timers[0][0] - self.now))
        if self._dirty:
            limit = 0.0
        ready = self._selector.select(limit)
        self.now = time.monotonic()
        for key, mask in ready:
            if mask & selectors.EVENT_READ:
                key.data.readable()
            if mask & selectors.EVENT_WRITE:
                key.data.writable()
        while self._timers and self._timers[0][0] <= self.now:
            timer = heapq.heappop(self._timers)[2]
            if timer.call is not None:
                timer.call()
        dirty, self._dirty = self._dirty, {}
        for pump in dirty:
            pump()

    def run(self, seconds: float) -> None:
        """Run for some seconds."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.turn(left)

    def until(self, condition: Callable[[], Any], seconds: float, every: float = 0.02) -> bool:
        """Run turns until the condition is true; it is checked every `every` seconds. Return False after `seconds`."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                return False
            self.run(every)
        return True
