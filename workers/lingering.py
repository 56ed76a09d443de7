"""Lingering sockets: kept open after the router's close, until the peers have read it."""

from __future__ import annotations

import socket
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sluice.workers.loop import Loop

LINGER_MS: Final = 2000
#: Most sockets at a time. For another one, the oldest is closed.
MAX_SOCKETS: Final = 256
READ_OCTETS: Final = 65536


class LingeringSockets:
    """Reads and drops what peers send before they have read the router's close, until they close, too.

    For octets that arrive on a closed socket, the kernel sends a reset. A peer that gets a reset when it writes may
    never read the router's close, and so not the reason either.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._sockets: dict[int, socket.socket] = {}
        self._room = bytearray(READ_OCTETS)

    def __len__(self) -> int:
        return len(self._sockets)

    def take(self, descriptor: int) -> None:
        """Shut down the sending side, and close the descriptor later. Nobody else watches it."""
        if len(self._sockets) == MAX_SOCKETS:
            self._end(next(iter(self._sockets)))
        lingering = socket.socket(fileno=descriptor)
        try:
            lingering.setblocking(False)
            lingering.shutdown(socket.SHUT_WR)
        except OSError:  # the peer has disconnected
            lingering.close()
            return
        self._sockets[descriptor] = lingering
        self._loop.add(descriptor, partial(self._read, descriptor))
        self._loop.call_at(self._loop.scheduler.now + LINGER_MS, partial(self._give_up, lingering))

    def _read(self, descriptor: int) -> None:
        try:
            if self._sockets[descriptor].recv_into(self._room):
                return
        except BlockingIOError:
            return
        except OSError:  # the peer has disconnected
            pass
        self._end(descriptor)

    def _give_up(self, lingering: socket.socket) -> None:
        if lingering.fileno() >= 0:
            self._end(lingering.fileno())

    def _end(self, descriptor: int) -> None:
        self._loop.remove(descriptor)
        self._sockets.pop(descriptor).close()
