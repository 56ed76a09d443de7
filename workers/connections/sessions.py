"""Sessions of a connection, begun by the peer or by the router for links that it attaches.

brokers-and-edge.md AL-5, LR-14.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from sluice.router.amqp.errors import RESOURCE_LIMIT, RemoteError
from sluice.router.amqp.session import Session
from sluice.router.control import messages as control
from sluice.router.control import pair_messages
from sluice.workers.connections.routed_sessions import RoutedSessions
from sluice.workers.links.streams import SPARE_CHANNELS

if TYPE_CHECKING:
    from sluice.workers.connections.handler import ConnectionHandler

AUTO_LINK_CHANNELS: Final = 1  # reserved for the session of auto links


def make_session(client: "ConnectionHandler", channel: int | None, items: list[bytes] | None) -> Session:
    """Return a session (brokers-and-edge.md W-3).

    channel, items: of the peer's begin; None: the router begins it. Raises RemoteError.
    """
    between_routers = client.role.between_routers
    return Session(
        client.connection, channel, items, client, window=client.policy.session_window, routers=between_routers
    )


def begin_session(client: "ConnectionHandler", spare: int = 0) -> Session:
    """Begin a session on the router's initiative, if more than `spare` others may begin. Raises RemoteError."""
    if spare and client.connection.channels_left() <= spare:
        text = "no channel is left: the last ones are reserved for other sessions"
        raise RemoteError("connection", RESOURCE_LIMIT, text)
    return make_session(client, None, None)


class RouterSessions:
    """Sessions for links that the router attaches, and orders that wait for them. Owner: the connection handler.

    There is no reference to the owner, because connections are freed without the garbage collector.
    """

    __slots__ = ("_initiated", "_waiting", "routed")

    def __init__(self) -> None:
        # Usually one session, or several if the peer allows few links in a session. Other keys than False: sessions for
        # links that must not share a session with the rest.
        self._initiated: dict[bool | str, list[Session]] = {}
        # Orders that wait until the peer has answered a begin.
        self._waiting: list[control.Link | pair_messages.Pair] = []
        self.routed = RoutedSessions()

    def for_initiated_link(self, client: "ConnectionHandler", order: control.Link) -> Session | None:
        """Return the session for another link.

        None: the peer must answer a begin first. Raises RemoteError.
        """
        key = order.session or order.second
        sessions = [session for session in self._initiated.get(key, ()) if not session.ended]
        self._initiated[key] = sessions
        for session in sessions:
            if session.room:
                return session
        if any(session.unanswered for session in sessions):
            return None
        sessions.append(self._begin_or_share(client, (*self._all_initiated(), *self.routed.sessions())))
        return sessions[-1]

    def for_routed_link(self, client: "ConnectionHandler", group: str) -> Session | None:
        """Return the session for another routed link of a group; None as above. Raises RemoteError.

        The first session may use any free channel. If no channel is left for it, the session of auto links is shared.
        """
        return self.routed.take(group, lambda: self._begin_routed(client))

    def _begin_routed(self, client: "ConnectionHandler") -> Session:
        if self.routed.any:
            return begin_session(client, SPARE_CHANNELS if client.role.between_routers else AUTO_LINK_CHANNELS)
        return self._begin_or_share(client, self._all_initiated())

    def _all_initiated(self) -> Iterable[Session]:
        return (session for each in self._initiated.values() for session in each)

    def _begin_or_share(self, client: "ConnectionHandler", others: Iterable[Session]) -> Session:
        """Begin a session, or return one of `others` with room if the peer allows no more. Raises RemoteError."""
        try:
            return begin_session(client)
        except RemoteError:
            shared = next((session for session in others if session.room and not session.ended), None)
            if shared is None:
                raise
            return shared

    # -- orders -------------------------------------------------------------------------------------------------------

    def wait(self, order: control.Link | pair_messages.Pair) -> None:
        """Keep an order until the peer has answered a begin, because it may allow few links in a session."""
        self._waiting.append(order)

    def take_waiting(self) -> list[control.Link | pair_messages.Pair]:
        """Return the waiting orders, which are to be tried again."""
        orders, self._waiting = self._waiting, []
        return orders

    def cancel_link(self, reference: int) -> None:
        """Drop the waiting order for a link that is no longer needed."""
        self._waiting = [
            order for order in self._waiting if isinstance(order, pair_messages.Pair) or order.ref != reference
        ]

    def cancel_pair(self, pair: int) -> None:
        """Drop the waiting order for the container's link of a pair that is no longer needed."""
        self._waiting = [order for order in self._waiting if isinstance(order, control.Link) or order.pair != pair]
