"""Connections through an HTTP proxy: CONNECT (RFC 9110, 9.3.6), with basic authentication (RFC 7617)."""

import asyncio
import socket
from base64 import b64encode
from typing import Final

from sluice.router.config.entities import ProxyConfig
from sluice.router.websocket.http import END, MAX_HEAD, HeadError, host_header, is_visible_ascii, parse_answer
from sluice.supervisor.connectors.dial import DialError, dial, port_number
from sluice.supervisor.connectors.failover import FailoverEntry
from sluice.supervisor.runtime.threads import Threads

ANSWER_SECONDS: Final = 30.0  # time limit for the proxy's response, which includes its connect to the peer


async def dial_through(proxy: ProxyConfig, password: str, entry: FailoverEntry, threads: Threads) -> socket.socket:
    """Connect to `entry` through a proxy, which resolves the name. Raises DialError.

    password: password for the proxy. threads: for resolving the name of the proxy.
    """
    opened = await dial(FailoverEntry("http", proxy.host, proxy.port), threads)
    try:
        await asyncio.wait_for(_tunnel(opened, _request(proxy, password, entry)), ANSWER_SECONDS)
    except (OSError, HeadError, TimeoutError) as error:
        opened.close()
        reason = "it does not respond" if isinstance(error, TimeoutError) else str(error)
        raise DialError(f"proxy {proxy.host}:{proxy.port} does not connect to {entry.place}: {reason}") from error
    except BaseException:
        opened.close()
        raise
    return opened


def _request(proxy: ProxyConfig, password: str, entry: FailoverEntry) -> bytes:
    """Return the CONNECT request. Raises DialError."""
    host = entry.host if entry.host.isascii() else entry.host.encode("idna").decode()
    if not is_visible_ascii(host):
        raise DialError(f"host name {host!r} has characters that a request to a proxy cannot have")
    target = host_header(host, str(port_number(entry.port)))
    login = ""
    if proxy.user is not None:
        credentials = b64encode(f"{proxy.user}:{password}".encode()).decode()
        login = f"Proxy-Authorization: Basic {credentials}\r\n"
    return f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{login}\r\n".encode("ascii")


async def _tunnel(opened: socket.socket, request: bytes) -> None:
    """Send the request and read the proxy's response. Octets of the peer after the response stay in the socket.

    Raises HeadError if the proxy refuses.
    """
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(opened, request)
    head = b""
    while END not in head:
        # Peek first, then read only the head: octets after the head must stay in the socket.
        await _readable(loop, opened)
        seen = opened.recv(MAX_HEAD, socket.MSG_PEEK)
        if not seen:
            raise HeadError("it has closed the connection")
        before = len(head)
        head += seen
        end = head.find(END)
        taken = len(seen) if end < 0 else end + len(END) - before
        opened.recv(taken)
        if len(head) > MAX_HEAD and end < 0:
            raise HeadError("its response is too long")
    status, answer = parse_answer(head[: head.find(END) + len(END)])
    if not 200 <= status < 300:
        raise HeadError(f"it answered {answer.start[9:60]}")


async def _readable(loop: asyncio.AbstractEventLoop, opened: socket.socket) -> None:
    found: asyncio.Future[None] = loop.create_future()
    loop.add_reader(opened, lambda: None if found.done() else found.set_result(None))
    try:
        await found
    finally:
        loop.remove_reader(opened)
