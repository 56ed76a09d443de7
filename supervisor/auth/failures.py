"""Counters of failed logins for metrics: by listener and mechanism, and by remote host.

Values that clients choose do not create counters: a mechanism that was not offered counts as `none`, and only the
MOST_HOSTS hosts that failed last have a counter each.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

MAX_METHOD_COUNTERS: Final = (
    1000  # maximum number of counters by listener and mechanism; listeners may be added and removed
)
MOST_HOSTS: Final = 100  # maximum number of counters by host, so that a page of metrics stays readable
NONE: Final = "none"  # the client has chosen no mechanism, or one that was not offered
OTHER: Final = "other"  # stands for listener and mechanism beyond MAX_METHOD_COUNTERS


class LoginMethod(NamedTuple):
    """Listener and mechanism of a failed login."""

    listener: str
    mechanism: str


class FailedLogins:
    """Counters of failed logins. Owner: the authentication subsystem."""

    def __init__(self) -> None:
        self.by_method: dict[LoginMethod, int] = {}
        self.by_host: OrderedDict[str, int] = OrderedDict()  # in order of the last failure, the latest at the end
        self.by_other_hosts = 0  # failures of hosts whose counter was evicted

    def add(self, listener: str, mechanism: str | None, host: str) -> None:
        """Count a failed login of a client of this listener."""
        way = LoginMethod(listener, mechanism or NONE)
        if way not in self.by_method and len(self.by_method) >= MAX_METHOD_COUNTERS:
            way = LoginMethod(OTHER, OTHER)
        self.by_method[way] = self.by_method.get(way, 0) + 1
        self.by_host[host] = self.by_host.get(host, 0) + 1
        self.by_host.move_to_end(host)
        if len(self.by_host) > MOST_HOSTS:
            self.by_other_hosts += self.by_host.popitem(last=False)[1]
