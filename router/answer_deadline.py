"""Deadline of HTTP answers as a whole, for a session of the library `requests`."""

import time
from functools import partial
from typing import Any

import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.poolmanager import PoolManager, ProxyManager

from sluice.router.deadline_answer import DeadlineAnswer


def _answer_class(connection: HTTPConnection) -> Any:
    """Return the class of the next answer of a connection. Its `timeout` is what is left for it in seconds: urllib3
    subtracts the time since the start of the request from a `Timeout` with a total."""
    assert connection.timeout is not None
    return partial(DeadlineAnswer, deadline=time.monotonic() + connection.timeout)


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
