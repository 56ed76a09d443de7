"""What is counted for each vhost: its connections now, and what was approved and denied (security.md P-70).

No input or output here.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from router.policy.decisions import Counts

# Users, and hosts, that management goes on to show after their last connection. There are no more of them than so many:
# who can connect from ever new addresses must not fill the memory.
MOST_GONE: Final = 1000


class Places:
    """Connections by user or by host. Owner: VhostStats."""

    __slots__ = ("_gone", "_peers")

    def __init__(self) -> None:
        self._peers: dict[str, dict[int, str]] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()  # those without a connection, the first to go first

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
    """The counters of one vhost; they outlive it. Owner: the policy."""

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
        self._users = Places()
        self._hosts = Places()

    def counts(self, user: str | None, host: str) -> Counts:
        """Connections that are there before one of this user from this host comes."""
        return Counts(self.connections, self._users.count(user or ""), self._hosts.count(host))

    def enter(self, number: int, user: str | None, host: str, peer: str) -> None:
        """A connection of an accepted peer is approved."""
        self.connections += 1
        self._users.enter(user or "", number, peer)
        self._hosts.enter(host, number, peer)

    def leave(self, number: int, user: str | None, host: str) -> None:
        """That connection is gone."""
        self.connections -= 1
        self._users.leave(user or "", number)
        self._hosts.leave(host, number)

    def shown(self) -> Mapping[str, Any]:
        """As management shows them."""
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
