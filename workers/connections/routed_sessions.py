"""Sessions of one connection for links that the router attaches on behalf of clients.

brokers-and-edge.md LR-14; decision 0012.

Each session of a client gets a session of its own here: the links of a transaction are then in one session, and a
client that does not read closes only its own window. If the peer allows fewer sessions, clients share them, also with
auto links. A peer that allows few links in a session (handle-max) gets further sessions.
"""

from collections.abc import Callable, Iterable
from typing import Final

from sluice.router.amqp.errors import RemoteError
from sluice.router.amqp.session import Session

MAX_ROUTED_SESSIONS: Final = 1000  # most sessions; further groups share them


class _Group:
    """Links that share a session. Owner: the RoutedSessions."""

    __slots__ = ("links", "session")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.links = 0


class RoutedSessions:
    """Sessions for routed links of one connection. Owner: the connection's handler.

    There is no reference to the owner, because connections are freed without the garbage collector.
    """

    __slots__ = ("_full", "_groups", "_idle", "_used")

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._full: dict[tuple[str, Session], _Group] = {}  # links of a group in its full sessions
        self._used: dict[Session, int] = {}  # number of groups by session
        self._idle: list[Session] = []

    @property
    def any(self) -> bool:
        """True if some session has room, so that links can share it if the peer allows no further session."""
        return any(session.room and not session.ended for session in self.sessions())

    def sessions(self) -> Iterable[Session]:
        """Return all sessions, including ended ones."""
        return *self._used, *self._idle

    def take(self, group: str, begin: Callable[[], Session]) -> Session | None:
        """Return the session for another link of a group. `begin` begins a new one.

        None: the peer must answer the begin first, because it may allow few links. Raises RemoteError.
        """
        found = self._groups.get(group)
        if found is not None and found.session.ended:
            del self._groups[group]
            self._leave(found.session)
            found = None
        if found is not None and not found.session.room:
            if found.session.unanswered:
                return None
            self._full[group, found.session] = self._groups.pop(group)
            found = self._with_room(group)
        if found is None:
            session = self._find(group, begin)
            found = self._groups[group] = _Group(session)
            self._used[session] = self._used.get(session, 0) + 1
        found.links += 1
        return found.session

    def _with_room(self, group: str) -> _Group | None:
        """Return an entry of the group in `_full` whose session has room again, or None."""
        for name, session in self._full:
            if name == group and session.room and not session.ended:
                found = self._groups[group] = self._full.pop((name, session))
                return found
        return None

    def _find(self, group: str, begin: Callable[[], Session]) -> Session:
        self._idle = [session for session in self._idle if not session.ended]
        for session in self._idle:
            if session.room:
                self._idle.remove(session)
                return session
        used = [session for session in self._used if not session.ended]
        if len(used) < MAX_ROUTED_SESSIONS:
            try:
                return begin()
            except RemoteError:
                if not any(session.room for session in used):
                    raise
        used = [session for session in used if session.room] or used
        return used[hash(group) % len(used)]

    def give_back(self, group: str, session: Session) -> None:
        """Note that a link has ended for which `take` returned this session."""
        found = self._groups.get(group)
        full = found is None or found.session is not session
        if full:
            found = self._full.get((group, session))
        if found is None:
            return  # the session had ended and was replaced
        found.links -= 1
        if found.links:
            return
        if full:
            del self._full[group, session]
        else:
            del self._groups[group]
        self._leave(session)

    def _leave(self, session: Session) -> None:
        """Note that a group no longer uses the session."""
        self._used[session] -= 1
        if not self._used[session]:
            del self._used[session]
            if not session.ended:
                self._idle.append(session)
