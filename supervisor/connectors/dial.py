"""Opening of TCP connections (brokers-and-edge.md C-3, C-8).

Names are resolved in a thread, the connect does not block, and both have a time limit.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Sequence
from typing import Any, Final

from sluice.supervisor.connectors.failover import FailoverEntry
from sluice.supervisor.runtime.threads import Threads

CONNECT_SECONDS: Final = 10.0  # time limit for connecting to one address
RESOLVE_SECONDS: Final = 30.0  # time limit for resolving a name
MAX_ADDRESSES: Final = 8  # maximum number of addresses tried for one name
# Service names (IANA) for systems without /etc/services.
_PORTS: Final = {"amqp": "5672", "amqps": "5671"}

_Address = tuple[int, int, int, str, Any]


class DialError(Exception):
    """Raised when no connection could be opened; the text is Dispatch's (brokers-and-edge.md C-7)."""


async def dial(entry: FailoverEntry, threads: Threads) -> socket.socket:
    """Connect to the first address of `entry` that accepts. Raises DialError. threads: for resolving names."""
    failure = ""
    for address in await _resolve(entry, threads):
        try:
            return await _connect(address)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            failure = f"proton:io {reason} - disconnected {entry.place}"
    raise DialError(failure)


async def _connect(address: _Address) -> socket.socket:
    """Connect to one address. Raises OSError."""
    family, kind, protocol, _, place = address
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.wait_for(asyncio.get_running_loop().sock_connect(opened, place), CONNECT_SECONDS)
        if is_connected_to_itself(opened):
            raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    except TimeoutError as error:
        if _connected(opened):  # the connect succeeded, but this process was not running
            return opened
        opened.close()
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from error
    except BaseException:
        opened.close()
        raise
    return opened


def is_connected_to_itself(opened: socket.socket) -> bool:
    """True if the socket is connected to itself.

    That happens if no process listens on the port and the kernel chose the same port for the local end.
    """
    return bool(opened.getsockname() == opened.getpeername())


def _connected(opened: socket.socket) -> bool:
    try:
        opened.getpeername()
    except OSError:
        return False
    return True


def port_number(text: str) -> int:
    """Return the number of a port, which may be given as a service name. Raises DialError."""
    number = _PORTS.get(text, text)
    try:
        return int(number) if number.isdecimal() else socket.getservbyname(number, "tcp")
    except OSError as error:
        raise DialError(f"proton:io Servname not supported for ai_socktype - port {text}") from error


async def _resolve(entry: FailoverEntry, threads: Threads) -> Sequence[_Address]:
    """Return the addresses to try, in order. Raises DialError."""
    port = _PORTS.get(entry.port, entry.port)
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    try:
        return _look_up(entry.host, port, flags)  # a numeric address needs no thread
    except (OSError, ValueError):  # the host is a name, perhaps an invalid one (ValueError)
        pass
    try:
        return await threads.run(lambda: _look_up(entry.host, port), RESOLVE_SECONDS)
    except TimeoutError:
        reason = os.strerror(errno.ETIMEDOUT)
    except OSError as error:
        reason = error.strerror or str(error)
    except ValueError:
        reason = "Name or service not known"  # invalid name
    raise DialError(f"proton:io {reason} - connect to  {entry.place}")


def _look_up(host: str, port: str, flags: int = 0) -> Sequence[_Address]:
    """Return the addresses of a host and port without duplicates. May block. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [*dict.fromkeys(found)][:MAX_ADDRESSES]
