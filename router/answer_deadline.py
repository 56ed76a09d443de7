"""Deadline of HTTP answers as a whole, for a session of the library `requests`.

Without it, a time-out bounds each read of the socket only: a server that sends an octet before each time-out, or
interim answers (status 100) without end, holds its client for ever.
"""

import io
import socket
import time
from functools import partial
from http.client import HTTPResponse
from typing import Any

import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.poolmanager import PoolManager, ProxyManager


class _DeadlineReader(io.RawIOBase):
    """Reader of a socket up to a deadline. Owner: an answer."""

    def __init__(self, connected: socket.socket, deadline: float) -> None:
        """deadline: on the clock `time.monotonic`."""
        self._socket = connected
        # The file counts as a reference to the socket, which stays open although the connection closes it.
        self._file = connected.makefile("rb", buffering=0)
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Raises TimeoutError at the deadline."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline of the answer has passed")
        self._socket.settimeout(left)
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


class _DeadlineAnswer(HTTPResponse):
    """Answer that must arrive before a deadline, with its content."""

    def __init__(self, connected: socket.socket, *words: Any, deadline: float, **options: Any) -> None:
        super().__init__(connected, *words, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_DeadlineReader(connected, deadline))


def _answer_class(connection: HTTPConnection) -> Any:
    """Return the class of the next answer of a connection. Its `timeout` is what is left for it in seconds: urllib3
    subtracts the time since the start of the request from a `Timeout` with a total."""
    assert connection.timeout is not None
    return partial(_DeadlineAnswer, deadline=time.monotonic() + connection.timeout)


class _PlainConnection(HTTPConnection):
    def getresponse(self) -> Any:
        self.response_class = _answer_class(self)
        return super().getresponse()


class _TlsConnection(HTTPSConnection):
    def getresponse(self) -> Any:
        self.response_class = _answer_class(self)
        return super().getresponse()


class _PlainPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _PlainConnection


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def _use_pools(manager: PoolManager) -> None:
    manager.pool_classes_by_scheme = {"http": _PlainPool, "https": _TlsPool}


class DeadlineAdapter(HTTPAdapter):
    """Transport of a session that ends each request, with its answer, at the total of its `urllib3.Timeout`."""

    def init_poolmanager(self, *words: Any, **options: Any) -> None:
        super().init_poolmanager(*words, **options)
        _use_pools(self.poolmanager)

    def proxy_manager_for(self, *words: Any, **options: Any) -> ProxyManager:
        found: ProxyManager = super().proxy_manager_for(*words, **options)
        _use_pools(found)
        return found
