"""Proxied connections that wait for their PROXY protocol header."""

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Sequence
from typing import Final

from sluice.supervisor.listeners.proxy_header import MOST_OCTETS, ProxyError, parse

HEADER_SECONDS: Final = 5.0
MOST_WAITING: Final = 1024  # limit of connections that wait for their header

Address = tuple[str, int]
# Callback with the address of the client, or the reason for which there is none.
Then = Callable[[Address | ProxyError], None]


class ProxiedConnections:
    """All connections that wait for their header. Owner: the event loop of the supervisor."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        self._waiting: set[_ProxiedConnection] = set()

    def wait(self, opened: socket.socket, address: Address, then: Then) -> None:
        """Read the header from a connection of the proxy at `address`. Calls `then` once, possibly at once."""
        if len(self._waiting) >= MOST_WAITING:
            then(ProxyError("too many connections wait for their header"))
            return
        self._waiting.add(_ProxiedConnection(self._loop, opened, address, then, self._waiting.discard))

    async def client(self, opened: socket.socket, address: Address) -> Address:
        """Read the header as `wait` does, and return the client's address. Raises ProxyError."""
        found: asyncio.Future[Address | ProxyError] = self._loop.create_future()
        self.wait(opened, address, lambda result: None if found.done() else found.set_result(result))
        result = await found
        if isinstance(result, ProxyError):
            raise result
        return result


class _ProxiedConnection:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        opened: socket.socket,
        address: Address,
        then: Then,
        over: Callable[["_ProxiedConnection"], None],
    ) -> None:
        self._loop: Final = loop
        self._opened: Final = opened
        self._address: Final = address
        self._then: Final = then
        self._over: Final = over
        self._octets = b""
        late = ProxyError(f"no header within {HEADER_SECONDS:g} seconds")
        self._timer: Final = loop.call_later(HEADER_SECONDS, self._end, late)
        loop.add_reader(opened, self._read)

    def _read(self) -> None:
        """Read the header or a part of it. Octets after the header stay in the socket."""
        try:
            seen = self._opened.recv(MOST_OCTETS - len(self._octets), socket.MSG_PEEK)
            if not seen:
                raise ProxyError("the connection was closed before its header arrived")
            header = parse(self._octets + seen)
            taken = len(seen) if header is None else header.octets - len(self._octets)
            self._octets += self._opened.recv(taken)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(ProxyError(error.strerror or str(error)))
            return
        except ProxyError as error:
            self._end(error)
            return
        if header is not None:
            self._end(header.source or self._address)

    def _end(self, result: Address | ProxyError) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self._opened)
        self._over(self)
        self._then(result)


def refused_proxy(proxy: str, listener: str, error: ProxyError) -> str:
    """Return the log text about a connection without a valid header."""
    return f"Connection from proxy {proxy} (to {listener}) closed: PROXY protocol: {error}"


def is_proxy(host: str, networks: Sequence[str]) -> bool:
    """Return whether connections from this address begin with a header."""
    if not networks:
        return False
    address = ipaddress.ip_address(host.partition("%")[0])
    return any(address in ipaddress.ip_network(network, strict=False) for network in networks)
