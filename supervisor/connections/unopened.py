"""Connections whose client has not opened them yet, by remote host: who it is, is not known.

At the limit of all connections, a host that has many of them gives one up for a host that has fewer, so that no host
keeps out the others by connections that say nothing.
"""

from collections import OrderedDict

from supervisor.connections.connections import Connection
from supervisor.runtime.remote_hosts import remote_host


class Unopened:
    """Owner: the connections. Each call takes the same time, however many there are."""

    def __init__(self) -> None:
        self._hosts: dict[str, OrderedDict[int, Connection]] = {}  # by number: the oldest first
        self._by_count: dict[int, OrderedDict[str, None]] = {}  # hosts that have so many
        self._most = 0  # that any host has

    def add(self, connection: Connection) -> None:
        """Count a connection that was accepted."""
        host = _host(connection.peer)
        found = self._hosts.setdefault(host, OrderedDict())
        found[connection.number] = connection
        self._counted(host, len(found) - 1, len(found))

    def remove(self, connection: Connection) -> None:
        """Count a connection no more: it is open or gone. Does nothing for one that does not count."""
        host = _host(connection.peer)
        found = self._hosts.get(host)
        if found is None or found.pop(connection.number, None) is None:
            return
        if not found:
            del self._hosts[host]
        self._counted(host, len(found) + 1, len(found))

    def to_give_up(self, peer: str) -> Connection | None:
        """Return the oldest one of a host that has most, if that host has as many as the one of `peer` afterwards."""
        if self._most <= len(self._hosts.get(_host(peer), ())) + 1:
            return None
        host = next(iter(self._by_count[self._most]))
        return next(iter(self._hosts[host].values()))

    def _counted(self, host: str, before: int, now: int) -> None:
        if before:
            hosts = self._by_count[before]
            del hosts[host]
            if not hosts:
                del self._by_count[before]
        if now:
            self._by_count.setdefault(now, OrderedDict())[host] = None
        if now > self._most or (before == self._most and before not in self._by_count):
            self._most = now


def _host(peer: str) -> str:
    """The host of `ip:port`."""
    return remote_host(peer.rpartition(":")[0])
