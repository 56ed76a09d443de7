"""Accepted connections before their open, counted by remote host because their users are not known yet.

At the limit of all connections a host with many unopened connections loses one in favour of a host with fewer. So no
host can exclude others by idle connections.
"""

from collections import OrderedDict
from collections.abc import Iterable

from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.runtime.remote_hosts import remote_host


class _HostsByCount:
    """Hosts by their number of unopened connections. Owner: the unopened connections."""

    __slots__ = ("_by_count", "most")

    def __init__(self, counts: Iterable[tuple[str, int]]) -> None:
        self._by_count: dict[int, OrderedDict[str, None]] = {}
        self.most = 0  # the largest number of a host
        for host, count in counts:
            self.change(host, 0, count)

    def first(self) -> str:
        """Return the host that has the largest number for longest."""
        return next(iter(self._by_count[self.most]))

    def change(self, host: str, before: int, now: int) -> None:
        """Note that the number of a host has changed."""
        if before:
            hosts = self._by_count[before]
            del hosts[host]
            if not hosts:
                del self._by_count[before]
        if now:
            others = self._by_count.get(now)
            if others is None:
                others = self._by_count[now] = OrderedDict()
            others[host] = None
        if now > self.most or (before == self.most and before not in self._by_count):
            self.most = now


class UnopenedConnections:
    """Unopened connections by remote host. Owner: the connections.

    All operations take constant time, except for the first choice of a connection to drop, which sorts the hosts by
    their numbers. The order is kept up to date from then on, as long as there are unopened connections.
    """

    def __init__(self) -> None:
        # By host, then by number; oldest connection first.
        self._hosts: dict[str, OrderedDict[int, RegisteredConnection]] = {}
        self._host_of: dict[int, str] = {}  # host by number of the connection
        self._sorted: _HostsByCount | None = None  # None: no choice was necessary yet

    @property
    def count(self) -> int:
        """Number of unopened connections."""
        return len(self._host_of)

    def add(self, connection: RegisteredConnection) -> None:
        """Add an accepted connection."""
        host = _host(connection.peer)
        found = self._hosts.get(host)
        if found is None:
            found = self._hosts[host] = OrderedDict()
        found[connection.number] = connection
        self._host_of[connection.number] = host
        if self._sorted is not None:
            self._sorted.change(host, len(found) - 1, len(found))

    def remove(self, connection: RegisteredConnection) -> None:
        """Remove a connection that was opened or has ended. Does nothing if it was not added."""
        host = self._host_of.pop(connection.number, None)
        if host is None:
            return
        found = self._hosts[host]
        del found[connection.number]
        if not found:
            del self._hosts[host]
        if self._sorted is not None:
            self._sorted.change(host, len(found) + 1, len(found))
            if not self._hosts:
                self._sorted = None

    def connection_to_evict(self, peer: str) -> RegisteredConnection | None:
        """Return the connection to drop for a new connection of `peer`: the oldest of a host with the most.

        Returns None if that host would afterwards have fewer than the host of `peer`.
        """
        if self._sorted is None:
            self._sorted = _HostsByCount((host, len(found)) for host, found in self._hosts.items())
        if self._sorted.most <= len(self._hosts.get(_host(peer), ())) + 1:
            return None
        return next(iter(self._hosts[self._sorted.first()].values()))


def _host(peer: str) -> str:
    """Return the remote host of a peer, given as `ip:port`."""
    return remote_host(peer.rpartition(":")[0])
