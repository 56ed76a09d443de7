"""Opening a TCP connection: names are resolved in a thread, the connect does not block, and all of it has a limit."""
import asyncio
import errno
import os
import socket
import threading
from collections.abc import Sequence
from typing import Any, Final

from supervisor.connectors.ring import Entry

CONNECT_SECONDS: Final = 10.0  # for each address that a name stands for
RESOLVE_SECONDS: Final = 30.0
MAX_ADDRESSES: Final = 8  # of one name
# Services that are known where /etc/services is missing (IANA).
_PORTS: Final = {"amqp": "5672", "amqps": "5671"}

_Address = tuple[int, int, int, str, Any]


class DialError(Exception):
    """No connection; the text says why, in the words of Dispatch (brokers-and-edge.md, C-7)."""


async def dial(entry: Entry) -> socket.socket:
    """An open connection, of the first address that accepts one. Raises DialError."""
    failure = ""
    for address in await _resolve(entry):
        try:
            return await _connect(address)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            failure = f"proton:io {reason} - disconnected {entry.place}"
    raise DialError(failure)


async def _connect(address: _Address) -> socket.socket:
    """Raises OSError."""
    family, kind, protocol, _, place = address
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.wait_for(asyncio.get_running_loop().sock_connect(opened, place), CONNECT_SECONDS)
    except TimeoutError as error:
        opened.close()
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from error
    except BaseException:
        opened.close()
        raise
    return opened


async def _resolve(entry: Entry) -> Sequence[_Address]:
    """Addresses to try, in order. Raises DialError."""
    port = _PORTS.get(entry.port, entry.port)
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    try:
        return _look_up(entry.host, port, flags)  # takes no time
    except (OSError, ValueError):  # a name, then, and perhaps none that can be (ValueError)
        pass
    try:
        return await asyncio.wait_for(_in_thread(entry.host, port), RESOLVE_SECONDS)
    except TimeoutError:
        reason = os.strerror(errno.ETIMEDOUT)
    except OSError as error:
        reason = error.strerror or str(error)
    except ValueError:
        reason = "Name or service not known"  # cannot be one
    raise DialError(f"proton:io {reason} - connect to  {entry.place}")


def _look_up(host: str, port: str, flags: int = 0) -> Sequence[_Address]:
    """Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [*dict.fromkeys(found)][:MAX_ADDRESSES]


def _in_thread(host: str, port: str) -> "asyncio.Future[Sequence[_Address]]":
    """Look up a name in a thread of its own, which nobody waits for when the router ends."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Sequence[_Address]] = loop.create_future()

    def finish(found: Sequence[_Address], error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(found)
        else:
            future.set_exception(error)

    def work() -> None:
        found: Sequence[_Address] = ()
        failure: Exception | None = None
        try:
            found = _look_up(host, port)
        except (OSError, ValueError) as error:
            failure = error
        try:
            loop.call_soon_threadsafe(finish, found, failure)
        except RuntimeError:
            return  # the loop has ended

    try:
        threading.Thread(target=work, name="resolver", daemon=True).start()
    except RuntimeError:  # the system has no threads left
        future.set_exception(OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
    return future
