"""Logins that have failed, counted for metrics: by listener and mechanism, and by remote host.

What clients send makes no new counters: a mechanism that was not offered counts as `none`, and of the hosts only those
that failed last have a counter of their own.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

MOST_WAYS: Final = 1000  # listeners and mechanisms; listeners may come and go
MOST_HOSTS: Final = 100  # so a page of metrics stays readable
NONE: Final = "none"  # the client has chosen no mechanism that it was offered
OTHER: Final = "other"


class Way(NamedTuple):
    """How a client has tried."""

    listener: str
    mechanism: str


class FailedLogins:
    """All counters. Owner: the authentication."""

    def __init__(self) -> None:
        self.by_way: dict[Way, int] = {}
        self.by_host: OrderedDict[str, int] = OrderedDict()  # who failed last is at the end
        self.by_other_hosts = 0  # that have no counter any more

    def add(self, listener: str, mechanism: str | None, host: str) -> None:
        """A client of this listener has failed."""
        way = Way(listener, mechanism or NONE)
        if way not in self.by_way and len(self.by_way) >= MOST_WAYS:
            way = Way(OTHER, OTHER)
        self.by_way[way] = self.by_way.get(way, 0) + 1
        self.by_host[host] = self.by_host.get(host, 0) + 1
        self.by_host.move_to_end(host)
        if len(self.by_host) > MOST_HOSTS:
            self.by_other_hosts += self.by_host.popitem(last=False)[1]
