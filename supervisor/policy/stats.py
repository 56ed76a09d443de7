"""Counters of each vhost: present connections, and approvals and denials since the start (security.md P-70).

Does no input or output.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from sluice.router.policy.decisions import ConnectionCounts

# Limit of users, and of hosts, that management shows after their last connection. Clients that connect from ever new
# addresses must not fill the memory.
MOST_GONE: Final = 1000


class ConnectionsByKey:
    """Connections by user or by host. Owner: VhostStats."""

    __slots__ = ("_gone", "_peers")

    def __init__(self) -> None:
        self._peers: dict[str, dict[int, str]] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()  # keys without a connection, oldest first

    def count(self, key: str) -> int:
        return len(self._peers.get(key, ()))

    def enter(self, key: str, number: int, peer: str) -> None:
        self._gone.pop(key, None)
        self._peers.setdefault(key, {})[number] = peer

    def leave(self, key: str, number: int) -> None:
        peers = self._peers[key]
        del peers[number]
        if not peers:
            self._gone[key] = None
            if len(self._gone) > MOST_GONE:
                del self._peers[self._gone.popitem(last=False)[0]]

    def shown(self) -> dict[str, list[str]]:
        return {key: list(peers.values()) for key, peers in self._peers.items()}


class VhostStats:
    """Counters of one vhost. They outlive the vhost. Owner: the policy."""

    __slots__ = (
        "_hosts", "_users", "connections", "connections_approved", "connections_denied", "message_size_denied",
        "receiver_denied", "sender_denied", "session_denied",
    )  # fmt: skip

    def __init__(self) -> None:
        self.connections = 0
        self.connections_approved = 0
        self.connections_denied = 0
        self.sender_denied = 0
        self.session_denied = 0
        self.receiver_denied = 0
        self.message_size_denied = 0
        self._users = ConnectionsByKey()
        self._hosts = ConnectionsByKey()

    def counts(self, user: str | None, host: str) -> ConnectionCounts:
        """Return the present connections in total, of this user, and from this host."""
        return ConnectionCounts(self.connections, self._users.count(user or ""), self._hosts.count(host))

    def enter(self, number: int, user: str | None, host: str, peer: str) -> None:
        """Count an approved connection of a client."""
        self.connections += 1
        self._users.enter(user or "", number, peer)
        self._hosts.enter(host, number, peer)

    def leave(self, number: int, user: str | None, host: str) -> None:
        """Count off a connection that has ended."""
        self.connections -= 1
        self._users.leave(user or "", number)
        self._hosts.leave(host, number)

    def shown(self) -> Mapping[str, Any]:
        """Return the counters for management (management.md 6.9)."""
        return {
            "connectionsApproved": self.connections_approved,
            "connectionsDenied": self.connections_denied,
            "connectionsCurrent": self.connections,
            "perUserState": self._users.shown(),
            "perHostState": self._hosts.shown(),
            "sessionDenied": self.session_denied,
            "senderDenied": self.sender_denied,
            "receiverDenied": self.receiver_denied,
            "maxMessageSizeDenied": self.message_size_denied,
        }
